"""A number for a text or a pair of texts: one output, squared error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bertmill.errors import DataError
from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgement, Judgements, Sequences
from bertmill.tasks.labelled import LabelledRow, as_number
from bertmill.tasks.metrics import number_metrics
from bertmill.tasks.raw_rows import BadRowError

MAX_NUMBER = 1e15  # of which the square can still be computed with


@dataclass(frozen=True)
class Regress(Sequences):
    name = "regress"
    head = "BertForSequenceClassification"
    goals = ("pearson", "spearman")

    @classmethod
    def for_rows(cls, rows: Sequence[LabelledRow], file: str) -> Self:
        if len({row.label for row in rows}) < 2:
            remedy = "there must be at least two different ones"
            raise DataError("all rows have the same number", where=file, remedy=remedy)
        return cls()

    def example(self, row: LabelledRow) -> Example:
        self.refuse_choices(row)
        if row.label is None:
            return Example(row)
        number = as_number(row.label) if isinstance(row.label, str) else math.nan
        if not abs(number) <= MAX_NUMBER:
            raise BadRowError(
                "label is not a number",
                f"{row.label!r} is {'too large' if math.isfinite(number) else 'not a number'}",
                "correct it, or use classify",
                where=row.place,
            )
        return Example(row, number)

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        return () if row.label is None else (str(row.label),)

    def settings(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        numbers = torch.cat(list(outputs))  # [B]
        return (numbers - torch.tensor([example.target for example in examples]).to(numbers)).square().sum()

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """The number that is given, and the wanted one."""
        return np.array([output[0], example.target], np.float64)

    def metrics(self, judgements: Judgements) -> dict[str, float]:
        return number_metrics(judgements[:, 0], judgements[:, 1])

    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        return abs(float(output[0]) - float(example.target))

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        return {"number": float(output[0])}
