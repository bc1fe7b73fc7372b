"""Compare the results of two methods on the same rows, with a paired interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.inference.runner import scores_of
from bertmill.tasks.base import AnyTask, Array, Example, Scores
from bertmill.tasks.metrics import intervals

Judged = list[tuple[Example, Array]]  # examples with the outputs of a model that was not trained on them


@dataclass(frozen=True)
class Result:
    """How good a method is on some examples."""

    task: AnyTask  # tuned
    tuning: str  # what was tuned; empty if nothing
    judged: Judged
    scores: Scores

    @classmethod
    def of(cls, task: AnyTask, judged: Judged, metric: str) -> Result:
        """Judge a method by its outputs, with the task tuned on them."""
        scores = scores_of(task, judged)
        tuned, tuning = task.tuned(lambda: scores, metric)
        return cls(tuned, tuning, judged, scores)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics over all examples."""
        return self.task.metrics(self.scores)

    def shown(self, metric: str) -> str:
        """The metric with its interval."""
        low, high = intervals(lambda scores: {metric: self.task.metrics(scores)[metric]}, self.scores)[metric]
        return f"{metric.replace('_', ' ')} {self.metrics[metric]:.4f} (95% CI: {low:.4f} … {high:.4f})"


class Difference(NamedTuple):
    """How much larger a metric of the second result is, with its paired interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.value:+.4f}, 95% CI: {self.low:+.4f} … {self.high:+.4f}"


def difference(first: Result, second: Result, metric: str) -> Difference:
    """Compare two results on the same examples."""

    def differing(rows: NDArray[np.int64]) -> dict[str, float]:
        before, after = (each.task.metrics(each.scores[rows])[metric] for each in (first, second))
        return {metric: after - before}

    rows = np.arange(len(first.scores))
    return Difference(differing(rows)[metric], *intervals(differing, rows)[metric])
