"""Which positions the MLM head must predict, and what the model sees there.

Of an instance's n ordinary pieces, rate · n are selected, but at least one. The number is rounded up or down at random,
so the rate is correct on average. Of the selected pieces, some become [MASK], some become a random ordinary piece, and
the rest stay unchanged. A Philox generator with the key (seed, epoch, "masking") and a counter that starts at the
instance's number draws the random numbers, so an instance is masked identically in any batch.

Whole words: words are selected in random order until the number is reached. A word that would exceed it is selected
with probability (pieces still needed / pieces in the word), so the expected number of pieces is the same. Words that
would exceed the limit of 20 pieces in 128 are skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers
from bertmill.errors import UsageError
from bertmill.randomness import keyed_seed
from bertmill.text.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from bertmill.corpus.instances import Layout

NOT_SELECTED = -100  # label that losses ignore
MOST_SELECTED = 25 / 24  # limit, relative to rate · length: 20 of 128 and 80 of 512 pieces at 15%
_SCORE, _KIND, _PIECE = range(3)  # numbers drawn for each piece: its rank, how to replace it, a random piece

Flags = NDArray[np.bool_]
Draws = NDArray[np.float64]


@dataclass(frozen=True)
class MaskingSettings:
    """How many pieces are selected and how they are replaced. The defaults are the paper's 15% and 80/10/10."""

    rate: float = 0.15
    mask: float = 0.8
    random: float = 0.1
    same: float = 0.1
    whole_words: bool = False
    fixed: bool = False  # every epoch has the same instances and masks, in a different order

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise UsageError(f"rate must be above 0 and at most 1, not {self.rate}")
        fractions = (self.mask, self.random, self.same)
        if min(fractions) < 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6):
            what = "mask, random and same must be fractions of at least 0 that add up to 1"
            raise UsageError(f"{what}, not {self.mask:g}, {self.random:g} and {self.same:g}")


@dataclass(frozen=True)
class VocabularyIds:
    """The size and special ids of a vocabulary, as instances need them."""

    size: int
    cls: int
    sep: int
    mask: int
    special: tuple[int, ...]  # all ids that are not ordinary pieces

    @classmethod
    def of(cls, tokenizer: BertTokenizer) -> VocabularyIds:
        """Return the size and special ids of a tokenizer."""
        ids = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id)
        return cls(len(tokenizer), *ids, tuple(tokenizer.all_special_ids))


class Masker:
    """Masks batches of instances of at most `length` pieces."""

    def __init__(self, settings: MaskingSettings, vocabulary: VocabularyIds, length: int, seed: int) -> None:
        self.settings = settings
        self.mask_id = vocabulary.mask
        self.ordinary = np.setdiff1d(np.arange(vocabulary.size), vocabulary.special)
        self.length = length
        self.seed = seed
        self.limit = math.ceil(MOST_SELECTED * settings.rate * length - 1e-9)

    def mask(self, layout: Layout, epoch: int, numbers: Numbers) -> Numbers:
        """Replace selected pieces in place and return all labels. `numbers` are the instances' numbers in the epoch."""
        ids, _, lengths, is_ordinary, begins_word = layout
        row = np.repeat(np.arange(len(lengths)), lengths)  # the instance of each piece
        column = np.arange(len(ids)) - (np.cumsum(lengths) - lengths)[row]  # its index in the instance
        rounding, coins, draws = self._draws(epoch, numbers)
        num_ordinary = np.bincount(row[is_ordinary], minlength=len(lengths))
        num_wanted = np.maximum(1, np.floor(self.settings.rate * num_ordinary + rounding)).astype(np.int64)
        if begins_word is None:
            places = np.flatnonzero(is_ordinary)
            shuffled = places[np.lexsort((draws[row[places], _SCORE, column[places]], row[places]))]
            selected = shuffled[_count_within(num_ordinary) < np.repeat(num_wanted, num_ordinary)]
        else:
            places, sizes = _words(begins_word, is_ordinary)
            order = np.lexsort((draws[row[places], _SCORE, column[places]], row[places]))
            num_words = np.bincount(row[places], minlength=len(lengths))
            taken = _take_words(sizes[order], num_words, num_wanted, coins, self.limit)
            places, sizes = places[order][taken], sizes[order][taken]
            selected = np.repeat(places, sizes) + _count_within(sizes)
        labels = np.full(len(ids), NOT_SELECTED, np.int64)
        labels[selected] = ids[selected]
        ids[selected] = self._shown(ids[selected], draws[row[selected], :, column[selected]])
        return labels

    def _draws(self, epoch: int, numbers: Numbers) -> tuple[Draws, Draws, Draws]:
        """Draw random numbers from 0 to 1: two per instance [B], and three per position [B, 3, length]."""
        key = keyed_seed(self.seed, epoch, "masking")
        draws = np.empty((len(numbers), 2 + 3 * self.length))
        for row, number in zip(draws, numbers.tolist(), strict=True):
            np.random.Generator(np.random.Philox(key=key, counter=number << 128)).random(out=row)
        return draws[:, 0], draws[:, 1], draws[:, 2:].reshape(len(numbers), 3, self.length)

    def _shown(self, pieces: Numbers, draws: Draws) -> Numbers:
        """Return what the model sees at selected positions."""
        settings = self.settings
        random_pieces = self.ordinary[np.floor(draws[:, _PIECE] * len(self.ordinary)).astype(np.int64)]
        changed = np.where(draws[:, _KIND] < settings.mask, self.mask_id, random_pieces)
        return np.where(draws[:, _KIND] < 1 - settings.same, changed, pieces)


def _count_within(sizes: Numbers) -> Numbers:
    """Concatenate 0, 1, …, size - 1 for all sizes."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _words(begins_word: Flags, is_ordinary: Flags) -> tuple[Numbers, Numbers]:
    """Return where each word begins and how many pieces it has.

    The first piece after a special piece begins a word, even if the text was cut inside a word.
    """
    begins = begins_word | ~is_ordinary
    begins[1:] |= ~is_ordinary[:-1]
    places = np.flatnonzero(begins)
    sizes = np.diff(places, append=len(begins))
    return places[is_ordinary[places]], sizes[is_ordinary[places]]


def _take_words(sizes: Numbers, num_words: Numbers, num_wanted: Numbers, coins: Draws, limit: int) -> list[int]:
    """Return the indices of the words to select. The words of an instance are adjacent, in random order."""
    all_taken: list[int] = []
    start = 0
    for number, wanted, coin in zip(num_words.tolist(), num_wanted.tolist(), coins.tolist(), strict=True):
        taken: list[int] = []
        missing = wanted
        for word, size in enumerate(sizes[start : start + number].tolist(), start):
            if size <= missing:
                taken.append(word)
                missing -= size
                if not missing:
                    break
            elif wanted - missing + size <= limit:
                if coin < missing / size:
                    taken.append(word)
                break
        all_taken += taken or [start]  # at least one
        start += number
    return all_taken
