"""Linear models: components, fits, losses, and the choice of a strength."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from bertmill.training import linear_models
from bertmill.training.linear_models import STRENGTHS, Components, cross_validate, fit, losses

RNG = np.random.default_rng(0)


def rows_of_classes(num_rows: int, num_features: int, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    targets = np.arange(num_rows) % num_classes
    centers = RNG.normal(size=(num_classes, num_features))
    return (centers[targets] + RNG.normal(size=(num_rows, num_features))).astype(np.float32), targets


def folds(num_rows: int, num_folds: int) -> list[np.ndarray]:
    return [np.arange(start, num_rows, num_folds) for start in range(num_folds)]


@pytest.mark.parametrize("num_classes", [2, 5])
def test_a_fit_of_components_predicts_like_scikit_learn_on_the_features(num_classes: int) -> None:
    x, y = rows_of_classes(60, 90, num_classes)
    found = Components.of(x)
    model = found.restored(fit("class", found.rows, y, num_classes, 3.0))
    scaled = (x - found.mean) * found.scale
    theirs = LogisticRegression(C=3.0, max_iter=1000).fit(scaled, y).predict_proba(scaled)
    assert np.exp(-losses("class", model.outputs(x), y)) == pytest.approx(theirs[np.arange(60), y], abs=2e-3)


def test_a_fit_of_numbers_is_ridge_regression() -> None:
    x = RNG.normal(size=(40, 6)).astype(np.float32)
    y = x @ np.arange(6) + 7
    found = Components.of(x)
    model = found.restored(fit("number", found.rows, y, 1, 10.0))
    theirs = Ridge(alpha=0.1).fit(x * found.scale, y).predict(x * found.scale)
    assert model.outputs(x)[:, 0] == pytest.approx(theirs, abs=1e-2)


def test_many_features_are_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_models, "MAX_COMPONENTS", 8)
    x, y = rows_of_classes(60, 90, 3)
    found = Components.of(x)
    assert found.rows.shape == (60, 8)
    model = found.restored(fit("class", found.rows, y, 3, 10.0))
    assert (model.outputs(x).argmax(1) == y).mean() > 0.9


def test_classes_and_labels_that_no_row_or_every_row_has_get_finite_constants() -> None:
    x, y = rows_of_classes(30, 5, 3)
    model = fit("class", x, y, 5, 10.0)  # classes 3 and 4 have no rows
    assert set(model.outputs(x).argmax(1)) <= {0, 1, 2}
    assert np.isfinite(losses("class", model.outputs(x), np.full(30, 4))).all()
    flags = np.stack([y == 0, np.ones(30), np.zeros(30)], 1)
    outputs = fit("labels", x, flags, 3, 10.0).outputs(x)
    assert (outputs[:, 1] > 0).all()
    assert (outputs[:, 2] < 0).all()
    one_class = fit("class", x, np.zeros(30, int), 2, 10.0)
    assert (one_class.outputs(x).argmax(1) == 0).all()


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=8), st.integers(0, 2))
def test_losses_are_those_of_the_definitions(outputs: list[list[float]], target: int) -> None:
    rows = np.array(outputs)
    likely = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    expected = -np.log(np.maximum(likely[:, target], 1e-12))
    assert losses("class", rows, np.full(len(rows), target)) == pytest.approx(expected, abs=1e-6)
    flags = np.eye(3)[[target] * len(rows)]
    each = np.log1p(np.exp(np.where(flags > 0, -rows, rows))).sum(1)
    assert losses("labels", rows, flags) == pytest.approx(each)
    assert losses("number", rows[:, :1], np.full(len(rows), 2.0)) == pytest.approx((rows[:, 0] - 2) ** 2)


def test_cross_validation_finds_the_strength_with_the_smallest_loss() -> None:
    x, y = rows_of_classes(90, 20, 3)
    x *= 0.1
    found = cross_validate("class", x, y, 3, folds(90, 3))
    tried = {}
    for strength in STRENGTHS:
        outputs = np.zeros((90, 3))
        for fold in folds(90, 3):
            inside = np.setdiff1d(np.arange(90), fold)
            outputs[fold] = fit("class", x[inside], y[inside], 3, strength).outputs(x[fold])
        tried[strength] = losses("class", outputs, y).mean()
    assert found.strength == min(tried, key=tried.__getitem__)
    assert found.loss == pytest.approx(tried[found.strength])
    assert found.outputs.shape == (90, 3)
