"""What is said about a run folder: how to resume an unfinished run, and the size of a finished one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, TextIO

import pytest

from bertmill.training.loop import Trainer
from bertmill.training.signals import StopSignal
from tests.conftest import RunCommand
from tests.finetuned import finetune_words


@pytest.fixture
def stopped(bertmill: RunCommand, tiny: Path, rows_file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The message of a run in `my runs/a` that was stopped after its first step."""
    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "exit_code", 143)
        done = bertmill(*finetune_words(tiny, rows_file, Path("my runs/a"), epochs=0.2))
    assert done.returncode == 143
    return str(done.stderr.splitlines()[-1])


def test_a_stopped_run_prints_the_command_that_resumes_it(stopped: str, bertmill: RunCommand) -> None:
    assert stopped == (
        "bertmill: stopped after step 1; a checkpoint was saved; "
        "resume with `bertmill finetune --out 'my runs/a' --resume`"
    )
    done = bertmill(*shlex.split(stopped.split("`")[1])[1:])
    assert (done.returncode, done.stdout) == (0, "my runs/a/model\n")


def test_an_interrupted_start_names_the_command_only_if_there_is_a_run(
    bertmill: RunCommand, tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("bertmill.training.finetune.read_dataset", interrupt)
        done = bertmill(*finetune_words(tiny, rows_file, Path("run")))
    assert (done.returncode, done.stderr) == (130, "bertmill: interrupted\n")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(Trainer, "train", interrupt)
    done = bertmill(*finetune_words(tiny, rows_file, Path("run")), "--quiet")
    said = done.stderr.splitlines()[-1]
    assert said == "bertmill: interrupted; resume with `bertmill finetune --out run --resume`"


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("words", [["predict", "--text", "a"], ["inspect"], ["fill", "a [MASK]"], ["check"]])
@pytest.mark.parametrize("folder", ["my runs/a/model", "my runs/a"])
def test_the_model_of_an_unfinished_run_is_missing_for_a_reason(
    folder: str, words: list[str], bertmill: RunCommand
) -> None:
    done = bertmill(words[0], folder, *words[1:])
    assert (done.returncode, done.stderr) == (
        2,
        "bertmill: my runs/a: is a run that has not finished; resume it to get a model: "
        "`bertmill finetune --out 'my runs/a' --resume`\n",
    )


@pytest.mark.usefixtures("stopped")
def test_an_unfinished_run_with_damaged_settings_is_one_line_too(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "my runs/a/config.toml").write_text("")
    done = bertmill("predict", "my runs/a", "--text", "a")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "`bertmill COMMAND --out 'my runs/a' --resume`" in done.stderr


def test_a_finished_run_states_its_size(bertmill: RunCommand, tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    done = bertmill(*finetune_words(tiny, rows_file, Path("run"), epochs=0.2))
    stated = re.fullmatch(r"run folder: run \((\d+\.\d) MB\)", done.stderr.splitlines()[-1])
    assert stated is not None
    size = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert float(stated[1]) == pytest.approx(size / 1e6, abs=0.06)
    assert size < 2 * (tmp_path / "run/model/model.safetensors").stat().st_size


def test_a_run_folder_that_was_named_automatically_is_shown(
    bertmill: RunCommand, tiny: Path, rows_file: Path, tmp_path: Path
) -> None:
    words = finetune_words(tiny, rows_file, Path("run"), epochs=0.2)
    place = words.index("--out")
    done = bertmill(*words[:place], *words[place + 2 :])
    (model,) = tmp_path.glob("runs/classify-*/model")
    assert done.stdout == f"{model.relative_to(tmp_path)}\n"
    assert f"run folder: {model.parent.relative_to(tmp_path)}" in done.stderr.splitlines()


def test_a_closed_standard_output_does_not_lose_the_report(
    bertmill: RunCommand, tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, file: TextIO | None = None, **more: Any) -> None:
        if file is None:
            raise BrokenPipeError
        real_print(*words, file=file, **more)

    real_print = print
    monkeypatch.setattr("builtins.print", broken)
    assert bertmill(*finetune_words(tiny, rows_file, Path("run"), epochs=0.2)).returncode == 0
    assert (tmp_path / "run/report.html").exists()


def test_a_model_folder_is_printed_without_control_characters(
    bertmill: RunCommand, tiny: Path, rows_file: Path
) -> None:
    done = bertmill(*finetune_words(tiny, rows_file, Path("run\x1b"), epochs=0.2))
    assert done.stdout == "run\\x1b/model\n"
    assert bertmill("report", "run\x1b").stdout == "run\\x1b/report.html\n"
