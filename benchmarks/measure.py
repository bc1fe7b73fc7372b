"""Time two tools alternately, measure peak memory, and hold the result of a comparison in a row."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

RUNS_PER_TURN = 2  # of a tool in its own process; before the first run, the caches hold data of the other tool


@dataclass(frozen=True)
class Row:
    """One comparison: `ours` against `theirs` in `unit` (more is better), and the target of the ratio, if any."""

    benchmark: str
    what: str
    unit: str
    ours: float
    theirs: float
    rival: str
    target: float | None = None

    @property
    def ratio(self) -> float:
        """How many times better bertmill is."""
        return self.ours / self.theirs


def best_seconds(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the fastest of `rounds` runs of each tool. The tools alternate, so that noise affects both equally."""
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(rounds):
        for name, run in sides.items():
            started = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def best_seconds_in_processes(sides: Mapping[str, Callable[[], Callable[[], object]]], rounds: int) -> dict[str, float]:
    """Like `best_seconds`, but each tool runs in its own process, so that they share neither allocator nor threads.

    Each value of `sides` is called once in its process and returns the function to time.
    """
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
    """After a run to warm up, answer every message on `pipe` with the time of the fastest of RUNS_PER_TURN runs."""
    run = make()
    run()
    pipe.send(None)
    while True:
        pipe.recv()
        pipe.send(min(best_seconds({"run": run}, RUNS_PER_TURN).values()))


def reset_high_water() -> None:
    """Reset the peak memory of this process to what is in use; a forked process inherits the peak of its parent."""
    Path("/proc/self/clear_refs").write_text("5")


def high_water_kilobytes() -> int:
    """Return the peak memory of this process since it started or since `reset_high_water`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0])
