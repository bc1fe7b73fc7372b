"""What an instance is made for and how it lies on disk: the four objectives, their room and their records.

    mlm+nsp   [CLS] A [SEP] B [SEP]   does B follow A? (label 1: it is from another document)
    mlm+sop   [CLS] A [SEP] B [SEP]   are A and B in order? (label 1: they are swapped)
    mlm       [CLS] sentences [SEP] sentences of the next document … [SEP]
    clm       the same, to be read from left to right
Texts are slices of the corpus's row of pieces, so a record is a few numbers of fixed size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bertmill.config.fields import Objective
from bertmill.errors import UsageError

PAIR_RECORD: np.dtype[Any] = np.dtype(
    [("a_start", "<u8"), ("b_start", "<u8"), ("a_length", "<u4"), ("b_length", "<u4"), ("label", "u1")]
)
# Of the documents from `first_document` on, `num_breaks` end inside: a [SEP] stands behind each.
ROW_RECORD: np.dtype[Any] = np.dtype(
    [("start", "<u8"), ("first_document", "<u8"), ("length", "<u4"), ("num_breaks", "<u4")]
)
PartName = Literal["train", "heldout"]  # of a corpus, see parts.py
_DRAWN_AT_ONCE = 1024


@dataclass(frozen=True)
class PlanSettings:
    """What decides, with the seed, how a corpus is cut into instances."""

    objective: Objective = "mlm+nsp"
    length: int = 128  # of an instance at most, with [CLS] and [SEP]
    short_seq_prob: float = 0.1  # the share of instances that aim at a random shorter length
    heldout_share: float = 0.0  # of the documents
    part: PartName = "train"  # the documents to make instances of: those that are not held out, or those that are

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise UsageError(
                f"there is no objective {self.objective!r}", remedy=f"use {', '.join(get_args(Objective))}"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise UsageError(f"short_seq_prob is a share from 0 to 1, not {self.short_seq_prob}")
        if not 0 <= self.heldout_share < 1:
            raise UsageError(f"the held-out share is from 0 to less than 1, not {self.heldout_share}")
        if self.part == "heldout" and not self.heldout_share:
            raise UsageError("nothing is held out: the held-out share is 0")
        shortest = self.num_special + (2 if self.is_pair else 1)
        if self.length < shortest:
            raise UsageError(
                f"the length {self.length} is too short for {self.objective}", remedy=f"from {shortest} on"
            )

    @property
    def is_pair(self) -> bool:
        return self.objective in ("mlm+nsp", "mlm+sop")

    @property
    def num_special(self) -> int:
        """[CLS] and [SEP] that every instance has."""
        return 3 if self.is_pair else 2

    @property
    def room(self) -> int:
        """For pieces of the corpus."""
        return self.length - self.num_special

    @property
    def record(self) -> np.dtype[Any]:
        return PAIR_RECORD if self.is_pair else ROW_RECORD


@dataclass
class Counts:
    """What a block, or the sum of them, came to."""

    instances: int = 0
    pieces: int = 0  # in instances, without [CLS] and [SEP]
    labels_1: int = 0  # pairs that are not what they seem: B from elsewhere, or swapped
    one_sentence: int = 0  # chunks of one sentence, from which only a negative can be made
    pieces_cut: int = 0  # pieces of the epoch's own text that are in no instance …
    sentences_cut: int = 0  # … and the sentences, too long for a pair, that they were cut from

    def add(self, other: Counts) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class BlockPlan:
    """The instances of one block."""

    records: NDArray[Any]
    counts: Counts = field(default_factory=Counts)


def targets(settings: PlanSettings, generator: np.random.Generator, *, num_more: int) -> Iterator[tuple[float, ...]]:
    """For one chunk after another: the number of pieces to aim at, and `num_more` random numbers from 0 to 1."""
    shortest = min(2, settings.room)
    while True:
        draws = generator.random((_DRAWN_AT_ONCE, 2 + num_more))
        is_short = draws[:, 0] < settings.short_seq_prob
        shorter = shortest + np.floor(draws[:, 1] * (settings.room - shortest + 1))
        draws[:, 1] = np.where(is_short, shorter, settings.room)
        yield from map(tuple, draws[:, 1:].tolist())
