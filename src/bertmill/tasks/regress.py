"""A number for a text or a pair of texts: one output, squared error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertmill.tasks.base import Answer, Array, Example, Sequences
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import number_metrics
from bertmill.tasks.rows import BadRowError


@dataclass(frozen=True)
class Regress(Sequences):
    metric: str = "pearson"

    name = "regress"
    head = "BertForSequenceClassification"

    def example(self, row: LabelledRow) -> Example:
        if row.label is None:
            return Example((row.texts,))
        try:
            number = float(row.label) if isinstance(row.label, str) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise BadRowError(
                "label is not a number",
                f"{row.label!r} is not a number",
                "correct it, or use classify",
                where=row.place,
            )
        return Example((row.texts,), number)

    def settings(self) -> dict[str, Any]:
        return {"num_labels": 1, "problem_type": "regression"}

    def note(self) -> dict[str, Any]:
        return {"task": self.name, "metric": self.metric}

    def loss(self, outputs: Sequence[Tensor], targets: Sequence[Any]) -> Tensor:
        numbers = torch.cat(list(outputs))  # [B]
        return (numbers - torch.tensor(targets).to(numbers)).square().sum()

    def metrics(self, outputs: Sequence[Array], targets: Sequence[Any]) -> dict[str, float]:
        return number_metrics(np.concatenate(list(outputs)), np.array(targets))

    def error(self, output: Array, target: Any) -> float:
        return abs(float(output[0]) - float(target))

    def decode(self, output: Array) -> Answer:
        return {"number": float(output[0])}
