"""Evaluation of a fine-tuned model on labeled rows: metrics with intervals, a baseline, classes and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from bertmill.inference.runner import scores_of, stream_outputs
from bertmill.rows.row import Row
from bertmill.tasks.base import Answer, AnyTask, Array, Example
from bertmill.tasks.metrics import ClassReport, intervals

NUM_BINS = 10  # of confidence


@dataclass(frozen=True)
class Error:
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


@dataclass(frozen=True)
class Evaluation:
    """The results of a model on labeled rows."""

    num_rows: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    baseline: Baseline
    classes: ClassReport
    reliability: list[ConfidenceBin]  # empty if the task gives no probabilities
    errors: list[Error]  # the worst first

    def to_json(self) -> dict[str, Any]:
        """The evaluation as `bertmill evaluate --json` prints it."""
        return {
            "rows": self.num_rows,
            "metrics": {
                name: {"value": value, "low": self.intervals[name][0], "high": self.intervals[name][1]}
                for name, value in self.metrics.items()
            },
            "baseline": asdict(self.baseline),
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
    task: AnyTask, model: nn.Module, examples: Iterable[Example], device: torch.device, num_errors: int
) -> Evaluation:
    """Compare predictions for labeled examples with the labels; keep the `num_errors` worst errors."""
    outputs = list(stream_outputs(task, model, examples, device))
    scores = scores_of(task, outputs)
    mistakes = [task.mistake(*each, score) for each, score in zip(outputs, scores, strict=True)]
    ranked = sorted(zip(mistakes, outputs, strict=True), key=lambda each: -each[0][0])
    errors = []
    for (size, expected), (example, output) in ranked[:num_errors]:
        if size:
            (answer,) = task.decode([example], [output])
            errors.append(Error(example.row, answer, task.show(answer), expected))
    constant, constant_scores = task.baseline([example for example, _ in outputs])
    return Evaluation(
        len(outputs),
        task.metrics(scores),
        intervals(task.metrics, scores),
        Baseline(constant, task.metrics(constant_scores)),
        task.class_report(scores),
        _reliability(task, outputs),
        errors,
    )


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
