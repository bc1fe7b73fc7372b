"""What long commands show while they run."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from bertmill.cli.progress import counting
from bertmill.cli.training import TrainingDisplay
from bertmill.training.progress import Beginning


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_of_a_terminal_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("bertmill.cli.progress.BAR_INTERVAL_S", 0.0)
    assert list(counting(iter("ab"), "rows")) == ["a", "b"]
    assert re.fullmatch(r"1 rows, [\d,]+ a second\r2 rows, [\d,]+ a second\r\n", sys.stderr.getvalue())  # type: ignore[attr-defined]


def test_nothing_is_shown_of_what_is_done_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(counting(range(3), "rows")) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_measuring_on_dev_is_no_part_of_the_speed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    display = TrainingDisplay(quiet=False)
    display.begin(Beginning(20, {"examples": 1000}))  # counted before the training was resumed
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
