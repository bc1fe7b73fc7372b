"""The interface between the training loop and a task or objective: batches, micro-batches, losses and metrics."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn


class Trainable(Protocol):
    """A task or objective with its data. Only the trainable looks inside its batches."""

    @property
    def evaluated_on(self) -> str:
        """The name of the evaluation data, such as dev; it prefixes metrics in the log."""

    def batches(self, start_step: int) -> Generator[Any]:
        """This rank's part of the global batch of every step, from `start_step` on."""

    def micro_batches(self, batch: Any) -> Sequence[Any]:
        """The batch in parts that go through the model one at a time."""

    def counts(self, batch: Any) -> Mapping[str, float]:
        """The divisors of the losses of this batch, to be summed over all ranks."""

    def loss(
        self, model: nn.Module, micro_batch: Any, totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        """A micro-batch's part of the step's loss, and sums for the log; `totals` are the counts over all ranks."""

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The metrics to log, including `loss`, from sums over steps."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Metrics on the evaluation data; empty if there is none."""

    def score(self, figures: Mapping[str, float]) -> list[float]:
        """The score of an evaluation. Scores are compared element by element; larger is better."""

    def describe(self, batch: Any) -> str:
        """A description that helps the user find this batch."""


class Phase(NamedTuple):
    """A part of a training run with its own trainable."""

    trainable: Trainable
    end: float  # the progress at which the phase ends; the last phase ends with the run
