"""What a task is, so that one training loop, one evaluation and one prediction serve them all.

    file ── read ──► rows ── encode ──► examples ── outputs ──┬──► loss
    request ────────► row                                     ├──► decode ──► answers ── show
                                                              └──► score ──► metrics, class figures
A task owns its rows, labels and head. The model gives one output tensor per example. A score is a small array that
holds all that the metrics need to know about one example, so that resampling examples for an interval is indexing.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from bertmill.batching.by_length import PIECES_PER_BATCH, in_portions
from bertmill.batching.windows import Window, Windows, pack
from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.row import Row
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.metrics import ClassReport
from bertmill.text.tokenizer import BertTokenizer

Answer = dict[str, Any]
Array = NDArray[np.float32]
Score = NDArray[Any]  # of one example
Scores = NDArray[Any]  # of many: [examples, …]


class TaskOptions(BaseModel):
    """The settings that `finetune` takes for one task only; `unused` are settings of all tasks that do not apply."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    unused: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Example:
    """A row as the model reads it: the windows of each of its sequences, and the target if the row has a label."""

    row: Any
    sequences: tuple[tuple[Window, ...], ...]
    target: Any

    @property
    def num_pieces(self) -> int:
        return sum(len(window.ids) for windows in self.sequences for window in windows)


RowT = TypeVar("RowT", bound=Row)
ExampleT = TypeVar("ExampleT", bound=Example)


class Task(ABC, Generic[RowT, ExampleT]):
    """One kind of question that a fine-tuned model answers."""

    name: ClassVar[str]
    head: ClassVar[str]  # the model class
    Options: ClassVar[type[TaskOptions]] = TaskOptions
    fields: ClassVar[tuple[str, ...]]  # of a request given as a text or as a tuple of texts
    window: ClassVar[tuple[int | None, int | None]] = (None, None)  # default length and stride; None: by the model
    output_formats: ClassVar[Mapping[str, Callable[[Answer], str]]] = {}  # beside jsonl, csv and table

    # Rows

    @classmethod
    @abstractmethod
    def read(cls, file: RowFile, options: Any, *, labelled: bool) -> Iterator[RowT]:
        """The rows of a file; `options` are of the class `Options`."""

    @classmethod
    @abstractmethod
    def request(cls, fields: Mapping[str, Any], place: str = "request") -> RowT:
        """An unlabelled row from the named fields of a request; BadRowError if they are wrong."""

    @abstractmethod
    def labels(self, row: RowT) -> tuple[str, ...]:
        """What a labelled row counts for in the data summary."""

    def expected(self, row: RowT) -> tuple[str, ...]:
        """The right answer of a labelled row, as it is shown next to a wrong one."""
        return self.labels(row)

    def split_key(self, row: RowT) -> SplitKey:
        """What keeps rows together, and in proportion, when dev rows are split off."""
        return SplitKey(row.texts[0])

    # Construction

    @classmethod
    @abstractmethod
    def from_rows(cls, rows: Sequence[RowT], options: Any, tokenizer: BertTokenizer, where: str) -> Self:
        """The task with the labels of its training rows; DataError if they cannot be learned."""

    @classmethod
    @abstractmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        """The task of a model folder; None if its head belongs to another task."""

    @classmethod
    def has_head(cls, config: BertConfig) -> bool:
        """Whether a model was saved with this task's head."""
        return cls.head in (config.architectures or [])

    @property
    def options(self) -> TaskOptions:
        """The options that reading rows depends on."""
        return self.Options()

    @abstractmethod
    def model_settings(self) -> dict[str, Any]:
        """What config.json says about the task."""

    def metadata(self) -> dict[str, Any]:
        """What bertmill.json says about the task, besides its name."""
        return {}

    def remarks(self) -> list[str]:
        """What the user should know about how the data was understood."""
        return []

    # Model

    @property
    def reads_cls(self) -> bool:
        """Whether an answer depends on the vector of [CLS]."""
        return True

    @abstractmethod
    def encode(self, row: RowT, windows: Windows) -> ExampleT:
        """The row as pieces; BadRowError if its label is not one of the task's."""

    @abstractmethod
    def outputs(self, model: nn.Module, examples: Sequence[ExampleT], device: torch.device) -> Sequence[Tensor]:
        """The model's output for each example."""

    @abstractmethod
    def loss(self, outputs: Sequence[Tensor], examples: Sequence[ExampleT]) -> Tensor:
        """The sum of the losses of examples; the mean is this divided by the sum of their weights."""

    def weight(self, example: ExampleT) -> float:
        """How much an example counts in the mean loss."""
        return 1.0

    # Answers

    @abstractmethod
    def decode(self, examples: Sequence[ExampleT], outputs: Sequence[Array]) -> list[Answer]:
        """The answer for each example."""

    @abstractmethod
    def show(self, answer: Answer) -> str:
        """An answer on one line of a terminal."""

    def columns(self, answer: Answer) -> dict[str, Any]:
        """An answer as columns of a table: a column for the score of each label; lists stay lists."""
        columns: dict[str, Any] = {}
        for name, value in answer.items():
            if isinstance(value, dict):
                columns |= {f"{name.removesuffix('s')}:{label}": score for label, score in value.items()}
            else:
                columns[name] = value
        return columns

    def answering(self, **settings: Any) -> Self:
        """The task with other settings for its answers; UsageError if it has no such settings."""
        if settings:
            raise UsageError(f"{', '.join(settings)} does not apply to the task {self.name}")
        return self

    # Evaluation

    @property
    @abstractmethod
    def goals(self) -> tuple[str, ...]:
        """Metrics that may select the best checkpoint, the default first; larger is better."""

    @abstractmethod
    def score(self, example: ExampleT, output: Array) -> Score:
        """An output compared with the target; the same shape for all examples."""

    @abstractmethod
    def metrics(self, scores: Scores) -> dict[str, float]:
        """The metrics over all examples."""

    @abstractmethod
    def error(self, example: ExampleT, output: Array, score: Score) -> float:
        """0 if the output is right, otherwise larger the more confident it is."""

    def class_report(self, scores: Scores) -> ClassReport:
        """The figures of each class, if there are classes."""
        return ClassReport()

    @property
    def needs_tuning(self) -> bool:
        """Whether something is chosen on the dev examples after training; `tuned` chooses it."""
        return False

    def tuned(self, scores: Scores) -> tuple[Self, str]:
        """The task with what is best for these scores, and a description of it."""
        return self, ""


AnyTask = Task[Any, Any]


def encode_rows(task: AnyTask, rows: Iterable[Row], windows: Windows, file: RowFile) -> Iterator[Example]:
    """The rows as examples; a row that the task cannot use is a bad row of `file`."""
    for row in rows:
        try:
            example = task.encode(row, windows)
        except BadRowError as problem:
            file.handle_bad_row(problem, row.place)
            continue
        yield example
    file.counts.require_few_skipped(file.path)


def run_windows(model: nn.Module, examples: Sequence[Example], device: torch.device, **inputs: Any) -> Iterator[Any]:
    """The model's outputs for all windows of the examples, in order."""
    windows = [window for example in examples for of_sequence in example.sequences for window in of_sequence]
    # Training needs all activations at the end anyway; otherwise a long document need not be in memory at once.
    max_pieces = sys.maxsize if torch.is_grad_enabled() else PIECES_PER_BATCH
    for portion in in_portions(windows, lambda window: len(window.ids), max_pieces):
        yield model(pack(portion).to(device), **inputs)


def probabilities(logits: Array) -> NDArray[np.float64]:
    """Softmax over the last axis, in double precision."""
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).softmax(-1).numpy()
