"""The task regress: a number for a text or a pair of texts, with one output and squared error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from bertmill.batching.windows import Windows
from bertmill.errors import DataError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.labels import as_number, label_text
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Answer, Array, Example, FolderEntries, Score, Scores, TargetKind, TaskOptions
from bertmill.tasks.metrics import number_metrics
from bertmill.tasks.sequence import SequenceTask, TextRow, read_texts
from bertmill.text.tokenizer import BertTokenizer

_DECIMAL_COMMA = re.compile(r"[+-]?\d+,(?!\d{3}$)\d+")  # three digits may be thousands
MAX_NUMBER = 1e15  # its square is finite in float32


@dataclass(frozen=True)
class NumberRow(TextRow):
    """A text or a pair of texts with its number."""

    number: float | None = None


@dataclass(frozen=True)
class Regress(SequenceTask[NumberRow]):
    """Predict a number for a text or a pair of texts.

    rows:     {"text": "A fine film.", "label": 4.5}, optionally with a "pair"; .jsonl, .json, .parquet,
              or the same columns in a .tsv or .csv
    columns:  text, pair, label
    metrics:  pearson (default), spearman
    """

    name = "regress"
    head = "BertForSequenceClassification"
    probe = "BertForSequenceProbe"
    starts_from_probe = True
    selection_metrics = ("pearson", "spearman")
    error_metrics = ("mean_squared_error",)

    @classmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: TaskOptions) -> NumberRow:
        number = _number(fields["label"]) if "label" in fields else None
        return NumberRow(place, read_texts(fields), number)

    @classmethod
    def from_rows(cls, rows: Sequence[NumberRow], options: Any, tokenizer: BertTokenizer, file: RowFile) -> Self:
        if len({row.number for row in rows}) < 2:
            remedy = "regress needs at least two different numbers"
            raise DataError("all rows have the same number", where=file.path, remedy=remedy)
        return cls()

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        is_ours = config.problem_type == "regression"
        is_single = config.problem_type is None and config.num_labels == 1
        return cls() if is_ours or is_single else None

    def folder_entries(self) -> FolderEntries:
        return FolderEntries({"num_labels": 1, "problem_type": "regression"})

    def labels(self, row: NumberRow) -> tuple[str, ...]:
        return () if row.number is None else (f"{row.number:.12g}",)

    def encode(self, row: NumberRow, windows: Windows) -> Example:
        return Example(row, windows.cut([row.texts]), row.number)

    @property
    def target_kind(self) -> TargetKind:
        return "number"

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
        numbers = torch.cat(list(outputs))  # [B]
        return (numbers - torch.tensor([example.target for example in examples]).to(numbers)).square().sum()

    def decode(self, examples: Sequence[Example], outputs: Sequence[Array]) -> list[Answer]:
        return [{"number": float(output[0])} for output in outputs]

    def show(self, answer: Answer) -> str:
        return f"{answer['number']:.4f}"

    def score(self, example: Example, output: Array) -> Score:
        """The predicted and the expected number."""
        return np.array([output[0], example.target], np.float64)

    def metrics(self, scores: Scores) -> dict[str, float]:
        return number_metrics(scores[:, 0], scores[:, 1])

    def baseline(self, examples: Sequence[Example], metric: str) -> tuple[str, Scores]:
        targets = np.array([example.target for example in examples], np.float64)
        return f"always the mean, {targets.mean():.4g}", np.stack([np.full_like(targets, targets.mean()), targets], 1)

    def mistake(self, example: Example, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        return abs(float(output[0]) - float(example.target)), self.labels(example.row)


def _number(value: Any) -> float:
    text = label_text(value)
    number = as_number(text)
    if not abs(number) <= MAX_NUMBER:
        problem = "too large" if math.isfinite(number) else "not a number"
        remedy = "correct it, or use classify"
        if _DECIMAL_COMMA.fullmatch(text):
            remedy = f"write decimals with a point: {text.replace(',', '.')}"
        raise BadRowError("label is not a number", f"the label {text!r} is {problem}", remedy)
    return number
