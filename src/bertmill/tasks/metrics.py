"""Metrics that match scikit-learn and scipy, with bootstrap intervals.

Metrics are between 0 and 1, correlations between -1 and 1. Larger is better, except for the errors of regress. With two
classes, F1 is that of the second class. With more, it is the mean over the classes that are expected or predicted.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.randomness import keyed_generator

RESAMPLES = 500
CONFIDENCE = 0.95
MAX_CONFUSED_CLASSES = 1000  # a confusion matrix has at most a million cells

Numbers = NDArray[np.integer] | NDArray[np.floating] | NDArray[np.bool_]
Booleans = NDArray[np.bool_]
Counts = NDArray[np.int64]


def class_metrics(predicted: NDArray[np.integer], expected: NDArray[np.integer], num_classes: int) -> dict[str, float]:
    """Return accuracy, F1 and the Matthews correlation, as scikit-learn defines them.

    They are computed from counts, because intervals call this many times.
    """
    groups = (predicted[predicted == expected], predicted, expected)
    right, given, wanted = (np.bincount(each, minlength=num_classes).astype(np.float64) for each in groups)
    f1 = 2 * right / np.maximum(given + wanted, 1)
    occurs = given + wanted > 0
    count = len(expected)
    # The covariance of the one-hot vectors of predictions and labels, divided by their deviations (Gorodkin, 2004).
    deviation = (count**2 - given @ given) * (count**2 - wanted @ wanted)
    return {
        "accuracy": float(right.sum() / count),
        "f1": float(f1[1] if num_classes == 2 else f1[occurs].mean()),
        "matthews": float((right.sum() * count - given @ wanted) / np.sqrt(deviation)) if deviation else 0.0,
    }


@dataclass(frozen=True)
class ClassFigures:
    """Precision, recall and F1 of one class. `rows` is how often it is expected (for tag: in spans or words)."""

    label: str
    precision: float
    recall: float
    f1: float
    rows: int


class ConfusedPair(NamedTuple):
    """How many rows of one class were predicted as another; classes are indices."""

    expected: int
    predicted: int
    rows: int


@dataclass(frozen=True)
class ClassReport:
    """The metrics of each class, and the confusion matrix, which may be empty."""

    figures: list[ClassFigures] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)  # rows: expected, columns: predicted


def report_classes(labels: Sequence[str], predicted: NDArray[np.integer], expected: NDArray[np.integer]) -> ClassReport:
    """Return the report for one class per row. The matrix is empty if there are too many classes."""
    right = predicted[predicted == expected]
    counts = np.stack([np.bincount(each, minlength=len(labels)) for each in (right, predicted, expected)], 1)
    if len(labels) > MAX_CONFUSED_CLASSES:
        return ClassReport(class_table(labels, counts))
    from sklearn.metrics import confusion_matrix

    matrix = confusion_matrix(expected, predicted, labels=range(len(labels))).tolist()
    return ClassReport(class_table(labels, counts), matrix)


def confused_pairs(confusion: Sequence[Sequence[int]]) -> list[ConfusedPair]:
    """Return the cells off the diagonal of a confusion matrix, the largest first, without zeros."""
    pairs = [
        ConfusedPair(expected, predicted, rows)
        for expected, row in enumerate(confusion)
        for predicted, rows in enumerate(row)
        if rows and expected != predicted
    ]
    return sorted(pairs, key=lambda pair: -pair.rows)


def report_label_sets(labels: Sequence[str], predicted: Booleans, expected: Booleans) -> ClassReport:
    """Return the report for a flag per row and label [rows, labels]."""
    return ClassReport(class_table(labels, label_counts(predicted, expected)))


def class_table(labels: Sequence[str], counts: Counts) -> list[ClassFigures]:
    """Return the metrics of each label from its correct, predicted and expected `counts` [labels, 3]."""
    return [
        ClassFigures(label, *precision_recall_f1(*of_label), int(of_label[2]))
        for label, of_label in zip(labels, counts, strict=True)
    ]


def label_counts(predicted: Booleans, expected: Booleans) -> Counts:
    """Count how often each label is correct, predicted and expected [labels, 3], from flags [rows, labels]."""
    return np.stack([(predicted & expected).sum(0), predicted.sum(0), expected.sum(0)], 1)


def precision_recall_f1(right: float, predicted: float, expected: float) -> tuple[float, float, float]:
    """Return precision, recall and F1 from the numbers of correct, predicted and expected items."""
    return ratio(right, predicted), ratio(right, expected), ratio(2 * right, predicted + expected)


def ratio(part: float, whole: float) -> float:
    """Return `part / whole`, or 0 if `whole` is 0."""
    return float(part / whole) if whole else 0.0


def label_set_metrics(predicted: Booleans, expected: Booleans) -> dict[str, float]:
    """Return micro F1, macro F1, and the fraction of rows with all labels correct, from flags [rows, labels]."""
    counts = label_counts(predicted, expected)
    return {
        "micro_f1": precision_recall_f1(*counts.sum(0))[2],
        "macro_f1": float(np.mean([precision_recall_f1(*of_label)[2] for of_label in counts])),
        "subset_accuracy": float((predicted == expected).all(axis=1).mean()),
    }


def number_metrics(predicted: Numbers, expected: Numbers) -> dict[str, float]:
    """Return the correlations and the errors of predicted and expected numbers."""
    from scipy.stats import pearsonr, spearmanr

    pearson = spearman = 0.0  # for a single row
    if len(expected) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the correlation of constant numbers is NaN, replaced by 0 below
            pearson, spearman = pearsonr(predicted, expected)[0], spearmanr(predicted, expected)[0]
    error = np.asarray(predicted, np.float64) - expected
    return {
        "pearson": float(np.nan_to_num(pearson)),
        "spearman": float(np.nan_to_num(spearman)),
        "mean_squared_error": float((error**2).mean()),
        "mean_absolute_error": float(np.abs(error).mean()),
    }


def intervals(
    metrics: Callable[[NDArray[Any]], Mapping[str, float]], scores: NDArray[Any]
) -> dict[str, tuple[float, float]]:
    """Return the 95% bootstrap interval of each metric, from resampling the rows with replacement."""
    generator = keyed_generator(0, "bootstrap")
    count = len(scores)
    drawn: dict[str, list[float]] = defaultdict(list)
    for _ in range(RESAMPLES):
        for name, value in metrics(scores[generator.integers(0, count, count)]).items():
            drawn[name].append(value)  # a metric over some rows only is missing if none of these rows is drawn
    bounds = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
    return {name: tuple(np.percentile(values, bounds).tolist()) for name, values in drawn.items()}
