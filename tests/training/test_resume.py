"""A run that is stopped anywhere and resumed is bit-identical to an uninterrupted one."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertmill.cli.main import main

Killed = Callable[..., int]

PROGRAM = Path(__file__).with_name("killed_training.py")
# The runs to interrupt. `saving` has no evaluation, since each kill repeats its steps, and removes its checkpoints at
# the end; the others keep them, so that they can be compared.
TRAININGS: dict[str, dict[str, object]] = {
    "short": {"--steps": 24, "--log-every": 7, "--eval-every": 10, "--save-every": 4},
    "saving": {"--steps": 6, "--log-every": 4, "--save-every": 2},
    "long": {"--steps": 60, "--log-every": 7, "--eval-every": 25, "--save-every": 10},
}


def flags_of(training: str, corpus: Path, out: Path, *more: str) -> list[str]:
    flags = {
        "--corpus": corpus,
        "--out": out,
        "--size": "tiny",
        "--length": "32:0.5,48:0.5",
        "--batch-size": 8,
        "--threads": 1,
        **TRAININGS[training],
    }
    if "--eval-every" in flags:
        flags["--heldout"] = corpus.with_name("heldout.txt")
    keep = () if training == "saving" else ("--keep-checkpoints",)
    return ["pretrain", "--resume", *keep, *(str(word) for pair in flags.items() for word in pair), *more]


def outcome(run: Path) -> dict[str, Any]:
    """Everything that must be the same: the bytes of files, and the log except for times."""
    files = [*sorted((run / "checkpoints").glob("step-*/*.safetensors"))[-2:], run / "model/model.safetensors"]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in log:
        line.pop("seconds", None)
    return {"log": log, **{str(path.relative_to(run)): path.read_bytes() for path in files}}


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    """Executes a run that is killed as `mode` says (killed_training.py), and returns how often it was killed."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        commands, answers = process.stdin, process.stdout

        def execute(mode: str, training: str, corpus: Path, out: Path, *more: str) -> int:
            print(json.dumps([mode, *flags_of(training, corpus, out, *more)]), file=commands, flush=True)
            answer = answers.readline()
            if not answer:
                errors.seek(0)
            assert answer, errors.read()
            return int(answer)

        yield execute
        commands.close()
        answers.close()
        assert process.wait() == 0


@pytest.fixture(scope="module")
def uninterrupted(
    corpus: Path, killed: Killed, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """Returns the outcome of an uninterrupted run, which is executed once."""

    @cache
    def made(training: str) -> dict[str, Any]:
        out = tmp_path_factory.mktemp("uninterrupted") / "run"
        killed("random:0:0", training, corpus, out)
        result = outcome(out)
        steps, every = (int(str(TRAININGS[training][flag])) for flag in ("--steps", "--log-every"))
        assert [line["step"] for line in result["log"] if "loss" in line] == [*range(every, steps, every), steps]
        assert any(name.endswith("optimizer.safetensors") for name in result) == (training != "saving")
        return result

    return made


@pytest.mark.parametrize(
    ("mode", "training"),
    [
        ("random:4:1:0.2", "short"),
        ("saving:1", "saving"),
        ("SIGTERM", "short"),
        ("SIGINT", "short"),
        *(
            pytest.param(mode, "long", marks=pytest.mark.slow)
            for mode in ("random:4:1:0.5", "random:20:2:0.5", "saving:7", "saving:1", "SIGTERM", "SIGINT")
        ),
    ],
)
def test_an_interrupted_run_matches_an_uninterrupted_one(
    mode: str,
    training: str,
    corpus: Path,
    killed: Killed,
    uninterrupted: Callable[[str], dict[str, Any]],
    tmp_path: Path,
) -> None:
    assert killed(mode, training, corpus, tmp_path / "run") > 0
    assert outcome(tmp_path / "run") == uninterrupted(training)


@pytest.mark.parametrize("training", ["short", pytest.param("long", marks=pytest.mark.slow)])
def test_workers_do_not_change_what_is_learned(
    training: str, corpus: Path, uninterrupted: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    flags = [*flags_of(training, corpus, tmp_path / "run"), "--workers", "4", "--quiet"]
    assert main(flags) == 0
    assert outcome(tmp_path / "run") == uninterrupted(training)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", [[], ["--dropout", "0", "--threads", "2"]])
def test_an_interrupted_compiled_run_matches_an_uninterrupted_one(
    flags: list[str], corpus: Path, killed: Killed, tmp_path: Path
) -> None:
    killed("random:0:0", "long", corpus, tmp_path / "whole", "--compile", *flags)
    killed("SIGTERM", "long", corpus, tmp_path / "broken", "--compile", *flags)
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "broken")
