"""How good a fine-tuned model is on labelled rows: metrics with intervals, where it errs, and its surest errors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bertmill.inference.answering import TaskModel, judged
from bertmill.tasks.base import Answer, Example
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import ByClass, intervals


@dataclass(frozen=True)
class Evaluation:
    num_rows: int
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    by_class: ByClass
    worst: list[tuple[LabelledRow, Answer]]  # errors, the surest first

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "metrics": {
                name: {"value": value, "low": self.intervals[name][0], "high": self.intervals[name][1]}
                for name, value in self.metrics.items()
            },
            "classes": [vars(each) for each in self.by_class.figures],
            "confusion": self.by_class.confusion,
            "worst": [{**vars(row), "answer": answer} for row, answer in self.worst],
        }


def evaluate(model: TaskModel, examples: Iterable[Example], num_worst: int) -> Evaluation:
    """Let the model answer for `examples`, and compare with what is right."""
    task = model.task
    answered = list(model.outputs(examples))
    judgements = judged(task, answered)
    errors = [task.error(*each, judgement) for each, judgement in zip(answered, judgements, strict=True)]
    worst = sorted(range(len(errors)), key=lambda number: -errors[number])[:num_worst]
    return Evaluation(
        len(answered),
        task.metrics(judgements),
        intervals(task.metrics, judgements),
        task.by_class(judgements),
        [(answered[number][0].example.row, task.decode(*answered[number])) for number in worst if errors[number]],
    )
