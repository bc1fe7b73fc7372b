"""What planning starts from and what it returns: settings, targets for chunks, and the records of a shard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.objectives import load_objective
from bertmill.corpus.parts import PartName
from bertmill.errors import UsageError

_DRAWN_AT_ONCE = 1024


@dataclass(frozen=True)
class PlanSettings:
    """What decides, with the seed, how a corpus is cut into instances."""

    objective: str = "mlm+nsp"
    length: int = 128  # of an instance at most, with [CLS] and [SEP]
    short_seq_prob: float = 0.1  # the share of instances that aim at a random shorter length
    heldout_share: float = 0.0  # of the documents
    part: PartName = "train"  # the documents to make instances of: those that are not held out, or those that are

    def __post_init__(self) -> None:
        objective = load_objective(self.objective)
        if not 0 <= self.short_seq_prob <= 1:
            raise UsageError(f"short_seq_prob is a share from 0 to 1, not {self.short_seq_prob}")
        if not 0 <= self.heldout_share < 1:
            raise UsageError(f"the held-out share is from 0 to less than 1, not {self.heldout_share}")
        if self.part == "heldout" and not self.heldout_share:
            raise UsageError("nothing is held out: the held-out share is 0")
        shortest = objective.num_special + objective.min_pieces
        if self.length < shortest:
            raise UsageError(
                f"the length {self.length} is too short for {self.objective}", remedy=f"from {shortest} on"
            )

    @cached_property
    def room(self) -> int:
        """For pieces of the corpus."""
        return self.length - load_objective(self.objective).num_special


@dataclass
class Counts:
    """Totals of a shard, or of several."""

    instances: int = 0
    pieces: int = 0  # in instances, without [CLS] and [SEP]
    labels_1: int = 0  # pairs that are not what they seem: B from elsewhere, or swapped
    one_sentence: int = 0  # chunks of one sentence, from which only a negative can be made
    pieces_cut: int = 0  # pieces of the epoch's own text that are in no instance …
    sentences_cut: int = 0  # … and the sentences, too long for a pair, that they were cut from

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class ShardPlan:
    """The instances of one shard."""

    records: NDArray[Any]
    counts: Counts


def draw_targets(
    settings: PlanSettings, generator: np.random.Generator, *, num_more: int
) -> Iterator[tuple[float, ...]]:
    """For each chunk in turn: the number of pieces to aim at, and `num_more` random numbers from 0 to 1."""
    shortest = min(2, settings.room)
    while True:
        draws = generator.random((_DRAWN_AT_ONCE, 2 + num_more))
        is_short = draws[:, 0] < settings.short_seq_prob
        shorter = shortest + np.floor(draws[:, 1] * (settings.room - shortest + 1))
        draws[:, 1] = np.where(is_short, shorter, settings.room)
        yield from map(tuple, draws[:, 1:].tolist())
