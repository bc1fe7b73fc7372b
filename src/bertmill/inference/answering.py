"""A fine-tuned model at work: examples in, the task's outputs or answers out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from bertmill.checkpoint.names import find_model
from bertmill.config.commands import RowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.inference.batching import in_given_order
from bertmill.machine import choose_device
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgements, Task
from bertmill.tasks.kinds import task_of_folder
from bertmill.tasks.windows import remembered_settings, window_maker
from bertmill.text.tokenizer import BertTokenizer

ResultT = TypeVar("ResultT")
ModelT = TypeVar("ModelT", bound=BertPreTrainedModel)


class TaskModel:
    """The model of a folder, its tokenizer and the task it was fine-tuned for."""

    def __init__(
        self,
        name_or_folder: str | Path,
        device: str = "auto",
        reading: RowSettings | None = None,
        tokenizer: BertTokenizer | None = None,
    ) -> None:
        """`tokenizer` is that of the folder, where it is loaded already."""
        folder = find_model(name_or_folder)
        self.task = task_of_folder(folder)
        self.device = choose_device(device)
        kind: type[BertPreTrainedModel] = MODEL_CLASSES[self.task.head]
        model = load_with_head(kind, folder, "the task it names", "fine-tune it with `bertmill finetune`")
        self.model = model.to(self.device)
        reading = remembered_settings(reading or RowSettings(), folder)
        self.make_windows = window_maker(
            reading,
            tokenizer or BertTokenizer.from_pretrained(folder),
            model.config,
            self.task.max_length,
            self.task.stride,
        )

    def outputs(self, examples: Iterable[Example]) -> Iterator[tuple[EncodedExample, Array]]:
        """The examples as pieces, with what the model says of each."""
        return run_examples(self.task, self.model, self._encoded(examples), self.device)

    def answers(self, examples: Iterable[Example], task: Task | None = None) -> Iterator[tuple[Example, Answer]]:
        """The examples, with what the model says of each as a person reads it; `task` may read it otherwise."""
        answered = _run(self.task, self.model, self._encoded(examples), self.device, (task or self.task).decode_all)
        return ((given.example, answer) for given, answer in answered)

    def _encoded(self, examples: Iterable[Example]) -> Iterator[EncodedExample]:
        return (self.task.encode(example, self.make_windows) for example in examples)


def load_with_head(kind: type[ModelT], folder: Path, what_for: str, remedy: str) -> ModelT:
    """The model of a folder that can answer at once: its head is there, and its weights are numbers."""
    model = kind.from_pretrained(folder)
    assert model.load_report is not None
    if model.load_report.new:
        raise UsageError(f"the model has no head for {what_for}", where=folder, remedy=remedy)
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise IntegrityError("there are weights that are not finite", where=folder, remedy="train it again")
    return model


def judged(task: Task, answered: Iterable[tuple[EncodedExample, Array]]) -> Judgements:
    """What the task thinks of each answer."""
    return np.stack([task.judge(example, output) for example, output in answered])


def run_examples(
    task: Task, model: nn.Module, examples: Iterable[EncodedExample], device: torch.device
) -> Iterator[tuple[EncodedExample, Array]]:
    """The examples in their order, with what `model` says of each."""
    return _run(task, model, examples, device, lambda _, outputs: outputs)


def _run(
    task: Task,
    model: nn.Module,
    examples: Iterable[EncodedExample],
    device: torch.device,
    read: Callable[[Sequence[EncodedExample], Sequence[Array]], Sequence[ResultT]],
) -> Iterator[tuple[EncodedExample, ResultT]]:
    """The examples in their order, with what `read` makes of a batch of them and the model's outputs."""

    @torch.inference_mode()
    def run(batch: list[EncodedExample]) -> list[tuple[EncodedExample, ResultT]]:
        outputs = [output.float().cpu().numpy() for output in task.outputs(model, batch, device)]
        return list(zip(batch, read(batch, outputs), strict=True))

    return in_given_order(examples, lambda example: example.num_pieces, run)
