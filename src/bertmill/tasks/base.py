"""What a task is, so that one training loop, one evaluation and one prediction serve them all.

    row ── example ──► encode ──► outputs (the model's, per example) ──┬─► loss
                                                                       ├─► decode ──► answers
                                                                       └─► judge ──► metrics · by_class
A task knows its labels and its head. Its outputs are one tensor per example; a target is what `example` made of the
label and only the task understands. A judgement is a small array, all that metrics need to know about an example, so
that drawing examples again for an interval is indexing. `Sequences` are the tasks whose examples are whole sequences:
windows are merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import ByClass
from bertmill.tasks.raw_rows import BadRowError
from bertmill.tasks.windows import Texts, Window, WindowMaker, in_portions, merge_windows, pack

Answer = dict[str, Any]
Array = NDArray[np.float32]
Judgement = NDArray[Any]  # of one example
Judgements = NDArray[Any]  # of many: [examples, …]


@dataclass(frozen=True)
class Example:
    """A row, and what should come out, if that is known."""

    row: LabelledRow
    target: Any = None


@dataclass(frozen=True)
class EncodedExample:
    """What goes in, as pieces: the windows of each sequence."""

    example: Example
    sequences: tuple[tuple[Window, ...], ...]

    @property
    def target(self) -> Any:
        return self.example.target

    @property
    def num_pieces(self) -> int:
        return sum(len(window.ids) for windows in self.sequences for window in windows)


class Task(ABC):
    """One kind of question that a fine-tuned model answers."""

    name: ClassVar[str]
    head: ClassVar[str]  # the name of the model class
    max_length: ClassVar[int | None] = None  # pieces of a window where nobody says; None: what the model can read
    stride: ClassVar[int | None] = None

    @property
    @abstractmethod
    def goals(self) -> tuple[str, ...]:
        """Metrics by which the best checkpoint may be chosen, the usual one first; of each, more is better."""

    @property
    def reads_first_piece(self) -> bool:
        """Whether an answer depends on the vector of [CLS]."""
        return True

    @property
    def may_have_no_label(self) -> bool:
        """Whether an empty label says something: that none of several labels is right."""
        return False

    @property
    def keeps_proportions(self) -> bool:
        """Whether a row has one of a few labels, each of which a part of the rows should have its share of."""
        return False

    def subject(self, row: LabelledRow) -> str:
        """What a row is about: rows about the same stay together when some are kept back."""
        return row.texts[0]

    @abstractmethod
    def example(self, row: LabelledRow) -> Example:
        """What a row of data says; BadRowError if its label makes no sense here."""

    @abstractmethod
    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        """What a row that has an example counts for when labels are counted; nothing if it has no label."""

    def remarks(self) -> list[str]:
        """What a person should know about how the data was understood."""
        return []

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the model's configuration says about the task, in Hugging Face's words."""

    def note(self) -> dict[str, Any]:
        """What the model folder remembers of the task besides its name and `settings`."""
        return {}

    @abstractmethod
    def encode(self, example: Example, make_windows: WindowMaker) -> EncodedExample:
        """Text to pieces."""

    @abstractmethod
    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        """What the model says of each example."""

    @abstractmethod
    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        """The sum of the losses of examples; divided by the sum of their weights it is the mean."""

    def weight(self, example: EncodedExample) -> float:
        """How much an example counts in the mean loss."""
        return 1.0

    @abstractmethod
    def decode(self, example: EncodedExample, output: Array) -> Answer:
        """An output as a person reads it."""

    def decode_all(self, examples: Sequence[EncodedExample], outputs: Sequence[Array]) -> list[Answer]:
        """The outputs of several examples; a task may do that faster than one by one."""
        return [self.decode(example, output) for example, output in zip(examples, outputs, strict=True)]

    @abstractmethod
    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """An output set against the target; the same shape for all examples."""

    @abstractmethod
    def metrics(self, judgements: Judgements) -> dict[str, float]:
        """How good all outputs together are."""

    @property
    def is_to_be_tuned(self) -> bool:
        """Whether answers depend on a number that is chosen on dev examples after the training."""
        return False

    def tuned(self, judgements: Judgements) -> Task:
        """The task with that number as it would have been best for these answers."""
        return self

    @property
    def tuning(self) -> str:
        """That number in words."""
        return ""

    def by_class(self, judgements: Judgements) -> ByClass:
        """How good they are for each class, where there are classes."""
        return ByClass()

    @abstractmethod
    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        """How wrong an output is that was judged so: 0 if it is right, more the surer it is of something else."""


class Sequences(Task):
    """Tasks that ask something of whole sequences. The outputs of a sequence's windows are averaged."""

    def encode(self, example: Example, make_windows: WindowMaker) -> EncodedExample:
        return EncodedExample(example, make_windows(self.sequences_of(example.row)))

    def sequences_of(self, row: LabelledRow) -> tuple[Texts, ...]:
        """What the model reads of a row, one after the other."""
        return (row.texts,)

    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        sequences = [windows for example in examples for windows in example.sequences]
        rows = [output.logits for output in run_windows(model, examples, device, **self._asked())]
        return merge_windows(torch.cat(rows), sequences).unbind(0)

    def _asked(self) -> Mapping[str, Any]:
        """What the model is told beside the batch."""
        return {}

    def refuse_choices(self, row: LabelledRow) -> None:
        """For tasks whose rows have none."""
        if row.choices:
            remedy = "leave them away, or use choose"
            raise BadRowError("has choices", f"has choices, which {self.name} does not know", remedy, where=row.place)


def probabilities(logits: Array) -> NDArray[np.float64]:
    """Softmax over the last axis, in double precision."""
    return torch.from_numpy(np.asarray(logits, dtype=np.float64)).softmax(-1).numpy()


def run_windows(
    model: nn.Module, examples: Sequence[EncodedExample], device: torch.device, **asked: Any
) -> Iterator[Any]:
    """What the model returns for all windows of the examples, one after the other, in portions."""
    windows = [window for example in examples for of_sequence in example.sequences for window in of_sequence]
    # What is learnt from needs its memory until the end; else a long document does not need it all at once.
    for portion in [windows] if torch.is_grad_enabled() else in_portions(windows):
        yield model(pack(portion).to(device), **asked)
