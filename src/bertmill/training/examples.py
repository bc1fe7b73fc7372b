"""Labelled examples as lessons for the training loop, and the same measured on examples that are not trained on.

The stream of examples is one permutation after another, one per epoch, cut into updates of exactly so many examples;
which examples an update has is a function of (seed, step). Inside an update, examples of similar length share a
micro-batch. The loss is the mean over the update, each example with its weight.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertmill.corpus.loader import require_share_for_each
from bertmill.inference.answering import judged, run_examples
from bertmill.inference.batching import batches_by_length
from bertmill.randomness import Permutation
from bertmill.tasks.base import EncodedExample, Task
from bertmill.training.distributed import Ranks


@dataclass(frozen=True)
class ExampleLessons:
    """Lessons for the training loop; a batch is a list of examples."""

    evaluated_on: ClassVar[str] = "dev"
    task: Task
    metric: str  # by which the best checkpoint is chosen
    train: Sequence[EncodedExample]
    dev: Sequence[EncodedExample]
    ranks: Ranks
    seed: int
    batch_size: int
    micro_batch_pieces: int

    def __post_init__(self) -> None:
        require_share_for_each(self.batch_size, self.ranks.count)

    def batches(self, start_step: int) -> Generator[list[EncodedExample]]:
        for step in count(start_step):
            places = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
            mine = places[self.ranks.rank :: self.ranks.count]
            yield [self.train[number] for number in self._numbers(mine)]

    def _numbers(self, places: np.ndarray) -> list[int]:
        """Which examples stand at these places of the stream."""
        numbers: list[int] = []
        for epoch in np.unique(places // len(self.train)).tolist():
            inside = places[places // len(self.train) == epoch] - epoch * len(self.train)
            numbers += Permutation(len(self.train), self.seed, epoch, "examples")(inside).tolist()
        return numbers

    def micro_batches(self, batch: list[EncodedExample]) -> Sequence[list[EncodedExample]]:
        sizes = [example.num_pieces for example in batch]
        return [[batch[number] for number in part] for part in batches_by_length(sizes, self.micro_batch_pieces)]

    def counts(self, batch: list[EncodedExample]) -> Mapping[str, float]:
        return {"weight": self._weight(batch)}

    def _weight(self, examples: Sequence[EncodedExample]) -> float:
        return sum(self.task.weight(example) for example in examples)

    def loss(
        self, model: nn.Module, part: list[EncodedExample], totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        outputs = [output.float() for output in self.task.outputs(model, part, self.ranks.device)]  # bf16 rounds labels
        loss = self.task.loss(outputs, part)
        sums = {
            "loss": float(loss.detach()),
            "weight": self._weight(part),
            "examples": float(len(part)),
            "pieces": float(sum(example.num_pieces for example in part)),
        }
        return loss / totals["weight"], sums

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["weight"], "examples": sums["examples"], "pieces": sums["pieces"]}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on the examples that are not trained on. Every rank measures all of them, and gets the same."""
        answered = list(run_examples(self.task, model, self.dev, self.ranks.device))
        outputs = [torch.from_numpy(output) for _, output in answered]
        loss = self.task.loss(outputs, self.dev)
        return {"loss": float(loss) / self._weight(self.dev), **self.task.metrics(judged(self.task, answered))}

    def tuned_task(self, model: nn.Module) -> tuple[Task, dict[str, float]]:
        """The task with what is chosen on the examples that are not trained on, and its metrics on them."""
        judgements = judged(self.task, run_examples(self.task, model, self.dev, self.ranks.device))
        task = self.task.tuned(judgements)
        return task, task.metrics(judgements)

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [figures[self.metric], -figures["loss"]]

    def describe(self, batch: list[EncodedExample]) -> str:
        places = [example.example.row.place for example in batch[:3]]
        return f"{len(batch)} rows, among them {', '.join(places)}"
