"""Progress of commands that read files."""

from __future__ import annotations

import io
import re
import sys

import pytest

from bertmill.cli import progress
from bertmill.cli.progress import counting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_on_a_terminal_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("bertmill.cli.progress.BAR_INTERVAL_S", 0.0)
    assert list(counting(iter("ab"), "rows")) == ["a", "b"]
    assert re.fullmatch(r"1 rows, [\d,]+ per second\r2 rows, [\d,]+ per second\r\n", sys.stderr.getvalue())  # type: ignore[attr-defined]


def test_nothing_is_shown_for_work_that_is_done_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(counting(range(3), "rows")) == [0, 1, 2]
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
