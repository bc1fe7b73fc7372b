"""Compare the results of two methods on the same rows, with a paired interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.inference.runner import scores_of
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.tasks.base import AnyTask, Array, Example
from bertmill.tasks.metrics import intervals

Judged = list[tuple[Example, Array]]  # examples with the outputs of a model that was not trained on them


@dataclass(frozen=True)
class Candidate:
    """The result of a method."""

    method: str
    task: AnyTask  # tuned
    tuning: str  # what was tuned; empty if nothing
    judged: Judged
    metrics: dict[str, float]
    bounds: dict[str, tuple[float, float]]
    make_model: Callable[[], BertPreTrainedModel]
    facts: dict[str, Any]  # for bertmill.json

    @classmethod
    def of(
        cls,
        method: str,
        task: AnyTask,
        judged: Judged,
        metric: str,
        make_model: Callable[[], BertPreTrainedModel],
        facts: dict[str, Any],
    ) -> Candidate:
        """Judge a method by outputs. The task is tuned on them, as the task of its rival will be."""
        scores = scores_of(task, judged)
        tuned, tuning = task.tuned(lambda: scores, metric)
        bounds = intervals(tuned.metrics, scores)
        return cls(method, tuned, tuning, judged, tuned.metrics(scores), bounds, make_model, facts)

    def shown(self, metric: str) -> str:
        """The metric with its interval."""
        low, high = self.bounds[metric]
        return f"{metric.replace('_', ' ')} {self.metrics[metric]:.4f} (95% CI: {low:.4f} … {high:.4f})"


class Difference(NamedTuple):
    """How much larger a metric of the second candidate is, with its paired interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.value:+.4f}, 95% CI: {self.low:+.4f} … {self.high:+.4f}"


def difference(first: Candidate, second: Candidate, metric: str) -> Difference:
    """Compare two candidates that were judged by the same examples."""
    scores = [scores_of(each.task, each.judged) for each in (first, second)]

    def differing(rows: NDArray[np.int64]) -> dict[str, float]:
        before, after = (
            each.task.metrics(of_rows[rows])[metric] for each, of_rows in zip((first, second), scores, strict=True)
        )
        return {metric: after - before}

    rows = np.arange(len(scores[0]))
    return Difference(differing(rows)[metric], *intervals(differing, rows)[metric])
