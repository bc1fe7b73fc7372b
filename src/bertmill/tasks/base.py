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
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from bertmill.batching.by_length import PIECES_PER_BATCH, in_portions
from bertmill.batching.windows import Window, Windows, pack
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
    """Settings that one task adds to a command. A task loaded from a folder has a valid attribute for each."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    unused: ClassVar[frozenset[str]] = frozenset()  # settings of the command that do not apply to the task
    window: ClassVar[tuple[int | None, int | None]] = (None, None)  # default length and stride; None: by the model


@dataclass(frozen=True)
class Example:
    """A row as the model reads it: the windows of each of its sequences, and the target if the row has a label."""

    row: Any
    sequences: tuple[tuple[Window, ...], ...]
    target: Any
    weight: float = field(default=1.0, kw_only=True)  # in the mean loss

    @property
    def num_pieces(self) -> int:
        return sum(len(window.ids) for windows in self.sequences for window in windows)


class FolderEntries(NamedTuple):
    """What a model folder records about its task."""

    config: Mapping[str, Any] = {}  # in config.json
    metadata: Mapping[str, Any] = {}  # in bertmill.json


RowT = TypeVar("RowT", bound=Row)
ExampleT = TypeVar("ExampleT", bound=Example)


@dataclass(frozen=True)
class Task(ABC, Generic[RowT, ExampleT]):
    """One kind of question that a fine-tuned model answers.

    The docstring of a task is its help: what it does, a row with its formats, the keys of --columns, and the metrics.
    """

    name: ClassVar[str]  # in TASKS
    head: ClassVar[str]  # the model class
    Options: ClassVar[type[TaskOptions]] = TaskOptions  # for `finetune`
    PredictOptions: ClassVar[type[TaskOptions]] = TaskOptions  # for `predict`

    # Rows

    fields: ClassVar[tuple[str, ...]]  # of a request given as a text or as a tuple of texts

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
        """The labels that a row counts for in the data summary."""

    def split_key(self, row: RowT) -> SplitKey:
        """What keeps rows together, and in proportion, when dev rows are split off."""
        return SplitKey(row.texts[0])

    # Construction

    @classmethod
    def from_rows(cls, rows: Sequence[RowT], options: Any, tokenizer: BertTokenizer, file: RowFile) -> Self:
        """The task with the labels of its rows; DataError if they cannot be learned; adds notices to `file`."""
        return cls()

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        """The task of a model folder with this head; None if the head belongs to another task there."""
        return cls()

    def folder_entries(self) -> FolderEntries:
        """What `from_folder` reads."""
        return FolderEntries()

    # Training

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

    @property
    @abstractmethod
    def selection_metrics(self) -> tuple[str, ...]:
        """Metrics that may select the best checkpoint, the default first; larger is better."""

    def tuned(self, scores: Callable[[], Scores]) -> tuple[Self, str]:
        """The task with what is best for the scores of the dev examples, and a description if anything is tuned."""
        return self, ""

    # Evaluation

    @abstractmethod
    def score(self, example: ExampleT, output: Array) -> Score:
        """An output compared with the target; the same shape for all examples."""

    @abstractmethod
    def metrics(self, scores: Scores) -> dict[str, float]:
        """The metrics over all examples."""

    @abstractmethod
    def mistake(self, example: ExampleT, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        """How wrong the output is (0 if right; confident errors are largest), and the expected answer as shown."""

    @abstractmethod
    def baseline(self, examples: Sequence[ExampleT]) -> tuple[str, Scores]:
        """The best constant answer to these labelled examples, described in a few words, and its scores."""

    def confidences(self, example: ExampleT, output: Array) -> Iterator[tuple[float, bool]]:
        """The probability of each decision in an answer, and whether it is right; empty without probabilities."""
        yield from ()

    def class_report(self, scores: Scores) -> ClassReport:
        """The figures of each class, if there are classes."""
        return ClassReport()

    # Answers and their display

    @abstractmethod
    def decode(self, examples: Sequence[ExampleT], outputs: Sequence[Array]) -> list[Answer]:
        """The answer for each example."""

    @abstractmethod
    def show(self, answer: Answer) -> str:
        """An answer on one line of a terminal."""

    output_formats: ClassVar[Mapping[str, Callable[[Answer], str]]] = {}  # besides jsonl, csv and table


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
