"""Multi-label decisions: thresholds tuned on the dev rows, and the best constant prediction.

Thresholds maximize micro or macro F1, which is 2 · right / (predicted + expected) over the decisions of all labels, or
of each label. For a fixed F, predicting a label for a row is worth 2 - F if that is right and -F if it is wrong, and
the best threshold of a label is the one with the largest sum. The F1 of these thresholds is the next F; when it stops
growing, it is the maximum (Dinkelbach, 1967). Labels with few dev rows share a threshold, since their own would fit
noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertmill.checkpoint.names import METADATA_FILE
from bertmill.errors import IntegrityError
from bertmill.tasks.metrics import Booleans

DEFAULT_THRESHOLD = 0.5
MIN_ROWS = 10  # with a label, for a threshold of its own
_SMALLEST = 1e-15
THRESHOLDS = "thresholds"  # key in bertmill.json

Floats = NDArray[np.float64]


def sigmoid(logits: NDArray[Any]) -> Floats:
    """Return the probability of each label, in double precision."""
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).sigmoid().numpy()


def log_odds(probabilities: Floats) -> Floats:
    """Return the logits of probabilities; those of 0 and 1 are finite."""
    inside = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    odds: Floats = np.log(inside / (1 - inside))
    return odds


def best_thresholds(probabilities: Floats, expected: Booleans, *, is_macro: bool) -> Floats:
    """Return the threshold of each label from the probabilities and the expected labels of all rows [rows, labels]."""
    counts = expected.sum(0)
    rare = np.flatnonzero(counts < MIN_ROWS)
    groups = [np.array([label]) for label in np.flatnonzero(counts >= MIN_ROWS)]
    groups += [rare] if counts[rare].any() else []
    thresholds = np.full(len(counts), DEFAULT_THRESHOLD)
    rankings = [_Ranking(probabilities[:, labels], expected[:, labels]) for labels in groups]
    for ranking, labels in zip(rankings, groups, strict=True):
        thresholds[labels] = ranking.threshold(_best_f1([ranking] if is_macro else rankings))
    return thresholds


class _Ranking:
    """Decisions with one threshold, the most probable first."""

    def __init__(self, probabilities: Floats, expected: Booleans) -> None:
        order = np.argsort(-probabilities, axis=None, kind="stable")
        ranked = probabilities.ravel()[order]
        self.num_expected = int(expected.sum())
        self._borders = np.concatenate([[1.0], ranked, [0.0]])
        # Decisions with equal probabilities stay together, so not every number of them can be predicted.
        self._sizes = np.flatnonzero(np.concatenate([[True], ranked[:-1] > ranked[1:], [True]]))
        self._right = np.concatenate([[0], np.cumsum(expected.ravel()[order])])[self._sizes]

    def best(self, f1: float) -> tuple[int, int]:
        """Return how many decisions to predict for the largest worth, and how many of them are right."""
        number = int((2 * self._right - f1 * self._sizes).argmax())
        return int(self._sizes[number]), int(self._right[number])

    def threshold(self, f1: float) -> float:
        """Return the threshold with the largest worth, halfway between two probabilities."""
        size, _ = self.best(f1)
        return float(self._borders[size : size + 2].mean())


def _best_f1(rankings: Sequence[_Ranking]) -> float:
    num_expected = sum(each.num_expected for each in rankings)
    f1, following = -1.0, 0.0
    while following > f1:
        f1 = following
        num_predicted, num_right = np.sum([each.best(f1) for each in rankings], axis=0).tolist()
        following = 2 * num_right / (num_predicted + num_expected)
    return f1


def recorded_thresholds(metadata: Mapping[str, Any], labels: Sequence[str]) -> tuple[float, ...] | None:
    """Return the thresholds in bertmill.json; None if it has none. Raises IntegrityError if they are invalid."""
    recorded = metadata.get(THRESHOLDS)
    if recorded is None:
        return None
    is_valid = isinstance(recorded, dict) and recorded.keys() == set(labels)
    if not is_valid or not all(isinstance(each, int | float) and 0 <= each <= 1 for each in recorded.values()):
        what = f"{THRESHOLDS} must have a number from 0 to 1 for each label of the model"
        raise IntegrityError(what, where=METADATA_FILE, remedy="fine-tune again")
    return tuple(float(recorded[label]) for label in labels)


def best_constant(expected: Booleans, metric: str) -> Booleans:
    """Return the labels [labels] whose prediction for every row has the best `metric`."""
    counts = expected.sum(0)
    if metric == "macro_f1":  # a label that is never predicted has an F1 of 0
        return np.full(len(counts), True)
    if metric == "subset_accuracy":
        sets, num_rows = np.unique(expected, axis=0, return_counts=True)
        most_frequent: Booleans = sets[num_rows.argmax()]
        return most_frequent
    order = np.argsort(-counts, kind="stable")  # the best k labels are the k most frequent ones
    num_right = np.concatenate([[0], np.cumsum(counts[order])])
    f1 = 2 * num_right / np.maximum(len(expected) * np.arange(len(order) + 1) + counts.sum(), 1)
    return np.isin(np.arange(len(counts)), order[: int(f1.argmax())])
