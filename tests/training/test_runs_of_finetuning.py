"""Tests for runs: starting, resuming under the rules of the settings, and data that moved or changed."""

from __future__ import annotations

import json
import shutil
from itertools import count
from pathlib import Path

import pytest

from bertmill.cli.main import main
from bertmill.config.commands import FinetuneSettings
from bertmill.training.finetune import finetune
from bertmill.training.progress import Listener
from bertmill.training.task_trainable import TaskTrainable
from tests.finetuned import RunMain, finetune_words, read_metadata
from tests.training.pretraining import edit_settings


def weights(run: Path) -> bytes:
    return (run / "model/model.safetensors").read_bytes()


def test_changed_and_missing_data_are_detected_on_resume(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = Path("rows.tsv")
    rows.write_bytes(rows_file.read_bytes())
    words = [*finetune_words(tiny, rows, tmp_path / "run", epochs=0.5), "--quiet"]
    assert main(words) == 0
    (tmp_path / "run/model").rename(tmp_path / "model")
    rows.write_bytes(rows_file.read_bytes() + b"one more film\tno\n")
    assert main([*words, "--resume"]) == 4
    assert "the train data differs from what the run started with" in capsys.readouterr().err
    rows.unlink()
    assert main([*words, "--resume"]) == 2
    assert f"bertmill: {rows.resolve()}: does not exist; set --train to its new location" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["folder", "rows.json#train"])
def test_rows_in_a_folder_or_under_a_key_must_not_change_either(
    source: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"pos": ["a good film", "a great book", "a fine plot"], "neg": ["a bad film", "a dull book", "a poor plot"]}
    for label, of_label in texts.items():
        (tmp_path / "folder" / label).mkdir(parents=True)
        for number, text in enumerate(of_label):
            (tmp_path / f"folder/{label}/{number}.txt").write_text(text, encoding="utf-8")
    rows = [[text, label] for label, of_label in texts.items() for text in of_label]
    (tmp_path / "rows.json").write_text(json.dumps({"train": rows, "val": rows[::-1]}), encoding="utf-8")
    more = {"dev": tmp_path / "rows.json#val", "epochs": 1}
    words = [*finetune_words(tiny, tmp_path / source, tmp_path / "run", **more), "--quiet"]
    assert main(words) == 0
    (tmp_path / "run/model").rename(tmp_path / "model")
    assert main([*words, "--resume"]) == 0
    (tmp_path / "run/model").rename(tmp_path / "model 2")
    assert main([*words, "--resume", "--dev", str(tmp_path / "rows.json#train")]) == 4
    assert "the dev data differs from what the run started with" in capsys.readouterr().err
    (tmp_path / "folder/pos/0.txt").write_text("another film", encoding="utf-8")
    (tmp_path / "rows.json").write_text(json.dumps({"train": rows[1:], "val": rows[::-1]}), encoding="utf-8")
    assert main([*words, "--resume"]) == 4
    assert "the train data differs from what the run started with" in capsys.readouterr().err


def test_a_model_remembers_how_its_rows_were_read(
    tiny: Path, rows_file: Path, tmp_path: Path, run_main: RunMain, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = rows_file.read_text(encoding="utf-8").splitlines()[1:41]
    rows = [line.split("\t") for line in lines]
    file = tmp_path / "rows.txt"
    file.write_text("clase;comentario\n" + "".join(f"{label};{text}\n" for text, label in rows), encoding="utf-8")
    flags = {"columns": "text=comentario,label=clase", "separator": ";", "epochs": 0.5}
    run_main(*finetune_words(tiny, file, tmp_path / "run", **flags), "--quiet")
    model = tmp_path / "run/model"
    assert read_metadata(model)["rows"]["columns"]["text"] == "comentario"
    assert run_main("evaluate", model, file, "--quiet").startswith("40 rows\n")
    answers = run_main("predict", model, file)
    records = tmp_path / "rows.jsonl"
    records.write_text("".join(json.dumps({"comentario": text}) + "\n" for text, _ in rows), encoding="utf-8")
    assert run_main("predict", model, records) == answers
    assert run_main("predict", model, rows_file, "--columns", "text=text", "--quiet").count("\n") == 120
    assert main(["evaluate", str(model), str(file), "--separator", "|"]) == 3
    assert "the file does not have the columns of the training rows" in capsys.readouterr().err


def test_a_run_knows_its_own_settings_when_it_is_resumed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["finetune", "--resume", "--out", str(finished)]) == 0
    assert "is already finished" in capsys.readouterr().err
    assert main(["finetune", "--resume", "--out", str(tmp_path / "none"), "--model", "minilm"]) == 2
    said = capsys.readouterr().err
    assert "TASK is required" in said
    assert "--train is required" in said
    assert not (tmp_path / "none").exists()


def test_a_run_is_left_alone_without_resume(
    finished: Path, tiny: Path, rows_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(finetune_words(tiny, rows_file, finished)) == 2
    assert f"{finished}: already contains a run; resume it, or choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{}, {"seeds": 2}])
def test_a_start_that_fails_leaves_nothing_behind(flags: dict[str, int], tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na film\tno\n \tyes\n", encoding="utf-8")
    assert main([*finetune_words(tiny, rows, tmp_path / "run", **flags), "--quiet"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["rows.tsv"]


@pytest.mark.parametrize("name", ["data.json", "log.jsonl", "heldout/manifest.json", "plans/a.txt"])
def test_a_folder_with_other_files_is_left_alone(name: str, tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text('{"corpus": "mine"}', encoding="utf-8")
    assert main([*finetune_words(tiny, rows_file, tmp_path / "run"), "--quiet"]) == 2
    assert main(["pretrain", "--corpus", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert file.read_text(encoding="utf-8") == '{"corpus": "mine"}'


def test_relative_paths_are_resolved_so_that_a_run_can_be_resumed_anywhere(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_bytes(rows_file.read_bytes())
    (tmp_path / "tiny").symlink_to(tiny)
    monkeypatch.chdir(tmp_path)
    words = [*finetune_words(Path("tiny"), Path("train.tsv"), Path("run"), epochs=1, dev="dev.tsv"), "--quiet"]
    assert main(words) == 0
    before = weights(tmp_path / "run")
    shutil.rmtree("run/model")
    assert main([*words, "--resume"]) == 0
    assert weights(tmp_path / "run") == before
    assert main([*words, "--resume", "--eval-every", "3"]) == 2  # it decides which weights are the best
    assert "eval_every cannot change when a run is resumed" in capsys.readouterr().err
    shutil.rmtree("run/model")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["finetune", "--resume", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert weights(tmp_path / "run") == before


def test_data_may_move_but_not_change(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny, tmp_path / "tiny")
    rows = tmp_path / "rows.tsv"
    rows.write_bytes(rows_file.read_bytes())
    run = tmp_path / "run"
    assert main([*finetune_words(model, rows, run, epochs=1), "--quiet"]) == 0
    before = weights(run)
    shutil.rmtree(run / "model")
    model, rows = model.rename(tmp_path / "moved"), rows.rename(tmp_path / "moved.tsv")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 2
    capsys.readouterr()
    moved = ["finetune", "--resume", "--out", str(run), "--model", str(model), "--train", str(rows), "--quiet"]
    for flags, what in ((["--dev", "0.3"], "dev"), (["--dev", str(rows)], "dev"), (["--model", "minilm"], "model")):
        assert main([*moved, *flags]) == 4
        assert f"the {what} data differs from what the run started with" in capsys.readouterr().err
    assert main(moved) == 0
    assert weights(run) == before
    assert main([*moved, "--model", "minilm"]) == 2  # a finished run reads nothing, so nothing can be compared
    shutil.rmtree(run / "model")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 0  # it knows where the data is now


def test_an_extended_run_remembers_the_best_step_so_far(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = count(10, -1)  # each evaluation scores lower than the one before
    monkeypatch.setattr(TaskTrainable, "score", lambda *_: [next(scores)])
    run = tmp_path / "run"
    words = finetune_words(tiny, rows_file, run, epochs=2, eval_every=10)
    assert main([*words, "--quiet", "--keep-checkpoints"]) == 0
    metadata, before = read_metadata(run / "model"), weights(run)
    assert (metadata["best_step"], metadata["steps"]) == (10, 27)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"step-000010", "step-000027"}
    assert main(["finetune", "--resume", "--out", str(run), "--quiet", "--epochs", "3"]) == 0
    extended = read_metadata(run / "model")
    assert (extended["best_step"], extended["steps"]) == (10, 41)
    assert extended["dev"] == metadata["dev"]
    assert weights(run) == before


def test_a_start_that_was_killed_can_be_resumed(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    """config.toml makes the folder a run; it holds the settings and the hashes of the data."""
    run = tmp_path / "run"
    assert main([*finetune_words(tiny, rows_file, run, epochs=0.5), "--quiet"]) == 0
    before = weights(run)
    for path in run.iterdir():
        if path.name != "config.toml":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 0
    assert weights(run) == before


def test_a_run_records_what_was_left_open_and_a_resumed_run_reads_it(
    tiny: Path, rows_file: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert main([*finetune_words(tiny, rows_file, run, epochs=1), "--quiet"]) == 0
    decided = {'metric = "accuracy"': 'metric = "f1"', "eval_every = 14": "eval_every = 5"}
    decided |= {"max_length = 512": "max_length = 9", "truncate = false": "truncate = true"}
    edit_settings(run, decided)
    config = (run / "config.toml").read_text(encoding="utf-8")
    shutil.rmtree(run)
    run.mkdir()
    (run / "config.toml").write_text(config, encoding="utf-8")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 0
    metadata = read_metadata(run / "model")
    assert metadata["metric"] == "f1"
    assert metadata["windows"] == {"max_length": 9, "stride": None, "truncate": True}
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in log if "dev_f1" in line] == [5, 10, 14]
    edit_settings(run, {})
    assert (run / "config.toml").read_text(encoding="utf-8") == config


def test_a_run_without_recorded_decisions_is_resumed_and_records_them(
    tiny: Path, rows_file: Path, tmp_path: Path
) -> None:
    """Earlier versions wrote such runs."""
    run = tmp_path / "run"
    assert main([*finetune_words(tiny, rows_file, run, epochs=0.5), "--quiet"]) == 0
    before, config = weights(run), (run / "config.toml").read_text(encoding="utf-8")
    shutil.rmtree(run / "model")
    decided = ("metric", "learning_rate", "eval_every", "max_length", "truncate", "settings_sha256")
    lines = [line for line in config.splitlines(keepends=True) if not line.startswith(decided)]
    assert len(lines) == config.count("\n") - len(decided)
    (run / "config.toml").write_text("".join(lines), encoding="utf-8")
    assert main(["finetune", "--resume", "--out", str(run), "--quiet"]) == 0
    assert weights(run) == before
    assert (run / "config.toml").read_text(encoding="utf-8") == config


def test_a_setting_left_open_in_python_keeps_the_decision_of_the_run(
    tiny: Path, rows_file: Path, tmp_path: Path
) -> None:
    settings = FinetuneSettings(
        task="classify", model=str(tiny), train=rows_file, out=tmp_path / "run", epochs=0.5, threads=1, metric=None
    )
    assert finetune(settings, Listener()) == tmp_path / "run/model"
    shutil.rmtree(tmp_path / "run/model")
    assert finetune(settings.model_copy(update={"resume": True}), Listener()) == tmp_path / "run/model"


def test_parallel_files_of_tags_may_move_but_not_change(
    tiny: Path, tagged_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = [block.split("\n") for block in tagged_file.read_text("utf-8").split("\n\n")[1:31]]
    columns = [[" ".join(line.split()[index] for line in lines) + "\n" for lines in sentences] for index in (0, 1)]
    words, tags, dev, dev_tags = (tmp_path / name for name in ("seq.in", "seq.out", "dev.in", "dev.out"))
    for path, lines in zip((words, tags, dev, dev_tags), [*columns, *columns], strict=True):
        path.write_text("".join(lines), encoding="utf-8")
    run = tmp_path / "run"
    flags = finetune_words(tiny, words, run, "tag", tags=tags, dev=dev, dev_tags=dev_tags, epochs=1)
    assert main([*flags, "--quiet"]) == 0
    before = weights(run)
    evaluate = ["evaluate", str(run / "model"), str(dev), "--tags", str(dev_tags)]
    capsys.readouterr()
    assert main([*evaluate, "--worst", "0"]) == 0
    assert capsys.readouterr().out.startswith("30 rows\n")
    assert main(["predict", str(run / "model"), str(dev), "--quiet"]) == 0
    assert capsys.readouterr().out.count("\n") == 30
    shutil.rmtree(run / "model")
    resume = ["finetune", "--resume", "--out", str(run), "--quiet"]
    moved = dev_tags.rename(tmp_path / "moved.out")
    assert main(resume) == 2
    assert f"{dev_tags}: does not exist; set --dev-tags to its new location" in capsys.readouterr().err
    assert main([*resume, "--dev-tags", str(moved)]) == 0
    assert weights(run) == before
    shutil.rmtree(run / "model")
    tags.write_text("".join(columns[1]).replace("I-LOC", "O"), encoding="utf-8")
    assert main(resume) == 4
    assert "the tags data differs from what the run started with" in capsys.readouterr().err


def test_a_resumed_run_takes_quiet_from_its_own_command(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The fixture was trained with --quiet."""
    for flags, is_quiet in (([], False), (["--quiet"], True)):
        assert main(["finetune", "--resume", "--out", str(finished), *flags]) == 0
        assert bool(capsys.readouterr().err) != is_quiet


def test_a_run_of_a_newer_format_is_refused(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    config = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(config.replace("format = 1", "format = 9"), encoding="utf-8")
    assert main(["finetune", "--resume", "--out", str(run)]) == 4
    said = capsys.readouterr().err
    assert "config.toml: has format 9, but this version of bertmill supports format 1" in said
    assert said.count("\n") == 1


def test_a_run_of_another_command_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--resume", "--out", str(finished), "--corpus", str(finished)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
