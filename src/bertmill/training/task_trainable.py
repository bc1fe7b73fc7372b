"""A task as a trainable: batches of examples, their losses, and metrics on the dev examples.

The examples form a stream of one permutation per epoch, cut into batches; the examples of a batch are a function of
(seed, step). Within a batch, examples of similar length share a micro-batch. The loss is the weighted mean over the
batch.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertmill.batching.by_length import batches_by_length
from bertmill.corpus.loader import require_share_for_each
from bertmill.inference.runner import scores_of, stream_outputs
from bertmill.randomness import Permutation
from bertmill.tasks.base import Example
from bertmill.text.printable import counted
from bertmill.training.dataset import Dataset
from bertmill.training.distributed import Ranks
from bertmill.training.loop import ResolvedTraining


@dataclass(frozen=True)
class TaskTrainable:
    """A task on its train and dev examples; implements `Trainable`."""

    evaluated_on: ClassVar[str] = "dev"
    data: Dataset
    settings: ResolvedTraining
    ranks: Ranks

    def __post_init__(self) -> None:
        require_share_for_each(self.settings.batch_size, self.ranks.count)

    def batches(self, start_step: int) -> Generator[list[Example]]:
        for step in count(start_step):
            places = self.settings.batch_size * step + np.arange(self.settings.batch_size)
            mine = places[self.ranks.rank :: self.ranks.count]
            yield [self.data.train[number] for number in self._numbers(mine)]

    def _numbers(self, places: np.ndarray) -> list[int]:
        """The numbers of the examples at these places of the stream."""
        numbers: list[int] = []
        for epoch in np.unique(places // len(self.data.train)).tolist():
            inside = places[places // len(self.data.train) == epoch] - epoch * len(self.data.train)
            numbers += Permutation(len(self.data.train), self.settings.seed, epoch, "examples")(inside).tolist()
        return numbers

    def micro_batches(self, batch: list[Example]) -> Sequence[list[Example]]:
        batches = batches_by_length([example.num_pieces for example in batch], self.settings.micro_batch_pieces)
        return [[batch[number] for number in numbers] for numbers in batches]

    def counts(self, batch: list[Example]) -> Mapping[str, float]:
        return {"weight": self._weight(batch)}

    def _weight(self, examples: Sequence[Example]) -> float:
        return sum(example.weight for example in examples)

    def loss(
        self, model: nn.Module, micro_batch: list[Example], totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        # Logits in float32, since bf16 would round the targets.
        outputs = [output.float() for output in self.data.task.outputs(model, micro_batch, self.ranks.device)]
        loss = self.data.task.loss(outputs, micro_batch)
        sums = {
            "loss": float(loss.detach()),
            "weight": self._weight(micro_batch),
            "examples": float(len(micro_batch)),
            "pieces": float(sum(example.num_pieces for example in micro_batch)),
        }
        return loss / totals["weight"], sums

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["weight"], "examples": sums["examples"], "pieces": sums["pieces"]}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss and metrics on the dev examples, if they may select a checkpoint. Every rank evaluates all of them."""
        task, dev = self.data.task, self.data.dev
        if not dev or not self.data.selects:
            return {}
        outputs = list(stream_outputs(task, model, dev, self.ranks.device))
        loss = task.loss([torch.from_numpy(output) for _, output in outputs], dev)
        return {"loss": float(loss) / self._weight(dev), **task.metrics(scores_of(task, outputs))}

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [figures[self.data.metric], -figures["loss"]]

    def describe(self, batch: list[Example]) -> str:
        places = [example.row.place for example in batch[:3]]
        return f"{counted(len(batch), 'row')}, among them {', '.join(places)}"
