"""A training that is stopped anywhere and resumed goes through the same bits as one that is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertmill.cli.main import main

PROGRAM = Path(__file__).with_name("killed_training.py")
STEPS = 60


def flags_of(corpus: Path, out: Path, *more: str) -> list[str]:
    flags = {
        "--corpus": corpus,
        "--out": out,
        "--size": "tiny",
        "--steps": STEPS,
        "--length": "32:0.5,48:0.5",
        "--batch-size": 8,
        "--heldout": corpus.with_name("heldout.txt"),
        "--log-every": 7,
        "--eval-every": 25,
        "--save-every": 10,
        "--threads": 1,
    }
    return ["pretrain", "--resume", *(str(word) for pair in flags.items() for word in pair), *more]


def outcome(run: Path) -> dict[str, Any]:
    """Everything that must be the same: files to the byte, the log but for its times."""
    files = [*sorted((run / "checkpoints").glob("step-*/*.safetensors"))[-2:], run / "model/model.safetensors"]
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in log:
        line.pop("seconds", None)
    return {"log": log, **{str(path.relative_to(run)): path.read_bytes() for path in files}}


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    killed("random:0:0", corpus, out)
    result = outcome(out)
    assert [line["step"] for line in result["log"] if "loss" in line] == [*range(7, STEPS, 7), STEPS]
    return result


def killed(mode: str, corpus: Path, out: Path, *more: str) -> int:
    command = [sys.executable, str(PROGRAM), mode, *flags_of(corpus, out, *more)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize(
    "mode",
    [
        "random:4:1",
        "saving:7",
        "SIGTERM",
        "SIGINT",
        pytest.param("random:20:2", marks=pytest.mark.slow),
        pytest.param("saving:1", marks=pytest.mark.slow),
    ],
)
def test_interrupted_equals_uninterrupted(
    mode: str, corpus: Path, uninterrupted: dict[str, Any], tmp_path: Path
) -> None:
    assert killed(mode, corpus, tmp_path / "run") > 0
    assert outcome(tmp_path / "run") == uninterrupted


def test_workers_do_not_change_what_is_learnt(corpus: Path, uninterrupted: dict[str, Any], tmp_path: Path) -> None:
    flags = [*flags_of(corpus, tmp_path / "run"), "--workers", "4", "--quiet"]
    assert main(flags) == 0
    assert outcome(tmp_path / "run") == uninterrupted


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", [[], ["--dropout", "0", "--threads", "2"]])
def test_a_compiled_training_that_was_interrupted_equals_one_that_was_not(
    flags: list[str], corpus: Path, tmp_path: Path
) -> None:
    killed("random:0:0", corpus, tmp_path / "whole", "--compile", *flags)
    killed("SIGTERM", corpus, tmp_path / "broken", "--compile", *flags)
    assert outcome(tmp_path / "whole") == outcome(tmp_path / "broken")
