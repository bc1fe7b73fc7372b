"""Tests for thresholds of several labels, which are the best ones, and for the best constant prediction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import IntegrityError
from bertmill.tasks import label_sets
from bertmill.tasks.label_sets import (
    DEFAULT_THRESHOLD,
    MIN_ROWS,
    best_constant,
    best_thresholds,
    log_odds,
    recorded_thresholds,
    sigmoid,
)
from bertmill.tasks.metrics import Booleans, label_set_metrics

PROBABILITIES = (0.1, 0.3, 0.3, 0.6, 0.9)  # equal ones must stay together
CUTS = (0.0, 0.2, 0.45, 0.75, 1.0)

Rows = tuple[np.ndarray, Booleans]


@st.composite
def decisions(draw: st.DrawFn) -> Rows:
    """Probabilities and expected flags of two labels; each label is expected at least once."""
    count = draw(st.integers(1, 8))
    cells = st.tuples(st.sampled_from(PROBABILITIES), st.booleans())
    table = np.array(draw(st.lists(st.tuples(cells, cells), min_size=count, max_size=count)))
    expected = table[:, :, 1] > 0
    expected[0] = True
    return table[:, :, 0], expected


def all_thresholds(num_labels: int) -> Iterator[np.ndarray]:
    return (np.array(cuts) for cuts in product(CUTS, repeat=num_labels))


def f1(rows: Rows, thresholds: np.ndarray, name: str) -> float:
    return label_set_metrics(rows[0] > thresholds, rows[1])[name]


@pytest.fixture
def no_label_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_sets, "MIN_ROWS", 1)


@pytest.mark.usefixtures("no_label_is_rare")
@pytest.mark.parametrize("name", ["micro_f1", "macro_f1"])
@given(rows=decisions())
def test_no_other_thresholds_are_better(name: str, rows: Rows) -> None:
    found = best_thresholds(*rows, is_macro=name == "macro_f1")
    best = max(f1(rows, thresholds, name) for thresholds in all_thresholds(2))
    assert f1(rows, found, name) == pytest.approx(best)


@given(rows=decisions())
def test_rare_labels_share_the_best_threshold(rows: Rows) -> None:
    found = best_thresholds(*rows, is_macro=False)
    assert found[0] == found[1]
    assert f1(rows, found, "micro_f1") == pytest.approx(max(f1(rows, np.array([cut] * 2), "micro_f1") for cut in CUTS))


def test_only_labels_with_enough_rows_have_their_own_threshold() -> None:
    expected = np.zeros((40, 3), bool)
    expected[:MIN_ROWS, 0] = expected[: MIN_ROWS - 1, 1] = True
    probabilities = np.where(expected, 0.4, 0.2)
    probabilities[:, 0] /= 2
    found = best_thresholds(probabilities, expected, is_macro=False)
    assert found == pytest.approx([0.15, 0.3, 0.3])


def test_labels_without_any_row_keep_the_default() -> None:
    expected = np.zeros((20, 2), bool)
    assert best_thresholds(np.full((20, 2), 0.4), expected, is_macro=False).tolist() == [DEFAULT_THRESHOLD] * 2


@given(st.floats(-30, 30))
def test_log_odds_are_the_inverse_of_sigmoid(logit: float) -> None:
    assert log_odds(sigmoid(np.array([logit])))[0] == pytest.approx(logit, abs=0.1)
    assert np.isfinite(log_odds(np.array([0.0, 1.0]))).all()


@pytest.mark.parametrize("name", ["micro_f1", "macro_f1", "subset_accuracy"])
@given(table=st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=6))
def test_no_other_constant_is_better(name: str, table: list[tuple[bool, bool, bool]]) -> None:
    expected = np.array(table)

    def metric(labels: Any) -> float:
        return label_set_metrics(np.tile(labels, (len(table), 1)), expected)[name]

    best = max(metric(np.array(labels)) for labels in product([False, True], repeat=3))
    assert metric(best_constant(expected, name)) == pytest.approx(best)


@pytest.mark.parametrize(
    "recorded",
    [[0.5, 0.5], {"a": 0.5}, {"a": 0.5, "c": 0.5}, {"a": 0.5, "b": "x"}, {"a": 0.5, "b": 1.5}, {"a": 0.5, "b": np.nan}],
)
def test_invalid_thresholds_are_an_integrity_error(recorded: Any) -> None:
    with pytest.raises(IntegrityError, match=r"thresholds must have a number from 0 to 1 for each label"):
        recorded_thresholds({"thresholds": recorded}, ("a", "b"))


def test_thresholds_are_those_of_the_labels_in_their_order() -> None:
    assert recorded_thresholds({"thresholds": {"b": 0.25, "a": 1}}, ("a", "b")) == (1.0, 0.25)
    assert recorded_thresholds({}, ("a", "b")) is None
