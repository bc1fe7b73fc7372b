"""Fine-tuning from Python: rows in memory, resuming, and errors that name settings."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import pytest

import bertmill
from bertmill.cli.main import main
from bertmill.errors import BertmillError, DataError, IntegrityError, UsageError
from bertmill.storage import read_json
from bertmill.training.state import RunFolder
from tests.finetuned import finetune_words, read_metadata

FEW = {"method": "full", "epochs": 0.5, "batch_size": 8, "threads": 1, "learning_rate": 2e-3}


@pytest.fixture
def rows(rows_file: Path) -> list[dict[str, str]]:
    with rows_file.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def weights(run: Path) -> bytes:
    return (run / "model/model.safetensors").read_bytes()


class Frame:
    """Stands in for a data frame."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.columns = list(rows[0])
        self._rows = rows

    def __getitem__(self, name: str) -> list[str]:
        return [row[name] for row in self._rows]


def test_rows_in_memory_and_in_a_file_train_the_same_model(
    tiny: Path, rows_file: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    assert main([*finetune_words(tiny, rows_file, tmp_path / "cli", epochs=0.5, learning_rate=2e-3), "--quiet"]) == 0
    forms = {"list": rows, "path": rows_file, "str": str(rows_file), "frame": Frame(rows)}
    for name, train in forms.items():
        model = bertmill.finetune("classify", tiny, train=train, dev=0.1, out=tmp_path / name, **FEW)
        assert model.folder == tmp_path / name / "model"
        assert weights(tmp_path / name) == weights(tmp_path / "cli"), name
    assert model.predict(["a good film"])[0]["label"] in ("yes", "no")
    assert read_metadata(model.folder)["train_sha256"] == read_metadata(tmp_path / "list/model")["train_sha256"]


def test_dev_may_be_a_fraction_a_file_or_rows(
    tiny: Path, rows_file: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    bertmill.finetune("classify", tiny, rows, 0.3, tmp_path / "fraction", **FEW)
    bertmill.finetune("classify", tiny, rows, rows_file, tmp_path / "file", **FEW)
    bertmill.finetune("classify", tiny, rows_file, rows[:20], tmp_path / "rows", **FEW)
    assert read_metadata(tmp_path / "fraction/model")["dev_share"] == "0.3"
    assert [path.name for path in (tmp_path / "rows/rows").iterdir()] == ["dev.jsonl"]
    reported = [read_json(tmp_path / name / "evaluation.json")["rows"] for name in ("fraction", "file", "rows")]
    assert reported == [36, 120, 20]


def test_options_of_the_task_and_several_seeds(tiny: Path, rows: list[dict[str, str]], tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = bertmill.finetune("classify", tiny, rows, out=out, seeds=2, class_weights="balanced", **FEW)
    assert model.folder == out / "model"
    assert len(list((out / "trials").iterdir())) == 2


def test_a_run_without_a_name_goes_to_runs(
    tiny: Path, rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = bertmill.finetune("classify", tiny, rows, **FEW)
    assert model.folder.parent in [path.relative_to(tmp_path) for path in tmp_path.glob("runs/classify-*")]


def test_a_stopped_run_is_resumed_exactly_from_python_and_the_command_line(
    tiny: Path, rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bertmill.finetune("classify", tiny, rows, out=tmp_path / "whole", **FEW)
    for name in ("python", "cli"):
        out = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr("bertmill.training.signals.StopSignal.exit_code", 130)
            with pytest.raises(BertmillError, match="stopped after step 1"):
                bertmill.finetune("classify", tiny, rows, out=out, **FEW)
        with pytest.raises(UsageError, match="already contains a run"):
            bertmill.finetune("classify", tiny, rows, out=out, **FEW)
        with pytest.raises(IntegrityError, match="the train data differs from what the run started with"):
            bertmill.finetune("classify", tiny, rows[1:], out=out, resume=True, **FEW)
        if name == "python":
            bertmill.finetune("classify", tiny, rows, out=out, resume=True, **FEW)
        else:
            assert main(["finetune", "--out", str(out), "--resume", "--quiet"]) == 0
        assert weights(out) == weights(tmp_path / "whole")
    again = bertmill.finetune("classify", tiny, rows, out=out, resume=True, **FEW)  # it is finished
    assert again.folder == out / "model"


def test_a_start_that_was_killed_can_be_repeated(tiny: Path, rows: list[dict[str, str]], tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        bertmill.finetune("classify", tiny, rows, out=tmp_path / name, **FEW)
    run = tmp_path / "killed"
    content = (run / "rows/train.jsonl").read_bytes()
    for path in [*run.rglob("*")][::-1]:
        if path.name not in ("rows", "train.jsonl"):
            path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UsageError, match="rows: contains other rows; remove them, or choose another folder"):
        bertmill.finetune("classify", tiny, rows[1:], out=run, resume=True, **FEW)
    assert (run / "rows/train.jsonl").read_bytes() == content
    bertmill.finetune("classify", tiny, rows, out=run, resume=True, **FEW)
    assert weights(run) == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"train": [{"text": "a", "label": None}] * 30}, DataError, r"run/rows/train.jsonl:1: the label is empty"),
        ({"train": ["a"]}, UsageError, "row 1 is not a dict, but str"),
        ({"dev": 3j}, UsageError, "rows must be a list of dicts, a table of columns or a path, not complex"),
        ({"model": "nowhere"}, UsageError, "no model folder, installed model or cached model is named 'nowhere'"),
        ({"task": "clasify"}, UsageError, "there is no task called 'clasify'; did you mean classify"),
        ({"dev": 1}, UsageError, "^dev: must be a fraction between 0 and 1 or a file name"),
        ({"max_bad_rows": "9%"}, UsageError, "^`max_bad_rows` needs `on_bad_row='skip'`$"),
        ({"out": None, "resume": True}, UsageError, "^`out` is required to resume a run: its folder$"),
        ({"epochs": -1}, UsageError, r"^epochs: input should be greater than 0 \(got -1\)$"),
        ({"lr": 1, "seed": "x"}, UsageError, "^seed: .* · there is no setting lr; did you mean learning_rate"),
    ],
)
def test_a_start_that_fails_leaves_nothing_behind(
    change: dict[str, Any],
    kind: type[BertmillError],
    message: str,
    tiny: Path,
    rows: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"task": "classify", "model": tiny, "train": rows, "out": tmp_path / "run", **change}
    with pytest.raises(kind, match=message):
        bertmill.finetune(**given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["notes.txt", "rows/notes.txt", "rows/train.csv"])
def test_a_folder_with_other_files_is_left_alone(
    name: str, tiny: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(UsageError, match="is neither empty nor a run folder"):
        bertmill.finetune("classify", tiny, rows, out=tmp_path / "run", **FEW)
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == [file]
    assert not RunFolder(tmp_path / "run").config.exists()


def test_rows_in_memory_need_a_single_process(
    tiny: Path, rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="rows in memory need a single process; write them to a file"):
        bertmill.finetune("classify", tiny, rows, out=tmp_path / "run", **FEW)
    assert not (tmp_path / "run").exists()


def test_progress_is_logged(
    tiny: Path, rows: list[dict[str, str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="bertmill"):
        bertmill.finetune("classify", tiny, rows, 0.1, out=tmp_path / "run", **FEW)
    assert any(message.startswith("train: 108 rows") for message in caplog.messages)
    assert any(message.startswith("step 7, dev_loss ") for message in caplog.messages)


def test_resuming_without_the_settings_of_several_trials_continues_all_of_them(
    tiny: Path, rows: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("bertmill.training.signals.StopSignal.exit_code", 130)
        with pytest.raises(BertmillError, match="stopped after step 1"):
            bertmill.finetune("classify", tiny, rows, out=out, seeds=2, **FEW)
    assert bertmill.finetune("classify", tiny, rows, out=out, resume=True).folder == out / "model"
    assert len(list((out / "trials").glob("*/model"))) == 2
    with pytest.raises(UsageError, match="task cannot change when a run is resumed"):
        bertmill.finetune("regress", tiny, rows, out=out, resume=True)
