"""A complete task in one file: does a text end with an exclamation mark?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from bertmill.batching.windows import Windows
from bertmill.model.config import BertConfig
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Answer, Array, Example, FolderEntries, Score, Scores, TaskOptions
from bertmill.tasks.sequence import SequenceTask, TextRow, read_texts
from bertmill.text.tokenizer import BertTokenizer


class ShoutOptions(TaskOptions):
    """Options of shout."""

    mark: str = Field("!", description="the character that a shout ends with")


@dataclass(frozen=True)
class Shout(SequenceTask[TextRow]):
    """Tell shouting from talking."""

    mark: str = "!"

    name = "shout"
    head = "BertForSequenceClassification"
    selection_metrics = ("accuracy",)
    Options = ShoutOptions

    @classmethod
    def read(cls, file: RowFile, options: ShoutOptions, *, labeled: bool) -> Iterator[TextRow]:
        return super().read(file, options, labeled=False)  # the text is its own label

    @classmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: ShoutOptions) -> TextRow:
        return TextRow(place, read_texts(fields))

    @classmethod
    def from_rows(cls, rows: Sequence[TextRow], options: ShoutOptions, tokenizer: BertTokenizer, file: RowFile) -> Self:
        return cls(options.mark)

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        return cls(metadata["mark"]) if metadata.get("task") == cls.name else None

    def folder_entries(self) -> FolderEntries:
        return FolderEntries({"num_labels": 1}, {"mark": self.mark})

    def labels(self, row: TextRow) -> tuple[str, ...]:
        return ("shout" if row.texts[0].endswith(self.mark) else "talk",)

    def encode(self, row: TextRow, windows: Windows) -> Example:
        return Example(row, windows.cut([row.texts]), float(row.texts[0].endswith(self.mark)))

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
        targets = torch.tensor([example.target for example in examples])
        return torch.nn.functional.binary_cross_entropy_with_logits(torch.cat(list(outputs)), targets, reduction="sum")

    def decode(self, examples: Sequence[Example], outputs: Sequence[Array]) -> list[Answer]:
        return [{"shouts": bool(output[0] > 0)} for output in outputs]

    def show(self, answer: Answer) -> str:
        return "shout" if answer["shouts"] else "talk"

    def score(self, example: Example, output: Array) -> Score:
        return np.array([(output[0] > 0) == example.target])

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"accuracy": float(scores.mean())}

    def baseline(self, examples: Sequence[Example], metric: str) -> tuple[str, Scores]:
        return "always talk", np.array([[not example.target] for example in examples])

    def mistake(self, example: Example, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        return 0.0 if score[0] else abs(float(output[0])), self.labels(example.row)
