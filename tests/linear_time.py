"""Whether a function takes time in proportion to its text, told on a machine that does other things as well."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TIMES_AS_LONG = 8
LIMIT = 24  # 8 if time is linear, 64 if it is quadratic; caches are fuller with the whole
MAX_TRIES = 4  # noise may spoil some


def assert_linear_time(run: Callable[[str], object], text: str) -> None:
    """`run` does not take much more than eight times as long for all of `text` as for an eighth of it."""
    part = text[: len(text) // TIMES_AS_LONG]
    assert any(_seconds(run, text) < LIMIT * _seconds(run, part) for _ in range(MAX_TRIES))


def _seconds(run: Callable[[str], object], text: str) -> float:
    """Processor time, without that of collecting what other tests have left behind."""
    gc.disable()
    try:
        started = time.process_time()
        run(text)
        return time.process_time() - started
    finally:
        gc.enable()
