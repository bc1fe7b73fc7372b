"""Progress of a training run on the command line."""

from __future__ import annotations

import time

import pytest

from bertmill.cli.training import TrainingDisplay
from bertmill.training.progress import Beginning


def test_speed_excludes_evaluation_on_dev(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = TrainingDisplay(quiet=False)
    display.begin(Beginning(20, {"examples": 1000}))  # counted before the run was resumed
    now += 2
    display.step({"step": 10, "progress": 0.5})
    now += 50
    display.line({"step": 10, "dev_loss": 0.25, "dev_mean_squared_error": 0.5})
    now += 2
    line = {"step": 20, "progress": 1.0, "loss": 0.125, "examples": 1080}
    display.step(line)
    display.line(line)
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == "step 10  dev: loss 0.25, mean squared error 0.5"
    assert "20 examples/s" in printed[1]


def test_control_characters_in_remarks_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    TrainingDisplay(quiet=False).remark("loaded from a\x1b[1m")
    assert capsys.readouterr().err == "loaded from a\\x1b[1m\n"


def test_warnings_and_remarks_show_settings_as_flags(capsys: pytest.CaptureFixture[str]) -> None:
    display = TrainingDisplay(quiet=False)
    display.remark("set `dev_tags`")
    display.warning("increase `learning_rate`")
    assert capsys.readouterr().err == "set --dev-tags\nwarning: increase --learning-rate\n"
