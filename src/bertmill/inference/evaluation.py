"""Evaluation of a fine-tuned model on labeled rows: metrics with intervals, a baseline, classes and errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertmill.inference.runner import Progress, ignore_progress, scores_of, stream_outputs
from bertmill.randomness import Permutation
from bertmill.rows.row import Row
from bertmill.tasks.base import Answer, AnyTask, Array, Example, Scores
from bertmill.tasks.metrics import ClassReport, intervals
from bertmill.text.printable import one_line

NUM_ERRORS = 20  # the worst ones, to keep
NUM_BINS = 10  # of confidence
MAX_ANSWER = 60  # characters of a baseline

Metrics = Mapping[str, float]
Bounds = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class WrongPrediction:
    """A wrong prediction, its row and the expected results."""

    row: Row
    answer: Answer
    shown: str  # the prediction for display, on one line
    expected: tuple[str, ...]


@dataclass(frozen=True)
class ConfidenceBin:
    """Decisions of similar confidence. In a calibrated model, accuracy matches confidence."""

    confidence: float  # mean over the decisions
    accuracy: float
    count: int


@dataclass(frozen=True)
class Baseline:
    """The best constant prediction, which ignores the input, and its metrics."""

    answer: str
    metrics: dict[str, float]

    @property
    def shown(self) -> str:
        """The prediction for display; names of classes may be long."""
        return one_line(self.answer, MAX_ANSWER)


@dataclass(frozen=True)
class Evaluation:
    """The results of a model on labeled rows."""

    num_rows: int
    metric: str  # the one that selected the checkpoint
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    baseline: Baseline
    warning: str  # if the model may have learned nothing; otherwise empty
    classes: ClassReport
    reliability: list[ConfidenceBin]  # empty if the task gives no probabilities
    errors: list[WrongPrediction]  # the worst first

    @property
    def summary(self) -> str:
        """The selecting metric next to the baseline, on one line."""
        return f"{_compared(self.metric, self.metrics, self.intervals, self.baseline)} ({self.baseline.shown})"

    def to_json(self) -> dict[str, Any]:
        """The evaluation as `bertmill evaluate --json` prints it."""
        return {
            "rows": self.num_rows,
            "metric": self.metric,
            "metrics": {
                name: {"value": value, "low": self.intervals[name][0], "high": self.intervals[name][1]}
                for name, value in self.metrics.items()
            },
            "baseline": asdict(self.baseline),
            "warning": self.warning,
            "classes": [vars(each) for each in self.classes.figures],
            "confusion": self.classes.confusion,
            "reliability": [vars(each) for each in self.reliability],
            "worst": [
                {
                    "place": error.row.place,
                    "id": error.row.id,
                    **error.row.fields(),
                    "expected": list(error.expected),
                    "answer": error.answer,
                    "shown": error.shown,
                }
                for error in self.errors
            ],
        }


def evaluate(
    task: AnyTask,
    model: nn.Module,
    examples: Iterable[Example],
    device: torch.device,
    num_errors: int,
    metric: str,
    *,
    ran: Progress = ignore_progress,
) -> Evaluation:
    """Compare predictions for labeled examples with the labels; keep the `num_errors` worst errors.

    `metric` decides whether the model beats the baseline.
    """
    outputs = list(stream_outputs(task, model, examples, device, ran))
    return evaluate_outputs(task, outputs, num_errors, metric)


def evaluate_outputs(
    task: AnyTask,
    outputs: Sequence[tuple[Example, Array]],
    num_errors: int,
    metric: str,
    *,
    is_tuned_on_examples: bool = False,
) -> Evaluation:
    """Compare the outputs for labeled examples with the labels: see `evaluate`.

    If the task was tuned on these examples, each half of them is judged by the task tuned on the other half.
    """
    scores = scores_of(task, outputs)
    mistakes = [task.mistake(*each, score) for each, score in zip(outputs, scores, strict=True)]
    ranked = sorted(zip(mistakes, outputs, strict=True), key=lambda each: -each[0][0])
    errors = []
    for (size, expected), (example, output) in ranked[:num_errors]:
        if size:
            (answer,) = task.decode([example], [output])
            errors.append(WrongPrediction(example.row, answer, task.show(answer), expected))
    constant, constant_scores = task.baseline([example for example, _ in outputs], metric)
    baseline = Baseline(constant, task.metrics(constant_scores))
    bounds = intervals(task.metrics, scores)
    metrics = task.metrics(scores)
    is_biased = is_tuned_on_examples and len(outputs) > 1
    judged, judged_bounds = _cross_validated(task, metric, scores) if is_biased else (metrics, bounds)
    return Evaluation(
        num_rows=len(outputs),
        metric=metric,
        metrics=metrics,
        intervals=bounds,
        baseline=baseline,
        warning=_warning(baseline, judged, judged_bounds, metric, task.error_metrics, is_biased=is_biased),
        classes=task.class_report(scores),
        reliability=_reliability(task, outputs),
        errors=errors,
    )


def _warning(
    baseline: Baseline, metrics: Metrics, bounds: Bounds, metric: str, errors: Sequence[str], *, is_biased: bool
) -> str:
    """The metrics that do not beat the baseline beyond their intervals; empty if all of them do."""
    doubtful = []
    for name in (metric, *errors):
        low, high = bounds[name]
        constant = baseline.metrics[name]
        if (high >= constant) if name in errors else (low <= constant):
            doubtful.append(_compared(name, metrics, bounds, baseline))
    if not doubtful:
        return ""
    what = f"the model is not clearly better than the baseline ({baseline.shown}): {'; '.join(doubtful)}"
    how = ", with each half of the rows judged by thresholds tuned on the other half" if is_biased else ""
    return f"{what}{how}."


def _compared(name: str, metrics: Metrics, bounds: Bounds, baseline: Baseline) -> str:
    """A metric with its interval, next to the baseline."""
    low, high = bounds[name]
    value = f"{name.replace('_', ' ')} {metrics[name]:.4f} (95% CI: {low:.4f} … {high:.4f})"
    return f"{value}, baseline {baseline.metrics[name]:.4f}"


def _cross_validated(task: AnyTask, metric: str, scores: Scores) -> tuple[Metrics, Bounds]:
    """The metrics and intervals if each half of the rows is judged by the task tuned on the other half.

    A task tuned on the rows it is judged by can seem to beat the baseline although it learned nothing.
    """
    rows = np.arange(len(scores))
    drawn = Permutation(len(rows), 0, "halves of the rows")(rows)  # rows may alternate between two kinds
    halves = (drawn % 2 == 0, drawn % 2 == 1)
    tasks = [task.tuned(partial(scores.__getitem__, other), metric)[0] for other in reversed(halves)]

    def metrics(sample: NDArray[np.int64]) -> Metrics:
        found: dict[str, float] = defaultdict(float)
        for tuned, half in zip(tasks, halves, strict=True):
            part = sample[half[sample]]
            for name, value in (tuned.metrics(scores[part]) if len(part) else {}).items():
                found[name] += value * len(part) / len(sample)
        return found

    return metrics(rows), intervals(metrics, rows)


def _reliability(task: AnyTask, outputs: Sequence[tuple[Example, Array]]) -> list[ConfidenceBin]:
    """The decisions in bins of equal width by confidence; empty bins are omitted."""
    sums = np.zeros((NUM_BINS, 3))  # confidence, correct decisions, decisions
    for example, output in outputs:
        for confidence, is_right in task.confidences(example, output):
            sums[min(int(confidence * NUM_BINS), NUM_BINS - 1)] += confidence, is_right, 1
    return [
        ConfidenceBin(float(confidence / count), float(num_right / count), int(count))
        for confidence, num_right, count in sums
        if count
    ]
