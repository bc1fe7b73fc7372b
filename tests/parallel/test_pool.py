"""The worker pool returns results in order, reads ahead a bounded number of units, and reports dead workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bertmill.errors import ResourceError
from bertmill.parallel.pool import UNITS_PER_WORKER, map_in_processes


def state_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


def add(state: tuple[int, int], unit: int) -> tuple[int, int, int]:
    time.sleep(0.01 * (unit % 3))  # so that later units finish earlier
    return state[0] + unit, state[1], os.getpid()


def die(state: tuple[int, int], unit: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_results_come_in_order_and_every_worker_has_its_own_state() -> None:
    results = list(map_in_processes(add, range(20), 2, partial(state_of, 100)))
    assert [total for total, _, _ in results] == list(range(100, 120))
    assert all(initialized == worked != os.getpid() for _, initialized, worked in results)


def test_units_are_read_lazily() -> None:
    num_read = 0

    def endless() -> Iterator[int]:
        nonlocal num_read
        while True:
            num_read += 1
            yield num_read

    results = map_in_processes(add, endless(), 2, partial(state_of, 0))
    assert [next(results)[0] for _ in range(5)] == [1, 2, 3, 4, 5]
    assert num_read <= 5 + 2 * UNITS_PER_WORKER
    results.close()  # type: ignore[attr-defined]  # stops the workers


def test_no_units_give_no_results() -> None:
    assert list(map_in_processes(add, [], 2, partial(state_of, 0))) == []


def test_a_dead_worker_raises_one_clear_error() -> None:
    with pytest.raises(ResourceError, match="a worker process died; call this under"):
        list(map_in_processes(die, range(3), 2, partial(state_of, 0)))


SCRIPT = """
{imports}
from operator import mul
from bertmill.parallel.pool import map_in_processes
assert list(map_in_processes(mul, range(3), 2, partial(int, 2))) == [0, 2, 4]
"""


def run_script(tmp_path: Path, imports: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(imports=f"from functools import partial\n{imports}"))
    return subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)


def test_a_process_without_threads_is_forked_and_needs_no_guard(tmp_path: Path) -> None:
    done = run_script(tmp_path, "import sys")
    assert done.returncode == 0, done.stderr


def test_a_script_with_torch_and_without_the_guard_fails_with_a_message(tmp_path: Path) -> None:
    done = run_script(tmp_path, "import torch")
    assert done.returncode != 0
    assert "a worker process died; call this under" in done.stderr
