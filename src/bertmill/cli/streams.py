"""Standard output and standard error, also where nobody reads them (any more)."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(text: str, end: str = "\n") -> None:
    """Print to standard error. Work goes on where that is closed or full: what is said is no result."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        forget(sys.stderr)


def forget(stream: TextIO) -> None:
    """What is still in its buffer cannot be written; Python would complain once more when it closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
