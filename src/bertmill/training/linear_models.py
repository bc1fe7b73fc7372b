"""Regularized linear models on features: logistic regression for classes and label sets, ridge regression for numbers.

A larger strength means less regularization: it is scikit-learn's C, the weight of the sum of the losses against half
the squared norm of the weights. Features with more than MAX_COMPONENTS values are reduced to their principal components
first, and the weights are mapped back. With at most MAX_COMPONENTS rows, that loses nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.tasks.base import TargetKind, Targets

Floats = NDArray[np.floating[Any]]

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
FIRST_STRENGTH = 4  # index in STRENGTHS
MAX_COMPONENTS = 512
MAX_ITERATIONS = 200
_SMALLEST = 1e-12  # probability


@dataclass(frozen=True)
class LinearModel:
    """weight · x + bias."""

    weight: Floats  # [outputs, F]
    bias: Floats  # [outputs]

    def outputs(self, rows: Floats) -> Floats:
        """The outputs for rows of features [n, outputs]."""
        return rows @ self.weight.T + self.bias


@dataclass(frozen=True)
class Components:
    """Rows of features in the space of their principal components."""

    rows: Floats  # [n, components]
    mean: Floats  # [F]
    directions: Floats  # [components, F]
    scale: float  # makes the mean norm of the rows 1

    @classmethod
    def of(cls, features: Floats) -> Components:
        """The components of `features` [n, F]."""
        from sklearn.utils.extmath import randomized_svd

        mean = features.mean(0)
        centered = features - mean
        scale = 1 / max(1e-9, float(np.linalg.norm(features, axis=1).mean()))
        centered *= scale
        num_rows, num_features = features.shape
        if num_features <= min(num_rows, MAX_COMPONENTS):
            return cls(centered, mean, np.eye(num_features, dtype=features.dtype), scale)
        if num_rows <= MAX_COMPONENTS or num_features <= MAX_COMPONENTS:
            directions = np.linalg.svd(centered, full_matrices=False)[2]
        else:
            directions = randomized_svd(centered, MAX_COMPONENTS, n_iter=2, random_state=0)[2]
        return cls(centered @ directions.T, mean, directions, scale)

    def restored(self, model: LinearModel) -> LinearModel:
        """A model of components as the equivalent model of features."""
        weight = self.scale * model.weight @ self.directions
        return LinearModel(weight, model.bias - weight @ self.mean)


def fit(
    kind: TargetKind, rows: Floats, targets: Targets, num_outputs: int, strength: float, weights: Floats | None = None
) -> LinearModel:
    """Fit a model to rows [n, F] and their targets [n] or [n, labels]; `weights` are those of the rows."""
    fitters = {"class": _fit_classes, "labels": _fit_labels, "number": _fit_numbers}
    return fitters[kind](rows, targets, num_outputs, strength, weights)


def _fit_classes(rows: Floats, targets: Targets, num_outputs: int, strength: float, weights: Any) -> LinearModel:
    """Fit one output per class. A class without rows gets a bias below that of every other class."""
    seen = np.unique(targets)
    biases: Floats
    if len(seen) == 1:
        coefficients, biases = np.zeros((1, rows.shape[1]), rows.dtype), np.zeros(1)
    else:
        coefficients, biases = _logistic(rows, targets, strength, weights)
        if len(seen) == 2:  # one difference of logits
            coefficients, biases = np.concatenate([-coefficients, coefficients]) / 2, np.stack([-biases, biases]) / 2
    weight = np.zeros((num_outputs, rows.shape[1]), rows.dtype)
    bias = np.full(num_outputs, biases.min() - np.log(len(rows) + 1))
    weight[seen], bias[seen] = coefficients, biases.reshape(-1)
    return LinearModel(weight, bias)


def _fit_labels(rows: Floats, targets: Targets, num_outputs: int, strength: float, weights: Any) -> LinearModel:
    """One model per label. A label that all rows or no rows have gets a constant."""
    weight, bias = np.zeros((num_outputs, rows.shape[1]), rows.dtype), np.zeros(num_outputs)
    for label, flags in enumerate(targets.T):
        if 0 < flags.sum() < len(flags):
            (weight[label],), (bias[label],) = _logistic(rows, flags, strength, weights)
        else:
            bias[label] = np.log(len(rows) + 1) * (1 if flags.any() else -1)
    return LinearModel(weight, bias)


def _logistic(rows: Floats, targets: Targets, strength: float, weights: Any) -> tuple[Floats, Floats]:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with weak regularization, it may stop before convergence, which is enough
        model = LogisticRegression(C=strength, max_iter=MAX_ITERATIONS).fit(rows, targets, weights)
    return model.coef_, model.intercept_


def _fit_numbers(rows: Floats, targets: Targets, num_outputs: int, strength: float, weights: Any) -> LinearModel:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1 / strength).fit(rows, targets.reshape(-1))
    return LinearModel(model.coef_.reshape(1, -1), np.reshape(model.intercept_, 1))


def losses(kind: TargetKind, outputs: Floats, targets: Targets) -> Floats:
    """The loss of every row: minus the log probability of its target, or the squared error of a number."""
    outputs = np.asarray(outputs, np.float64)
    if kind == "number":
        of_numbers: Floats = np.square(outputs[:, 0] - targets.reshape(-1))
        return of_numbers
    if kind == "labels":
        of_labels: Floats = np.logaddexp(0, np.where(targets > 0, -outputs, outputs)).sum(1)
        return of_labels
    shifted = outputs - outputs.max(1, keepdims=True)
    likely = np.exp(shifted[np.arange(len(shifted)), targets]) / np.exp(shifted).sum(1)
    of_classes: Floats = -np.log(np.maximum(likely, _SMALLEST))
    return of_classes


@dataclass(frozen=True)
class Validated:
    """A strength with the outputs for rows that the model was not fitted to, and their losses."""

    strength: float
    outputs: Floats  # [n, outputs]
    losses: Floats  # [n]

    @property
    def loss(self) -> float:
        """The mean loss."""
        return float(self.losses.mean())


def validate(
    kind: TargetKind,
    rows: Floats,
    targets: Targets,
    num_outputs: int,
    folds: Sequence[NDArray[np.int64]],
    strength: float,
    weights: Any = None,
) -> Validated:
    """Judge the rows of each fold by a model of the rows outside it. The result has the judged rows in order."""
    judged = np.concatenate(list(folds))
    order = np.argsort(judged)

    def outputs_outside(fold: NDArray[np.int64]) -> Floats:
        is_inside = np.full(len(rows), True)
        is_inside[fold] = False
        of_inside = None if weights is None else weights[is_inside]
        return fit(kind, rows[is_inside], targets[is_inside], num_outputs, strength, of_inside).outputs(rows[fold])

    outputs = np.concatenate([outputs_outside(fold) for fold in folds])[order]
    of_rows = losses(kind, outputs, targets[judged[order]])
    if weights is not None:
        of_rows = of_rows * weights[judged[order]] / weights[judged].mean()
    return Validated(strength, outputs, of_rows)


def cross_validate(
    kind: TargetKind,
    rows: Floats,
    targets: Targets,
    num_outputs: int,
    folds: Sequence[NDArray[np.int64]],
    weights: Any = None,
) -> Validated:
    """The strength with the smallest loss on the rows of `folds`: see `validate`.

    Starts at FIRST_STRENGTH and moves in the direction in which the loss falls, until it rises.
    """

    def validated(number: int) -> Validated:
        return validate(kind, rows, targets, num_outputs, folds, STRENGTHS[number], weights)

    first = validated(FIRST_STRENGTH)
    stronger = _best_from(first, range(FIRST_STRENGTH + 1, len(STRENGTHS)), validated)
    return stronger if stronger is not first else _best_from(first, range(FIRST_STRENGTH - 1, -1, -1), validated)


def _best_from(best: Validated, numbers: Sequence[int], validated: Callable[[int], Validated]) -> Validated:
    """The last result before the loss rises."""
    for number in numbers:
        tried = validated(number)
        if tried.loss >= best.loss:
            break
        best = tried
    return best
