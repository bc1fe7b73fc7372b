"""Writing to standard streams that may be closed or full."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TextIO


def replace_closed_streams() -> None:
    """Redirect closed standard streams to /dev/null; otherwise, the next files to be opened take their descriptors.

    `sys.stdin` remains None, so that reading it is an error.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (it stays open)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (it stays open)


def say(text: str, end: str = "\n") -> None:
    """Print to standard error, which carries no results: if it is closed or full, the text is dropped."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        forget(sys.stderr)


def is_pipe(stream: TextIO) -> bool:
    """Whether another program reads what is written to the stream."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except OSError:  # it has no file descriptor
        return False


def forget(stream: TextIO) -> None:
    """Redirect an unwritable stream to /dev/null, so that Python does not fail again when flushing it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
