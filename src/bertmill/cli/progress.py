"""Progress of long commands on standard error: MB of text, MB/s and time left.

A terminal shows a bar. Elsewhere, a plain line is printed every few seconds, so that logs stay readable; --quiet prints
nothing. The percentage counts bytes on disk, which are known in advance even for compressed files; MB count text.
Nothing here starts a thread, since a process with threads cannot safely fork its workers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn

from bertmill.cli.streams import say
from bertmill.config.notation import with_flags
from bertmill.text.printable import counted

if TYPE_CHECKING:
    from bertmill.batching.windows import Windows
    from bertmill.rows.bad_rows import RowCounts

ItemT = TypeVar("ItemT")

BAR_INTERVAL_S = 0.1
LINE_INTERVAL_S = 10.0


def make_bar(*columns: ProgressColumn, quiet: bool) -> Progress | None:
    """A progress bar after `columns`, followed by the `state` of its task; None without a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        return None
    columns = (*columns, BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[state]}"))
    return Progress(*columns, console=console, auto_refresh=False, transient=True)


class ProgressLine:
    """Shows the progress of reading files of `total_bytes` on disk; None if unknown, as for a pipe."""

    def __init__(self, what: str, total_bytes: int | None, *, quiet: bool) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._quiet = quiet
        self._text_bytes = 0
        self._started = self._shown = time.monotonic()
        self._bar = make_bar(TextColumn(what), quiet=quiet)
        if self._bar is not None:
            self._task = self._bar.add_task(what, total=total_bytes, state="")

    def __enter__(self) -> ProgressLine:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, bytes_read: int, text_bytes: int) -> None:
        """Report that `bytes_read` bytes on disk have been read in total, and `text_bytes` more bytes of text."""
        self._text_bytes += text_bytes
        now = time.monotonic()
        if self._quiet or now - self._shown < (LINE_INTERVAL_S if self._bar is None else BAR_INTERVAL_S):
            return
        self._shown = now
        state = self._state(bytes_read, now - self._started)
        if self._bar is None:
            say(f"{self._what}: {state}")
        else:
            self._bar.update(self._task, completed=bytes_read, state=state, refresh=True)

    def _state(self, bytes_read: int, seconds: float) -> str:
        megabytes = self._text_bytes / 1e6
        state = f"{megabytes:,.0f} MB of text, {megabytes / seconds:.1f} MB/s"
        if not self._total_bytes or not bytes_read:
            return state
        left = seconds * max(0, self._total_bytes - bytes_read) / bytes_read
        return f"{state}, {bytes_read / self._total_bytes:.0%} done, {time_left(left)}"


def print_row_remarks(counts: RowCounts, windows: Windows) -> None:
    """Print what the user should know about the rows that were read."""
    for remark in filter(None, (*counts.remarks(), windows.remark)):
        say(with_flags(remark))


class RowCounter:
    """Shows how many rows have been run, in a line every few seconds; on a terminal, a line is rewritten.

    A rewritten line is erased before results are printed and at the end. With `may_rewrite=False`, no line is
    rewritten: the reader of a pipe may print to the same terminal at any time.
    """

    def __init__(self, *, quiet: bool, may_rewrite: bool = True) -> None:
        self._quiet = quiet
        self._rewrites = may_rewrite and sys.stderr.isatty()
        self.num_printed = 0
        self._count = 0
        self._width = 0  # of the line on the terminal
        self._started = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._clear()

    def add(self, count: int) -> None:
        """Report that `count` more rows have been run."""
        self._count += count
        now = time.monotonic()
        if self._quiet or now - self._shown < (BAR_INTERVAL_S if self._rewrites else LINE_INTERVAL_S):
            return
        self._shown = now
        state = f"{counted(self._count, 'row')}, {self._count / (now - self._started):,.0f} per second"
        if self._rewrites:
            say(f"\r{state:<{self._width}}", end="")
            self._width = len(state)
        else:
            say(state)

    def printed(self, results: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield results that are printed at once, and count them in `num_printed`."""
        for result in results:
            self._clear()
            self.num_printed += 1
            yield result

    def _clear(self) -> None:
        if self._width:
            say(f"\r{'':<{self._width}}\r", end="")
            self._width = 0


def time_left(seconds: float) -> str:
    """A remaining time as `1:05 left`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"
