"""How good a fine-tuned model is on labelled rows: metrics with intervals, where it errs, and its surest errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertmill.inference.answering import TaskModel
from bertmill.tasks.base import Answer, Array, Example
from bertmill.tasks.classify import Classify
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import ClassFigures, class_table, confusion_matrix, intervals


@dataclass(frozen=True)
class WorstError:
    row: LabelledRow
    answer: Answer
    error: float


@dataclass(frozen=True)
class Evaluation:
    num_rows: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    classes: list[ClassFigures]  # of classify, else empty
    confusion: list[list[int]]  # of one label per text: rows are what is right, columns what was answered
    worst: list[WorstError]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "metrics": {
                name: {"value": value, "low": self.intervals[name][0], "high": self.intervals[name][1]}
                for name, value in self.metrics.items()
            },
            "classes": [vars(each) for each in self.classes],
            "confusion": self.confusion,
            "worst": [
                {"place": each.row.place, "texts": each.row.texts, "label": each.row.label, "answer": each.answer}
                for each in self.worst
            ],
        }


def evaluate(model: TaskModel, rows: Sequence[LabelledRow], examples: Sequence[Example], num_worst: int) -> Evaluation:
    """Let the model answer for `examples`, which `rows` have become, and compare."""
    outputs = list(model.outputs(examples))
    targets = [example.target for example in examples]
    task = model.task

    def metrics_of(numbers: np.ndarray) -> dict[str, float]:
        return task.metrics([outputs[number] for number in numbers], [targets[number] for number in numbers])

    return Evaluation(
        len(rows),
        task.metrics(outputs, targets),
        intervals(metrics_of, len(rows)),
        *_by_class(model, outputs, targets),
        _worst(model, rows, outputs, targets, num_worst),
    )


def _by_class(
    model: TaskModel, outputs: Sequence[Array], targets: Sequence[Any]
) -> tuple[list[ClassFigures], list[list[int]]]:
    task = model.task
    if not isinstance(task, Classify):
        return [], []
    logits = np.stack(outputs)
    if task.multi_label:
        return class_table(logits > 0, np.array(targets) > 0, task.labels), []
    given, wanted, numbers = logits.argmax(1), np.array(targets), np.arange(len(task.labels))
    table = class_table(given[:, None] == numbers, wanted[:, None] == numbers, task.labels)
    return table, confusion_matrix(given, wanted, len(task.labels))


def _worst(
    model: TaskModel, rows: Sequence[LabelledRow], outputs: Sequence[Array], targets: Sequence[Any], count: int
) -> list[WorstError]:
    errors = [model.task.error(output, target) for output, target in zip(outputs, targets, strict=True)]
    order = sorted(range(len(rows)), key=lambda number: -errors[number])[:count]
    return [
        WorstError(rows[number], model.task.decode(outputs[number]), errors[number])
        for number in order
        if errors[number]
    ]
