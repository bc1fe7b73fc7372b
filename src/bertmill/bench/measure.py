"""Timing two sides in turns, peak memory, and the row that a comparison gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


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


def reset_high_water() -> None:
    """The high-water mark of this process's memory is now what is in use; fork hands down that of the parent."""
    Path("/proc/self/clear_refs").write_text("5")


def high_water_kilobytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])
