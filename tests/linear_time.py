"""Whether a function takes time in proportion to its text, told on a machine that does other things as well."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TIMES_AS_LONG = 8
LIMIT = 24  # 8 if time is linear, 64 if it is quadratic; caches are fuller with the whole
ROUNDS = 4


def assert_linear_time(run: Callable[[str], object], text: str) -> None:
    """`run` on all of `text` and on an eighth, in turns, so that noise hits both alike; the best of each counts."""
    part = text[: len(text) // TIMES_AS_LONG]
    times = [(_seconds(run, text), _seconds(run, part)) for _ in range(ROUNDS)]
    assert min(whole for whole, _ in times) < LIMIT * min(of_part for _, of_part in times)


def _seconds(run: Callable[[str], object], text: str) -> float:
    """Processor time, without that of collecting what other tests have left behind."""
    gc.disable()
    try:
        started = time.process_time()
        run(text)
        return time.process_time() - started
    finally:
        gc.enable()
