"""Timing two sides in turns, and the row that a comparison gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One comparison: `ours` against `theirs` in `unit` (more is better), and the ratio that was promised."""

    benchmark: str
    what: str
    unit: str
    ours: float
    theirs: float
    rival: str
    target: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def best_seconds(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The fastest of `rounds` runs of each side; the sides take turns, so that noise hits them alike."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    return best
