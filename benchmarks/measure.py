"""Timing two sides in turns, peak memory, and the row that a comparison gives."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

RUNS_PER_TURN = 2  # of a side in a process of its own: the first finds the caches full of another's data


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


def best_seconds_in_processes(sides: Mapping[str, Callable[[], Callable[[], object]]], rounds: int) -> dict[str, float]:
    """As `best_seconds`, each side made and run in a process of its own: neither allocator nor threads are shared."""
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        pipes: dict[str, Connection] = {}
        for name, make in sides.items():
            pipes[name], other_end = context.Pipe()
            process = context.Process(target=_answer_with_seconds, args=(make, other_end), daemon=True)
            process.start()
            stack.callback(process.terminate)
            other_end.close()
            pipes[name].recv()  # warmed up
        best = dict.fromkeys(sides, float("inf"))
        for _ in range(rounds):
            for name, pipe in pipes.items():
                pipe.send(None)
                best[name] = min(best[name], pipe.recv())
    return best


def _answer_with_seconds(make: Callable[[], Callable[[], object]], pipe: Connection) -> None:
    """Each message in gives the fastest of a few runs out; the first run, which warms up, is not counted."""
    run = make()
    run()
    pipe.send(None)
    while True:
        pipe.recv()
        pipe.send(min(best_seconds({"run": run}, RUNS_PER_TURN).values()))


def reset_high_water() -> None:
    """The high-water mark of this process's memory is now what is in use; fork hands down that of the parent."""
    Path("/proc/self/clear_refs").write_text("5")


def high_water_kilobytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])
