"""The interface of a task, shared by training, evaluation and prediction.

    file ── read ──► rows ── encode ──► examples ── outputs ──┬──► loss
    request ────────► row                                     ├──► decode ──► predictions ── show
                                                              └──► score ──► metrics, class report
A task defines its rows, labels and head. The model returns one output tensor per example. A score is a small array with
everything that the metrics need about one example, so resampling examples for an interval only indexes scores.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from bertmill.batching.by_length import PIECES_PER_BATCH, split_into_batches
from bertmill.batching.windows import Window, Windows, pack
from bertmill.config.notation import setting
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.row import Row
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.metrics import ClassReport
from bertmill.text.tokenizer import BertTokenizer

Answer = dict[str, Any]
Array = NDArray[np.float32]
Targets = NDArray[Any]
TargetKind = Literal["class", "labels", "number"]  # an index, a flag per label, a number
Score = NDArray[Any]  # of one example
Scores = NDArray[Any]  # of many examples: [examples, …]


class TaskOptions(BaseModel):
    """Settings that a task adds to a command. A task loaded from a folder has a valid attribute for each of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    unused: ClassVar[frozenset[str]] = frozenset(("tags", "dev_tags"))  # settings that do not apply to the task
    window: ClassVar[tuple[int | None, int | None]] = (None, None)  # default length and stride; None: set by the model

    @model_validator(mode="before")  # such a setting is the only problem to report
    @classmethod
    def _all_settings_apply(cls, given: Any) -> Any:
        if isinstance(given, dict) and (problem := unused_settings(cls, given)):
            raise ValueError(problem)
        return given

    @property
    def optional_label(self) -> bool:
        """Whether a record may lack its label."""
        return False


def unused_settings(options: type[TaskOptions], settings: Mapping[str, Any]) -> str:
    """The problem with settings that are given and do not apply to the task; empty if there are none.

    False is what a run records for a setting that is off.
    """
    given = [setting(name) for name in sorted(options.unused) if settings.get(name) not in (None, False)]
    verb = "does" if len(given) == 1 else "do"
    return f"{', '.join(given)} {verb} not apply to this task" if given else ""


@dataclass(frozen=True)
class Example:
    """An encoded row: the windows of each of its sequences, and the target if the row has a label."""

    row: Any
    sequences: tuple[tuple[Window, ...], ...]
    target: Any
    weight: float = field(default=1.0, kw_only=True)  # in the mean loss

    @property
    def num_pieces(self) -> int:
        """The number of pieces in all windows, including special pieces."""
        return sum(len(window.ids) for windows in self.sequences for window in windows)


class FolderEntries(NamedTuple):
    """The entries of a task in a model folder."""

    config: Mapping[str, Any] = {}  # config.json
    metadata: Mapping[str, Any] = {}  # bertmill.json


RowT = TypeVar("RowT", bound=Row)
ExampleT = TypeVar("ExampleT", bound=Example)


@dataclass(frozen=True)
class Task(ABC, Generic[RowT, ExampleT]):
    """The base class of tasks.

    The docstring of a subclass is its help text: what the task does, an example row and the file formats, the keys of
    the `columns` setting, and the metrics.
    """

    name: ClassVar[str]  # key in TASKS
    head: ClassVar[str]  # name of the model class
    probe: ClassVar[str] = ""  # name of the model class of a linear model on frozen features; empty: the task has none
    starts_from_probe: ClassVar[bool] = False  # whether training of all weights starts from it, not from a random head
    Options: ClassVar[type[TaskOptions]] = TaskOptions  # for `finetune`
    PredictOptions: ClassVar[type[TaskOptions]] = TaskOptions  # for `predict`

    # Rows

    fields: ClassVar[tuple[str, ...]]  # field names for a request that is a text or a tuple of texts

    @classmethod
    @abstractmethod
    def read(cls, file: RowFile, options: Any, *, labeled: bool) -> Iterator[RowT]:
        """Yield the rows of a file. `options` is an instance of `Options`."""

    @classmethod
    @abstractmethod
    def request(cls, fields: Mapping[str, Any], place: str = "request") -> RowT:
        """Return an unlabeled row from the fields of a request. Raises BadRowError if they are invalid."""

    @abstractmethod
    def labels(self, row: RowT) -> tuple[str, ...]:
        """Return the labels of a row, for the data summary."""

    def split_key(self, row: RowT) -> SplitKey:
        """Return the subject and the stratum of a row, for splitting off dev rows."""
        return SplitKey(row.texts[0])

    # Construction

    @classmethod
    def from_rows(cls, rows: Sequence[RowT], options: Any, tokenizer: BertTokenizer, file: RowFile) -> Self:
        """Return the task for the labels of `rows`. Adds notices to `file`.

        Raises DataError if the labels cannot be learned.
        """
        return cls()

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        """Return the task of a model folder with this head, or None if the head is used for another task."""
        return cls()

    def folder_entries(self) -> FolderEntries:
        """Return what `from_folder` needs to restore the task."""
        return FolderEntries()

    # Training

    @property
    def reads_cls(self) -> bool:
        """Whether predictions depend on the vector of [CLS]."""
        return True

    @abstractmethod
    def encode(self, row: RowT, windows: Windows) -> ExampleT:
        """Encode a row as pieces. Raises BadRowError if the task does not know its label."""

    @abstractmethod
    def outputs(self, model: nn.Module, examples: Sequence[ExampleT], device: torch.device) -> Sequence[Tensor]:
        """Return the model's output for each example."""

    @abstractmethod
    def loss(self, outputs: Sequence[Tensor], examples: Sequence[ExampleT]) -> Tensor:
        """Return the sum of the losses. The mean loss is this sum divided by the sum of the weights of the examples."""

    @property
    @abstractmethod
    def selection_metrics(self) -> tuple[str, ...]:
        """Metrics that can select the best checkpoint, the default first. Larger is better."""

    # Targets of a linear model on features: one per row of features. A sentence to tag has a row per word.

    @property
    def target_kind(self) -> TargetKind:
        """What a target is."""
        return "class"

    def targets(self, example: ExampleT) -> Targets:
        """Return the targets of an example: [rows], or with several labels [rows, labels]."""
        return np.atleast_1d(example.target)

    def num_targets(self, row: RowT) -> int:
        """Return the number of rows of features of a row."""
        return 1

    def target_weights(self, examples: Sequence[ExampleT]) -> Targets | None:
        """Return the weight of each row of features, or None if all are the same."""
        return None

    def guessing_loss(self, examples: Sequence[ExampleT]) -> float:
        """Return the mean loss of the best constant prediction; NaN if it is not known."""
        if not self.probe:
            return math.nan
        numbers = np.concatenate([self.targets(example) for example in examples])
        if self.target_kind == "number":
            return float(numbers.var())
        if self.target_kind == "labels":
            return float(np.mean([entropy(np.array([each, 1 - each])) for each in numbers.mean(0)]))
        weights = self.target_weights(examples)
        counts = np.bincount(numbers, weights)
        return entropy(counts / counts.sum())

    error_metrics: ClassVar[tuple[str, ...]] = ()  # smaller is better; compared with the baseline too

    def tuned(self, scores: Callable[[], Scores], metric: str) -> tuple[Self, str]:
        """Return the task tuned on the scores of the dev examples, and a description (empty if nothing is tuned).

        `metric` is the one that selected the checkpoint.
        """
        return self, ""

    # Evaluation

    @abstractmethod
    def score(self, example: ExampleT, output: Array) -> Score:
        """Compare an output with the target. Scores have the same shape for all examples."""

    @abstractmethod
    def metrics(self, scores: Scores) -> dict[str, float]:
        """Return the metrics over all examples."""

    @abstractmethod
    def mistake(self, example: ExampleT, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        """Return how wrong the output is, and the expected result for display.

        The value is 0 for a correct output and largest for confident errors.
        """

    @abstractmethod
    def baseline(self, examples: Sequence[ExampleT], metric: str) -> tuple[str, Scores]:
        """Return a short description of the constant prediction with the best `metric`, and its scores."""

    def confidences(self, example: ExampleT, output: Array) -> Iterator[tuple[float, bool]]:
        """Yield the probability of each decision in a prediction and whether it is right, if available."""
        yield from ()

    def class_report(self, scores: Scores) -> ClassReport:
        """Return precision, recall and F1 of each class, if there are classes."""
        return ClassReport()

    # Predictions and their display

    @abstractmethod
    def decode(self, examples: Sequence[ExampleT], outputs: Sequence[Array]) -> list[Answer]:
        """Return the prediction for each example."""

    @abstractmethod
    def show(self, answer: Answer) -> str:
        """Format a prediction as one line for a terminal."""

    output_formats: ClassVar[Mapping[str, Callable[[Answer], str]]] = {}  # in addition to jsonl, csv and table


AnyTask = Task[Any, Any]


def encode_rows(task: AnyTask, rows: Iterable[Row], windows: Windows, file: RowFile) -> Iterator[Example]:
    """Yield the encoded rows. A row that the task cannot use is a bad row of `file`.

    Raises DataError for unknown labels after the last row.
    """
    for row in rows:
        try:
            example = task.encode(row, windows)
        except BadRowError as problem:
            file.handle_bad_row(problem, row.place)
            continue
        yield example
    file.require_usable_rows()


def run_windows(model: nn.Module, examples: Sequence[Example], device: torch.device, **inputs: Any) -> Iterator[Any]:
    """Yield the model's outputs for all windows of the examples, in order."""
    windows = [window for example in examples for of_sequence in example.sequences for window in of_sequence]
    # Training keeps all activations until the backward pass. Without gradients, a long document runs in batches.
    max_pieces = sys.maxsize if torch.is_grad_enabled() else PIECES_PER_BATCH
    for batch in split_into_batches(windows, lambda window: len(window.ids), max_pieces):
        yield model(pack(batch).to(device), **inputs)


def entropy(likely: NDArray[np.float64]) -> float:
    """Return the entropy of a distribution in nats."""
    positive = likely[likely > 0]
    return float(-(positive * np.log(positive)).sum())


def probabilities(logits: Array) -> NDArray[np.float64]:
    """Return the softmax over the last axis, in double precision."""
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).softmax(-1).numpy()
