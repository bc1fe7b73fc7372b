"""Run a fine-tuned model: rows in, predictions out, in the same order.

`run_batch` is the only entry point to the model: it takes a batch of examples and returns one output per example.
Precision, threads and devices are handled behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import nn

from bertmill.batching.by_length import run_batched, stream_batched
from bertmill.batching.windows import make_windows, recorded_settings
from bertmill.checkpoint.names import METADATA_FILE, find_model, read_metadata
from bertmill.config.commands import WindowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.machine import choose_device
from bertmill.model.config import BertConfig
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.model.registry import MODEL_CLASSES
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.row import Row
from bertmill.rows.source import RowFile
from bertmill.rows.trained import trained_rows
from bertmill.tasks import head_of, task_of_folder
from bertmill.tasks.base import Answer, AnyTask, Array, Example, Scores, unused_settings
from bertmill.text.tokenizer import BertTokenizer

ModelT = TypeVar("ModelT", bound=BertPreTrainedModel)

Progress = Callable[[int], None]  # called after each batch with its number of examples

_num_pieces = attrgetter("num_pieces")


def ignore_progress(count: int) -> None:
    """Show no progress."""


class Runner:
    """The model of a folder with its task and windows."""

    def __init__(
        self,
        name_or_folder: str | Path,
        device: str = "auto",
        windows: WindowSettings | None = None,
        tokenizer: BertTokenizer | None = None,
    ) -> None:
        """`windows` overrides the window settings that the folder records. Pass `tokenizer` if it is already loaded."""
        self.folder = find_model(name_or_folder)
        config = BertConfig.from_pretrained(self.folder)
        metadata = read_metadata(self.folder)
        self.task = task_of_folder(config, metadata, self.folder)
        self.method = metadata.get("method")
        self._trained_rows = trained_rows(metadata.get("rows"), self.folder / METADATA_FILE)
        known = self.task.selection_metrics
        self.metric = metadata["metric"] if metadata.get("metric") in known else known[0]  # selected the checkpoint
        self.device = choose_device(device)
        kind = MODEL_CLASSES[head_of(config, type(self.task))]
        self.model = load_with_head(kind, self.folder, "its task", "fine-tune it with `bertmill finetune`")
        self.model.to(self.device)
        settings = recorded_settings(windows or WindowSettings(), self.folder)
        tokenizer = tokenizer or BertTokenizer.from_pretrained(self.folder)
        self.windows = make_windows(settings, tokenizer, config.max_position_embeddings, *self.task.Options.window)

    def read(self, file: RowFile, *, labeled: bool) -> Iterator[Row]:
        """Yield the rows of a file, read with the options and settings used in training, unless it has its own."""
        if problem := unused_settings(self.task.Options, vars(file.settings)):
            raise UsageError(problem, where=file.path)
        if self._trained_rows is not None:
            self._trained_rows.apply_to(file)
        options = {name: getattr(self.task, name) for name in self.task.Options.model_fields}
        return self.task.read(file, self.task.Options(**options), labeled=labeled)

    def with_options(self, **options: Any) -> Self:
        """Return a runner for the same model with these attributes of its task replaced."""
        changed = copy(self)
        changed.task = replace(self.task, **options)
        return changed

    def answer(self, requests: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Return the predictions for a list of requests. Thread-safe."""
        rows = [self._request(fields, f"input {number}") for number, fields in enumerate(requests)]
        examples = [self.task.encode(row, self.windows) for row in rows]
        return [answer for _, answer in run_batched(examples, _num_pieces, self._predict_batch)]

    def _request(self, fields: Mapping[str, Any], place: str) -> Row:
        try:
            row: Row = self.task.request(fields, place)
        except BadRowError as problem:
            raise BadRowError(problem.reason, problem.what, problem.remedy, where=place) from None
        return row

    def answers(self, examples: Iterable[Example], ran: Progress = ignore_progress) -> Iterator[tuple[Row, Answer]]:
        """Yield the row and the prediction of each example of a stream."""

        def run(batch: list[Example]) -> list[tuple[Row, Answer]]:
            answers = self._predict_batch(batch)
            ran(len(batch))
            return answers

        return stream_batched(examples, _num_pieces, run)

    def _predict_batch(self, batch: list[Example]) -> list[tuple[Row, Answer]]:
        answers = self.task.decode(batch, run_batch(self.task, self.model, batch, self.device))
        return [(example.row, answer) for example, answer in zip(batch, answers, strict=True)]


def load_with_head(kind: type[ModelT], folder: Path, purpose: str, remedy: str) -> ModelT:
    """Load the model of a folder for `purpose`.

    Raises UsageError with `remedy` if its head is missing, and IntegrityError if its weights are not finite.
    """
    model = kind.from_pretrained(folder)
    assert model.load_report is not None
    if model.load_report.new:
        raise UsageError(f"the model has no head for {purpose}", where=folder, remedy=remedy)
    if not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise IntegrityError("some weights are not finite", where=folder, remedy="train the model again")
    return model


@torch.inference_mode()
def run_batch(task: AnyTask, model: nn.Module, batch: Sequence[Example], device: torch.device) -> list[Array]:
    """Return the model's output for each example of a batch."""
    return [output.float().cpu().numpy() for output in task.outputs(model, batch, device)]


def stream_outputs(
    task: AnyTask, model: nn.Module, examples: Iterable[Example], device: torch.device, ran: Progress = ignore_progress
) -> Iterator[tuple[Example, Array]]:
    """Yield each example and the model's output for it, in order."""

    def run(batch: list[Example]) -> list[tuple[Example, Array]]:
        outputs = run_batch(task, model, batch, device)
        ran(len(batch))
        return list(zip(batch, outputs, strict=True))

    return stream_batched(examples, _num_pieces, run)


def scores_of(task: AnyTask, outputs: Iterable[tuple[Example, Array]]) -> Scores:
    """Return the task's score of each output."""
    return np.stack([task.score(example, output) for example, output in outputs])
