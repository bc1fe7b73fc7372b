"""Instances, finished: planned slices of a corpus as ids with [CLS], [SEP], segments, masks and labels.

An instance is a function of (seed, epoch, its number in the epoch); a batch of any of them is one flat row without
padding. Masks change the ids; labels keep what stood there. In `clm`, a piece's label is the piece that follows it,
where that is an ordinary one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.ends import Numbers, document_ends, sentence_ends
from bertmill.corpus.masking import NOT_SELECTED, Flags, Masker, MaskingSettings, VocabularyIds
from bertmill.corpus.objectives import PlanSettings
from bertmill.corpus.plan import PlanFacts, Planner
from bertmill.corpus.shards import Corpus
from bertmill.errors import UsageError
from bertmill.randomness import Permutation

if TYPE_CHECKING:
    import torch

    from bertmill.model.packing import PackedBatch

Slice = tuple[int, int]  # from … to, in pieces of the corpus

_OPEN_PLANS = 2  # a batch may lie across the boundary of two epochs


@dataclass(frozen=True)
class InstanceBatch:
    """Instances one after another in a flat row."""

    piece_ids: Numbers  # [n]
    segments: Numbers  # [n] 1 in the second text of a pair
    labels: Numbers  # [n] the piece to be guessed, NOT_SELECTED elsewhere
    lengths: Numbers  # [B]
    pair_labels: Numbers | None  # [B] 1: B does not follow A (NSP), A and B are swapped (SOP)

    @property
    def num_selected(self) -> int:
        return int((self.labels != NOT_SELECTED).sum())

    def packed(self) -> PackedBatch:
        """What the model takes as its first argument."""
        import torch

        from bertmill.model.packing import PackedBatch

        return PackedBatch(torch.from_numpy(self.piece_ids), self.lengths.tolist(), torch.from_numpy(self.segments))

    def targets(self) -> dict[str, torch.Tensor]:
        """What the model takes by name: `labels` and, for pairs, `next_sentence_label`."""
        import torch

        targets = {"labels": torch.from_numpy(self.labels)}
        if self.pair_labels is not None:
            targets["next_sentence_label"] = torch.from_numpy(self.pair_labels)
        return targets

    def __getitem__(self, part: slice) -> InstanceBatch:
        """Some consecutive instances."""
        first, stop, step = part.indices(len(self.lengths))
        if step != 1:
            raise UsageError("a part of a batch is consecutive instances")
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        pieces = slice(bounds[first], bounds[max(first, stop)])
        pair_labels = None if self.pair_labels is None else self.pair_labels[part]
        return InstanceBatch(
            self.piece_ids[pieces], self.segments[pieces], self.labels[pieces], self.lengths[part], pair_labels
        )

    def micro_batches(self, max_pieces: int) -> Iterator[InstanceBatch]:
        """The batch in parts of at most so many pieces, in order; an instance that is longer is a part of its own."""
        first = 0
        while first < len(self.lengths):
            num_pieces = np.cumsum(self.lengths[first:])
            stop = first + max(1, int(np.searchsorted(num_pieces, max_pieces, side="right")))
            yield self[first:stop]
            first = stop

    @classmethod
    def joined(cls, batches: list[InstanceBatch]) -> InstanceBatch:
        """One batch after the other, as one."""
        pair_labels = [batch.pair_labels for batch in batches if batch.pair_labels is not None]
        return cls(
            np.concatenate([batch.piece_ids for batch in batches]),
            np.concatenate([batch.segments for batch in batches]),
            np.concatenate([batch.labels for batch in batches]),
            np.concatenate([batch.lengths for batch in batches]),
            np.concatenate(pair_labels) if pair_labels else None,
        )


class Instances:
    """All instances of a corpus for one objective, by epoch and number."""

    def __init__(
        self,
        corpus: Corpus,
        vocabulary: VocabularyIds,
        plan_folder: Path,
        settings: PlanSettings,
        masking: MaskingSettings,
        *,
        seed: int,
    ) -> None:
        """`plan_folder` keeps the plans: one folder for each corpus, seed and `settings`."""
        if vocabulary.size != corpus.vocabulary_size:
            raise UsageError(
                f"was made with a vocabulary of {corpus.vocabulary_size:,} pieces, not {vocabulary.size:,}",
                where=corpus.folder,
                remedy="give the vocabulary that the corpus was made with",
            )
        self.corpus = corpus
        self.vocabulary = vocabulary
        self.settings = settings
        self.seed = seed
        self.planner = Planner(corpus, plan_folder, settings, seed)
        self.masking = masking
        self._masker = Masker(masking, vocabulary, settings.length, seed)
        self._records = lru_cache(maxsize=_OPEN_PLANS)(self.planner.records)
        self._facts = lru_cache(maxsize=None)(self.planner.facts)
        self._one_at_a_time = threading.Lock()  # or two threads would plan the same epoch

    def facts(self, epoch: int) -> PlanFacts:
        with self._one_at_a_time:
            return self._facts(self._epoch_of_instances(epoch))

    def count(self, epoch: int) -> int:
        """How many instances an epoch has."""
        return self.facts(epoch).counts.instances

    def in_order(self, epoch: int, start: int, stop: int) -> InstanceBatch:
        """The instances of an epoch from place `start` to `stop` of its order, which is random and its own."""
        order = Permutation(self.count(epoch), self.seed, epoch, "order")
        return self.batch(epoch, order(np.arange(start, stop)))

    def batch(self, epoch: int, numbers: Numbers) -> InstanceBatch:
        """The instances of an epoch that have these numbers, in this order."""
        epoch = self._epoch_of_instances(epoch)
        with self._one_at_a_time:
            all_records = self._records(epoch)
        records = np.asarray(all_records[numbers])
        batch, is_ordinary, begins_word = self._lay_out(self._texts(records))
        if self.settings.objective == "clm":
            batch.labels[:-1] = np.where(is_ordinary[1:], batch.piece_ids[1:], NOT_SELECTED)
        else:
            rows = (batch.piece_ids, batch.lengths, is_ordinary, begins_word)
            batch.labels[:] = self._masker.mask(*rows, epoch, numbers)
        pair_labels = records["label"].astype(np.int64) if self.settings.is_pair else None
        return replace(batch, pair_labels=pair_labels)

    def _epoch_of_instances(self, epoch: int) -> int:
        """With fixed masks every epoch has the instances of the first."""
        return 0 if self.masking.fixed else epoch

    def _texts(self, records: NDArray[Any]) -> list[list[Slice]]:
        """Of each instance, the slices of the corpus that have a [SEP] behind them."""
        if self.settings.is_pair:
            columns = (records[name].tolist() for name in ("a_start", "a_length", "b_start", "b_length"))
            return [[(a, a + len_a), (b, b + len_b)] for a, len_a, b, len_b in zip(*columns, strict=True)]
        num_breaks = records["num_breaks"].astype(np.int64)
        firsts = np.repeat(records["first_document"].astype(np.int64), num_breaks)
        place_in_instance = np.arange(len(firsts)) - np.repeat(np.cumsum(num_breaks) - num_breaks, num_breaks)
        breaks = sentence_ends(self.corpus, document_ends(self.corpus, firsts + place_in_instance) - 1)
        inner_breaks = np.split(breaks, np.cumsum(num_breaks)[:-1])
        rows = zip(records["start"].tolist(), records["length"].tolist(), inner_breaks, strict=True)
        return [list(pairwise([start, *inner.tolist(), start + length])) for start, length, inner in rows]

    def _lay_out(self, texts: list[list[Slice]]) -> tuple[InstanceBatch, Flags, Flags | None]:
        """The ids and segments of a batch, which pieces are of the corpus, and which begin a word, if that matters."""
        lengths = [1 + sum(stop - start + 1 for start, stop in slices) for slices in texts]
        ids = np.full(sum(lengths), self.vocabulary.sep, np.int64)
        segments, labels = np.zeros_like(ids), np.full_like(ids, NOT_SELECTED)
        is_ordinary = np.zeros(len(ids), np.bool_)
        begins_word = np.zeros(len(ids), np.bool_) if self.masking.whole_words else None
        place = 0
        for slices in texts:
            ids[place] = self.vocabulary.cls
            place += 1
            for number, (start, stop) in enumerate(slices):
                end = place + stop - start
                ids[place:end] = self.corpus.pieces(start, stop)
                is_ordinary[place:end] = True
                if number and self.settings.is_pair:
                    segments[place : end + 1] = 1
                if begins_word is not None:
                    begins_word[place:end] = self.corpus.begins_word(start, stop)
                place = end + 1
        return InstanceBatch(ids, segments, labels, np.array(lengths), None), is_ordinary, begins_word
