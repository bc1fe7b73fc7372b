"""A pre-training objective as a trainable, and its evaluation on held-out text.

Losses are means over the global batch. A micro-batch contributes its own mean, weighted by its fraction of the elements
that the mean is over, such as selected positions.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.objectives.base import Objective
from bertmill.training.distributed import Ranks
from bertmill.training.progress import Beginning

MAX_HELDOUT_INSTANCES = 2048
HELDOUT_BATCH = 32


@dataclass(frozen=True)
class PretrainingBeginning(Beginning):
    """Reference values for the metrics of a pre-training run."""

    objective: Objective
    vocabulary_size: int
    unigram_entropy: float  # the loss of a model that knows only how frequent each piece is
    weights_used: float  # per piece; each takes 6 operations, forward and backward
    ranks: Ranks
    precision: torch.dtype


@dataclass(frozen=True)
class ObjectiveTrainable:
    """An objective on the instances of a corpus; implements `Trainable`."""

    evaluated_on: ClassVar[str] = "heldout"
    loader: Loader
    heldout: Instances | None
    ranks: Ranks
    micro_batch_pieces: int

    @property
    def objective(self) -> Objective:
        """The objective of the training instances."""
        return self.loader.instances.objective

    def batches(self, start_step: int) -> Generator[InstanceBatch]:
        yield from self.loader.batches(start_step)

    def micro_batches(self, batch: InstanceBatch) -> Sequence[InstanceBatch]:
        return list(batch.micro_batches(self.micro_batch_pieces))

    def counts(self, batch: InstanceBatch) -> Mapping[str, float]:
        return self.objective.counts(batch)

    def loss(
        self, model: nn.Module, micro_batch: InstanceBatch, totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        output = run_model(model, micro_batch, self.ranks.device)
        counts = self.objective.counts(micro_batch)
        parts = [mean * (counts[name] / totals[name]) for name, mean in self.objective.losses(output).items()]
        return reduce(add, parts), self.objective.sums(output, micro_batch)

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {**self.objective.figures(sums), "pieces": sums["pieces"]}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {} if self.heldout is None else evaluate_on_heldout(model, self.heldout, self.ranks)

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [-figures["loss"]]

    def describe(self, batch: InstanceBatch) -> str:
        return f"{len(batch.lengths)} instances that begin with the pieces {batch.piece_ids[1:6].tolist()}"


def run_model(model: nn.Module, batch: InstanceBatch, device: torch.device) -> Any:
    """Run a pre-training model on a batch; its output has losses but no logits."""
    targets = {name: tensor.to(device) for name, tensor in batch.targets().items()}
    return model(batch.packed().to(device), **targets, output_logits=False)


def evaluate_on_heldout(model: nn.Module, instances: Instances, ranks: Ranks) -> dict[str, float]:
    """Metrics on held-out instances, whose first epoch must be planned; each rank evaluates some of the batches."""
    objective = instances.objective
    sums = dict.fromkeys(objective.sum_names, 0.0)
    count = min(instances.count(0), MAX_HELDOUT_INSTANCES)
    for start in range(HELDOUT_BATCH * ranks.rank, count, HELDOUT_BATCH * ranks.count):
        batch = instances.make_in_order(0, start, min(start + HELDOUT_BATCH, count))
        for name, value in objective.sums(run_model(model, batch, ranks.device), batch).items():
            sums[name] += value
    return objective.heldout_figures(dict(zip(sums, ranks.sum(list(sums.values())), strict=True)))
