"""The schedule of a training run: its learning rate, its progress, and when it is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.training.schedule import MAX_WARMUP_STEPS, Schedule, steps_of_epochs


def test_the_rate_rises_over_six_percent_of_the_steps_and_falls_to_zero() -> None:
    schedule = Schedule(1.0, steps=1000)
    rates = [schedule.rate(step, 0.0) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 60)
    assert max(rates) == 1.0
    assert rates.index(1.0) in (59, 60)
    assert rates[-1] == pytest.approx(1 / 940)
    assert schedule.rate(1000, 0.0) == 0


def test_a_long_run_warms_up_for_ten_thousand_steps() -> None:
    schedule = Schedule(1.0, steps=1_000_000)
    assert schedule.rate(MAX_WARMUP_STEPS // 2 - 1, 0.0) == pytest.approx(0.5)
    assert schedule.rate(MAX_WARMUP_STEPS, 0.0) == pytest.approx(1.0)


def test_with_a_time_budget_the_rate_is_zero_when_the_time_is_up() -> None:
    schedule = Schedule(1.0, seconds=100)
    assert schedule.rate(0, 0.0) == 0
    assert schedule.rate(0, 3.0) == pytest.approx(0.5)
    assert schedule.rate(0, 6.0) == pytest.approx(1.0)
    assert schedule.rate(0, 100.0) == 0
    assert not schedule.is_over(5, 98.0, seconds_of_step=1.0)
    assert schedule.is_over(5, 98.0, seconds_of_step=3.0)


def test_progress_of_a_time_budget_starts_with_the_first_step() -> None:
    schedule = Schedule(1.0, seconds=100, start_seconds=20)
    assert [schedule.progress(0, seconds) for seconds in (20.0, 60.0, 100.0, 101.0)] == [0, 0.5, 1, 1]
    assert schedule.rate(0, 20.0) == 0
    assert schedule.is_over(9, 100.5)
    assert Schedule(1.0, seconds=10, start_seconds=20).progress(0, 20.0) == 0
    assert Schedule(1.0, steps=10, start_seconds=20).progress(5, 30.0) == 0.5


@given(st.integers(1, 5000), st.floats(1e-6, 1))
def test_no_rate_is_negative_or_above_the_peak(steps: int, peak: float) -> None:
    schedule = Schedule(peak, steps=steps)
    assert all(0 < schedule.rate(step, 0.0) <= peak * (1 + 1e-12) for step in range(steps))
    assert schedule.is_over(steps, 0.0)


def test_epochs_count_over_all_lengths() -> None:
    assert steps_of_epochs(3.0, [14.0], [1.0]) == 42
    assert steps_of_epochs(2.5, [10.5], [1.0]) == 27
    assert steps_of_epochs(1.1, [50.0], [1.0]) == 55  # 1.1 * 50 exceeds 55 in floating point
    assert steps_of_epochs(1e-9, [50.0], [1.0]) == 1
    steps = steps_of_epochs(1.0, [1600.0, 100.0], [0.1, 0.9])
    assert 0.1 * steps / 1600 + 0.9 * steps / 100 == pytest.approx(1.0, abs=0.01)
