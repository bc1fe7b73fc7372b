"""Timing sides that alternate."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks.measure import RUNS_PER_TURN, Row, best_seconds, best_seconds_in_processes


def test_the_ratio_is_ours_over_theirs() -> None:
    assert Row("model", "step", "piece/s", 30.0, 20.0, "a rival").ratio == 1.5


def test_tools_alternate_and_the_best_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 5.0, 10.0, 11.0, 20.0, 23.0, 30.0, 32.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    turns: list[str] = []
    sides = {"ours": lambda: turns.append("ours"), "theirs": lambda: turns.append("theirs")}
    assert best_seconds(sides, rounds=2) == {"ours": 3.0, "theirs": 1.0}
    assert turns == ["ours", "theirs", "ours", "theirs"]


def count_runs(file: Path) -> Callable[[], object]:
    return lambda: file.write_text(file.read_text() + "." if file.exists() else ".")


def test_a_tool_in_its_own_process_warms_up_before_it_is_timed(tmp_path: Path) -> None:
    sides = {name: partial(count_runs, tmp_path / name) for name in ("ours", "theirs")}
    seconds = best_seconds_in_processes(sides, rounds=2)
    assert all(0 < value < 10 for value in seconds.values())
    assert [len((tmp_path / name).read_text()) for name in sides] == [1 + 2 * RUNS_PER_TURN] * 2
