"""How far a long command is: MB of text, MB/s and time left, on standard error.

A bar on a terminal; elsewhere a plain line now and then, so that a log stays readable; nothing with --quiet. The share
that is done is that of the bytes on disk, which are known beforehand also of compressed files; MB are those of text.
Nothing here starts a thread: processes that have one cannot fork their workers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TaskProgressColumn, TextColumn

from bertmill.cli.streams import say

if TYPE_CHECKING:
    from bertmill.batching.windows import Windows
    from bertmill.rows.bad_rows import RowCounts

ItemT = TypeVar("ItemT")

BAR_INTERVAL_S = 0.1
LINE_INTERVAL_S = 10.0


def make_bar(*columns: ProgressColumn, quiet: bool) -> Progress | None:
    """A bar behind `columns` on a terminal, with the `state` of its task behind it; None elsewhere."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        return None
    columns = (*columns, BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[state]}"))
    return Progress(*columns, console=console, auto_refresh=False, transient=True)


class ProgressLine:
    """Shows the progress of reading files of `total_bytes` on disk (None: not known, as of a pipe)."""

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
        """`bytes_read` so far of the files on disk; `text_bytes` more of text are done."""
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
    """What the user should know about the rows that were read."""
    for remark in filter(None, (*counts.remarks(), windows.remark)):
        say(remark)


def counting(items: Iterable[ItemT], what: str) -> Iterator[ItemT]:
    """The same items; how many have passed is shown now and then."""
    started = shown = time.monotonic()
    is_terminal = sys.stderr.isatty()
    is_line_open = False
    try:
        for count, item in enumerate(items, start=1):
            yield item
            now = time.monotonic()
            if now - shown >= (BAR_INTERVAL_S if is_terminal else LINE_INTERVAL_S):
                shown, is_line_open = now, is_terminal
                state = f"{count:,} {what}, {count / (now - started):,.0f} a second"
                say(state, end="\r" if is_terminal else "\n")
    finally:
        if is_line_open:
            say("")


def time_left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} left"
