"""What the training loop sees of a task or a pre-training objective: batches, micro-batches, losses and figures."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Trainable(Protocol):
    """Something to train a model on. Only the trainable looks inside its batches."""

    @property
    def evaluated_on(self) -> str:
        """The name of the data that is not trained on; it prefixes figures in the log."""

    def batches(self, start_step: int) -> Generator[Any]:
        """This rank's part of the global batch of every step, from `start_step` on."""

    def micro_batches(self, batch: Any) -> Sequence[Any]:
        """The batch in parts that are computed one at a time."""

    def counts(self, batch: Any) -> Mapping[str, float]:
        """What the losses of this batch are divided by, once summed over all ranks."""

    def loss(
        self, model: nn.Module, micro_batch: Any, totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        """A micro-batch's share of the step's loss, and sums for the log; `totals` are the counts of all ranks."""

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """What is logged, computed from sums over steps; `loss` is among it."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures on data that is not trained on; empty if there is none."""

    def score(self, figures: Mapping[str, float]) -> list[float]:
        """How good the figures of an evaluation are: larger is better, and the first number that differs decides."""

    def describe(self, batch: Any) -> str:
        """How a person can find this batch again."""


class Phase(NamedTuple):
    """A part of a training with a trainable of its own."""

    trainable: Trainable
    end: float  # the progress of the training at which it ends; the last phase ends with the training
