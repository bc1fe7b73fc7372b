"""Tests for the metrics code that tasks share. The metrics of a task are tested with the task."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.tasks.choose import Choose
from bertmill.tasks.metrics import MAX_CONFUSED_CLASSES, class_metrics, intervals, precision_recall_f1, report_classes


def test_intervals_come_from_resampled_rows_and_are_reproducible() -> None:
    scores = np.array([[True]] * 80 + [[False]] * 20)
    low, high = intervals(Choose().metrics, scores)["accuracy"]
    assert 0.68 < low < 0.76 < 0.84 < high < 0.92  # 0.8 ± 1.96 · 0.04
    assert intervals(Choose().metrics, scores)["accuracy"] == (low, high)


def test_a_metric_missing_from_some_samples_has_an_interval_over_the_others() -> None:
    def metrics(scores: np.ndarray) -> dict[str, float]:
        return {"mean": float(scores.mean()), **({"of_ones": 1.0} if scores.any() else {})}

    found = intervals(metrics, np.array([1.0, 0.0, 0.0]))
    assert found["of_ones"] == (1.0, 1.0)
    assert found["mean"][0] == 0.0


def test_ratios_with_a_zero_denominator_are_zero() -> None:
    assert precision_recall_f1(0, 0, 0) == (0.0, 0.0, 0.0)
    assert precision_recall_f1(1, 2, 4) == (0.5, 0.25, pytest.approx(1 / 3))


def test_there_is_no_confusion_matrix_for_too_many_classes() -> None:
    predicted, expected = np.array([3, 4]), np.array([3, 3])
    assert report_classes(["x"] * 5, predicted, expected).confusion[3][3:] == [1, 1]
    assert report_classes(["x"] * (MAX_CONFUSED_CLASSES + 1), predicted, expected).confusion == []


@given(
    st.integers(2, 5).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), min_size=1))
    )
)
def test_class_metrics_match_scikit_learn(case: tuple[int, list[tuple[int, int]]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    num_classes, answers = case
    predicted, expected = np.array(answers).T
    found = class_metrics(predicted, expected, num_classes)
    average = "binary" if num_classes == 2 else "macro"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["matthews"] == pytest.approx(matthews_corrcoef(expected, predicted))
    assert found["accuracy"] == pytest.approx(accuracy_score(expected, predicted))
    assert found["f1"] == pytest.approx(f1_score(expected, predicted, average=average, zero_division=0.0))
