"""How good answers are, by scikit-learn and scipy; and how sure that is, by drawing the rows again.

Figures are between 0 and 1 (correlations between -1 and 1) and larger is better, but for errors of numbers, which are
given as they are. Of two classes, F1 is that of the second; of more, the mean over classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertmill.runtime import keyed_generator

RESAMPLES = 500
CONFIDENCE = 0.95

Numbers = NDArray[np.integer] | NDArray[np.floating] | NDArray[np.bool_]


def accuracy(given: Numbers, wanted: Numbers) -> float:
    return float((given == wanted).mean())


def class_metrics(given: Numbers, wanted: Numbers, num_classes: int) -> dict[str, float]:
    from sklearn.metrics import f1_score, matthews_corrcoef

    if num_classes == 2:
        f1 = f1_score(wanted, given, pos_label=1, average="binary", zero_division=0.0)
    else:
        f1 = f1_score(wanted, given, labels=range(num_classes), average="macro", zero_division=0.0)
    return {"accuracy": accuracy(given, wanted), "f1": float(f1), "matthews": float(matthews_corrcoef(wanted, given))}


@dataclass(frozen=True)
class ClassFigures:
    label: str
    precision: float
    recall: float
    f1: float
    rows: int


def class_table(given: Numbers, wanted: Numbers, labels: Sequence[str]) -> list[ClassFigures]:
    """Of yes or no for each label [rows, labels]: how good each is."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(wanted, given, average=None, zero_division=0.0)
    return [
        ClassFigures(label, float(precision), float(recall), float(f1), int(rows))
        for label, precision, recall, f1, rows in zip(labels, *columns, strict=True)
    ]


def confusion_matrix(given: Numbers, wanted: Numbers, num_classes: int) -> list[list[int]]:
    """How often each class (rows) was answered by each (columns)."""
    matrix = np.zeros((num_classes, num_classes), dtype=np.int64)
    for right, answered in zip(wanted.tolist(), given.tolist(), strict=True):
        matrix[right, answered] += 1
    return matrix.tolist()


def label_set_metrics(given: Numbers, wanted: Numbers) -> dict[str, float]:
    """Of yes or no for each label [rows, labels]: F1 over all, mean F1 of labels, and how many rows are all right."""
    from sklearn.metrics import f1_score

    return {
        "micro_f1": float(f1_score(wanted, given, average="micro", zero_division=0.0)),
        "macro_f1": float(f1_score(wanted, given, average="macro", zero_division=0.0)),
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
    metrics: Callable[[NDArray[np.int64]], Mapping[str, float]], num_rows: int, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Bootstrap: between which two values each figure lies in 95 % of drawings of as many rows, with replacement.

    `metrics` gives the figures of the rows with the given numbers.
    """
    generator = keyed_generator(seed, "bootstrap")
    drawn = [metrics(generator.integers(0, num_rows, num_rows)) for _ in range(RESAMPLES)]
    bounds = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
    return {name: tuple(np.percentile([each[name] for each in drawn], bounds).tolist()) for name in drawn[0]}
