"""Writing to standard streams that may be closed or full."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def say(text: str, end: str = "\n") -> None:
    """Print to standard error, which carries no results: if it is closed or full, the text is dropped."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        forget(sys.stderr)


def forget(stream: TextIO) -> None:
    """Redirect an unwritable stream to /dev/null, so that Python does not fail again when flushing it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
