"""Map a function over units of work in worker processes; results come out in order.

Only a few units per worker are in flight, so memory does not grow with their number. Each worker builds its own state
once, by calling the initializer, and passes it to the function with every unit. A worker exits if its parent dies.

Workers are forked, which is fast, unless the process has threads or has imported torch, which starts some. In that case
they are spawned, and the calling script needs the usual `if __name__ == "__main__":`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from bertmill.errors import ResourceError

UNITS_PER_WORKER = 3  # in flight: one in progress, one waiting, one being returned

ItemT = TypeVar("ItemT")
StateT = TypeVar("StateT")
UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


def cut_into_units(items: Iterable[ItemT], limit: int, size: Callable[[ItemT], int]) -> Iterator[list[ItemT]]:
    """Group items into lists, in order; a list ends with the item that brings its size to `limit`."""
    unit: list[ItemT] = []
    total = 0
    for item in items:
        unit.append(item)
        total += size(item)
        if total >= limit:
            yield unit
            unit, total = [], 0
    if unit:
        yield unit


def map_in_processes(
    function: Callable[[StateT, UnitT], ResultT],
    units: Iterable[UnitT],
    num_workers: int,
    initializer: Callable[[], StateT],
) -> Iterator[ResultT]:
    """Yield `function(state, unit)` for each unit, in order; `state` is what `initializer` returned in that worker.

    Keep the arguments of the initializer small: if a process dies while it receives a large one, starting it hangs.
    """
    context = multiprocessing.get_context("fork" if _may_fork() else "spawn")
    with ProcessPoolExecutor(num_workers, context, initializer=_start_worker, initargs=(initializer,)) as pool:
        waiting: deque[Future[ResultT]] = deque()
        try:
            for unit in units:
                waiting.append(pool.submit(_work, function, unit))
                if len(waiting) >= UNITS_PER_WORKER * num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            remedy = 'call this under `if __name__ == "__main__":`, and use fewer workers if memory is low'
            raise ResourceError("a worker process died", remedy=remedy) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _may_fork() -> bool:
    """Whether forking is safe: a forked process has one thread, and deadlocks on a lock that another thread held."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


_state: Any = None  # of this worker process


def _start_worker(initializer: Callable[[], object]) -> None:
    global _state
    gc.disable()  # the work creates no reference cycles; searching for them takes a tenth of the time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too and stops its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker inherits its parent's handler
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _state = initializer()


def _exit_with_parent() -> None:
    """Exit when the parent exits: otherwise a worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: Callable[[Any, UnitT], ResultT], unit: UnitT) -> ResultT:
    return function(_state, unit)
