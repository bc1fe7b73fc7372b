"""How good answers are, by scikit-learn and scipy or as they would say; how sure that is, by drawing the rows again.

Figures are between 0 and 1 (correlations between -1 and 1) and larger is better, but for errors of numbers, which are
given as they are. Of two classes, F1 is that of the second; of more, the mean over those that are asked for or given.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.randomness import keyed_generator

RESAMPLES = 500
CONFIDENCE = 0.95
MAX_CONFUSED_CLASSES = 1000  # of which a matrix has a million cells

Numbers = NDArray[np.integer] | NDArray[np.floating] | NDArray[np.bool_]
Booleans = NDArray[np.bool_]
Counts = NDArray[np.int64]


def class_metrics(given: NDArray[np.integer], wanted: NDArray[np.integer], num_classes: int) -> dict[str, float]:
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    # Each kind of error once, weighted by how often it is made: intervals ask many times, maybe about many rows.
    kinds, counts = np.unique(wanted * num_classes + given, return_counts=True)
    answers = np.divmod(kinds, num_classes)  # wanted, given
    average = "binary" if num_classes == 2 else "macro"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where all rows have one class, and get it, Matthews is 0
        matthews = matthews_corrcoef(*answers, sample_weight=counts)
    return {
        "accuracy": float(accuracy_score(*answers, sample_weight=counts)),
        "f1": float(f1_score(*answers, sample_weight=counts, zero_division=0.0, average=average)),
        "matthews": float(matthews),
    }


@dataclass(frozen=True)
class ClassFigures:
    label: str
    precision: float
    recall: float
    f1: float
    rows: int


@dataclass(frozen=True)
class ByClass:
    """How good answers are for each class, and which is taken for which, where that is known."""

    figures: list[ClassFigures] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)  # rows are what is right, columns what was answered


def class_table(labels: Sequence[str], counts: Counts) -> list[ClassFigures]:
    """How good each label is; `counts` [labels, 3] are how often each was right, given and wanted."""
    return [
        ClassFigures(label, *precision_recall_f1(*of_label), int(of_label[2]))
        for label, of_label in zip(labels, counts, strict=True)
    ]


def label_counts(given: Booleans, wanted: Booleans) -> Counts:
    """Of yes or no for each label [rows, labels]: how often each was right, given and wanted [labels, 3]."""
    return np.stack([(given & wanted).sum(0), given.sum(0), wanted.sum(0)], 1)


def class_counts(given: NDArray[np.integer], wanted: NDArray[np.integer], num_classes: int) -> Counts:
    """Of one class for each row: how often each was right, given and wanted [classes, 3]."""
    return np.stack([np.bincount(each, minlength=num_classes) for each in (given[given == wanted], given, wanted)], 1)


def precision_recall_f1(right: float, given: float, wanted: float) -> tuple[float, float, float]:
    return ratio(right, given), ratio(right, wanted), ratio(2 * right, given + wanted)


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def confusion_matrix(given: Numbers, wanted: Numbers, num_classes: int) -> list[list[int]]:
    """How often each class (rows) was answered by each (columns); empty where there are too many for a matrix."""
    if num_classes > MAX_CONFUSED_CLASSES:
        return []
    from sklearn.metrics import confusion_matrix as matrix_of

    matrix: list[list[int]] = matrix_of(wanted, given, labels=range(num_classes)).tolist()
    return matrix


def label_set_metrics(given: Booleans, wanted: Booleans) -> dict[str, float]:
    """Of yes or no for each label [rows, labels]: F1 over all, mean F1 of labels, and how many rows are all right."""
    counts = label_counts(given, wanted)
    return {
        "micro_f1": precision_recall_f1(*counts.sum(0))[2],
        "macro_f1": float(np.mean([precision_recall_f1(*of_label)[2] for of_label in counts])),
        "all_right": float((given == wanted).all(axis=1).mean()),
    }


def number_metrics(given: Numbers, wanted: Numbers) -> dict[str, float]:
    from scipy.stats import pearsonr, spearmanr

    pearson = spearman = 0.0  # of one row
    if len(wanted) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant numbers have no correlation: NaN below
            pearson, spearman = pearsonr(given, wanted)[0], spearmanr(given, wanted)[0]
    error = np.asarray(given, np.float64) - wanted
    return {
        "pearson": float(np.nan_to_num(pearson)),
        "spearman": float(np.nan_to_num(spearman)),
        "mean_squared_error": float((error**2).mean()),
        "mean_absolute_error": float(np.abs(error).mean()),
    }


def intervals(
    metrics: Callable[[NDArray[Any]], Mapping[str, float]], judgements: NDArray[Any]
) -> dict[str, tuple[float, float]]:
    """Bootstrap: between which two values each figure lies in 95 % of drawings of as many rows, with replacement."""
    generator = keyed_generator(0, "bootstrap")
    count = len(judgements)
    drawn: dict[str, list[float]] = defaultdict(list)
    for _ in range(RESAMPLES):
        for name, value in metrics(judgements[generator.integers(0, count, count)]).items():
            drawn[name].append(value)  # a figure of rows of one kind is missing where none of them was drawn
    bounds = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
    return {name: tuple(np.percentile(values, bounds).tolist()) for name, values in drawn.items()}
