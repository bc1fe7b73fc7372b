"""Progress of commands that read files."""

from __future__ import annotations

import io
import re
import sys

import pytest

from bertmill.cli import progress
from bertmill.cli.progress import RowCounter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> list[str]:
    """Return the lines that a terminal shows after `text`."""
    lines = [""]
    column = 0
    for character in text:
        if character == "\n":
            lines.append("")
        else:
            column = 0 if character == "\r" else column
            lines[-1] = lines[-1] if character == "\r" else lines[-1][:column] + character + lines[-1][column + 1 :]
        column = 0 if character in "\r\n" else column + 1
    return [line.rstrip() for line in lines]


def test_the_count_on_a_terminal_is_erased_before_results_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "BAR_INTERVAL_S", 0.0)
    with RowCounter(quiet=False) as counter:
        counter.add(2048)
        assert re.fullmatch(r"2,048 rows, [\d,]+ per second", *screen(terminal.getvalue()))
        for result in counter.printed(["first", "second"]):
            print(result, file=terminal)
        counter.add(1)
        assert re.fullmatch(r"2,049 rows, [\d,]+ per second", screen(terminal.getvalue())[-1])
    assert screen(terminal.getvalue()) == ["first", "second", ""]
    assert counter.num_printed == 2


def test_a_shorter_count_leaves_nothing_of_a_longer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    moments = iter([0.0, 1.0, 1000.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(moments))
    with RowCounter(quiet=False) as counter:
        counter.add(1000)
        counter.add(1)
        assert screen(terminal.getvalue()) == ["1,001 rows, 1 per second"]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_that_may_not_be_rewritten_is_printed_every_few_seconds(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    moments = iter([100.0, 104.0, 110.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(moments))
    with RowCounter(quiet=False, may_rewrite=not is_terminal) as counter:
        counter.add(40)
        counter.add(60)
    assert stream.getvalue() == "100 rows, 10 per second\n"


def test_nothing_is_shown_for_work_that_is_done_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with RowCounter(quiet=False) as counter:
        counter.add(3)
    assert capsys.readouterr().err == ""


def test_without_a_terminal_lines_are_printed_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([100.0, 104.0, 110.0, 115.0, 120.0, 200.0, 210.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(moments))
    with progress.ProgressLine("corpus", 4_000_000, quiet=False) as line:
        line.update(500_000, 2_000_000)  # too early for a line
        line.update(1_000_000, 2_000_000)
        line.update(1_500_000, 2_000_000)
        line.update(2_000_000, 2_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "corpus: 4 MB of text, 0.4 MB/s, 25% done, 0:30 left",
        "corpus: 8 MB of text, 0.4 MB/s, 50% done, 0:20 left",
    ]
    with progress.ProgressLine("corpus", None, quiet=False) as line:  # a pipe
        line.update(500_000, 5_000_000)
    assert capsys.readouterr().err == "corpus: 5 MB of text, 0.5 MB/s\n"
