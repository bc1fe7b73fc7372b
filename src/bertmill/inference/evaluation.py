"""How good a fine-tuned model is on labelled rows: metrics with intervals, classes, and its most confident errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bertmill.inference.runner import Runner, scores_of, stream_outputs
from bertmill.rows.row import Row
from bertmill.tasks.base import Answer, Example
from bertmill.tasks.metrics import ClassReport, intervals


@dataclass(frozen=True)
class Error:
    """A wrong answer."""

    row: Row
    answer: Answer
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    num_rows: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    classes: ClassReport
    errors: list[Error]  # the most confident first

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "metrics": {
                name: {"value": value, "low": self.intervals[name][0], "high": self.intervals[name][1]}
                for name, value in self.metrics.items()
            },
            "classes": [vars(each) for each in self.classes.figures],
            "confusion": self.classes.confusion,
            "worst": [
                {
                    "place": error.row.place,
                    "id": error.row.id,
                    **error.row.fields(),
                    "expected": list(error.expected),
                    "answer": error.answer,
                }
                for error in self.errors
            ],
        }


def evaluate(runner: Runner, examples: Iterable[Example], num_errors: int) -> Evaluation:
    """Answer labelled examples and compare the answers with the labels."""
    task = runner.task
    outputs = list(stream_outputs(task, runner.model, examples, runner.device))
    scores = scores_of(task, outputs)
    mistakes = [task.mistake(*each, score) for each, score in zip(outputs, scores, strict=True)]
    ranked = sorted(zip(mistakes, outputs, strict=True), key=lambda each: -each[0][0])
    errors = []
    for (confidence, expected), (example, output) in ranked[:num_errors]:
        if confidence:
            (answer,) = task.decode([example], [output])
            errors.append(Error(example.row, answer, expected))
    metrics, classes = task.metrics(scores), task.class_report(scores)
    return Evaluation(len(outputs), metrics, intervals(task.metrics, scores), classes, errors)
