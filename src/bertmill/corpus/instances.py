"""Finished instances: planned slices of a corpus as ids with [CLS], [SEP], segments and labels.

An instance is a function of (seed, epoch, its number in the epoch). A batch is one flat row of instances without
padding. Where pieces are masked, the labels are the original pieces.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.masking import NOT_SELECTED, Flags, Masker, MaskingSettings, VocabularyIds
from bertmill.corpus.plan import PlanFacts, Planner, PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import UsageError
from bertmill.randomness import Permutation

if TYPE_CHECKING:
    import torch

    from bertmill.model.packing import PackedBatch

_OPEN_PLANS = 2  # a batch may span two epochs


class Text(NamedTuple):
    """Consecutive pieces of the corpus, from `start` to `stop`."""

    start: int
    stop: int
    segment: int = 0


class Layout(NamedTuple):
    """Instances before pieces are selected; n pieces, B instances."""

    piece_ids: Numbers  # [n]
    segments: Numbers  # [n]
    lengths: Numbers  # [B]
    is_ordinary: Flags  # [n] whether a piece comes from the corpus
    begins_word: Flags | None  # [n] only if whole words are selected


@dataclass(frozen=True)
class InstanceBatch:
    """Instances concatenated in one flat row."""

    piece_ids: Numbers  # [n]
    segments: Numbers  # [n] 1 in the second text of a pair
    labels: Numbers  # [n] the piece to predict, NOT_SELECTED elsewhere
    lengths: Numbers  # [B]
    instance_targets: dict[str, Numbers]  # [B] each; see `Objective.instance_targets`

    @property
    def num_selected(self) -> int:
        """Number of selected positions."""
        return int((self.labels != NOT_SELECTED).sum())

    def packed(self) -> PackedBatch:
        """Return the batch as the first argument of the model."""
        import torch

        from bertmill.model.packing import PackedBatch

        return PackedBatch(torch.from_numpy(self.piece_ids), self.lengths.tolist(), torch.from_numpy(self.segments))

    def targets(self) -> dict[str, torch.Tensor]:
        """Return keyword arguments of the model: `labels` and the targets of the objective."""
        import torch

        arrays = {"labels": self.labels, **self.instance_targets}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def __getitem__(self, part: slice) -> InstanceBatch:
        """Return consecutive instances."""
        first, stop, step = part.indices(len(self.lengths))
        if step != 1:
            raise UsageError(f"a slice of a batch must have step 1, not {step}")
        bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        pieces = slice(bounds[first], bounds[max(first, stop)])
        rows = (self.piece_ids[pieces], self.segments[pieces], self.labels[pieces])
        targets = {name: values[part] for name, values in self.instance_targets.items()}
        return InstanceBatch(*rows, self.lengths[part], targets)

    def micro_batches(self, max_pieces: int) -> Iterator[InstanceBatch]:
        """Yield micro-batches of at most `max_pieces`, in order. A longer instance gets its own micro-batch."""
        first = 0
        while first < len(self.lengths):
            num_pieces = np.cumsum(self.lengths[first:])
            stop = first + max(1, int(np.searchsorted(num_pieces, max_pieces, side="right")))
            yield self[first:stop]
            first = stop

    @classmethod
    def joined(cls, batches: list[InstanceBatch]) -> InstanceBatch:
        """Concatenate batches."""
        rows = ((batch.piece_ids, batch.segments, batch.labels, batch.lengths) for batch in batches)
        names = batches[0].instance_targets
        targets = {name: np.concatenate([batch.instance_targets[name] for batch in batches]) for name in names}
        piece_ids, segments, labels, lengths = map(np.concatenate, zip(*rows, strict=True))
        return cls(piece_ids, segments, labels, lengths, targets)


def lay_out(
    instances: list[list[Text]], corpus: Corpus, vocabulary: VocabularyIds, *, with_word_starts: bool
) -> Layout:
    """Lay out instances one after another: [CLS], then each text followed by [SEP]."""
    lengths = [1 + sum(text.stop - text.start + 1 for text in texts) for texts in instances]
    ids = np.full(sum(lengths), vocabulary.sep, np.int64)
    segments, is_ordinary = np.zeros_like(ids), np.zeros(len(ids), np.bool_)
    begins_word = np.zeros(len(ids), np.bool_) if with_word_starts else None
    place = 0
    for texts in instances:
        ids[place] = vocabulary.cls
        place += 1
        for start, stop, segment in texts:
            end = place + stop - start
            ids[place:end] = corpus.pieces(start, stop)
            is_ordinary[place:end] = True
            segments[place : end + 1] = segment
            if begins_word is not None:
                begins_word[place:end] = corpus.begins_word(start, stop)
            place = end + 1
    return Layout(ids, segments, np.array(lengths), is_ordinary, begins_word)


@dataclass
class Instances:
    """All instances of a corpus for one objective, by epoch and number."""

    corpus: Corpus
    vocabulary: VocabularyIds
    plan_folder: Path  # for plans of this corpus, seed and `settings` only
    settings: PlanSettings
    masking: MaskingSettings
    _: KW_ONLY
    seed: int

    def __post_init__(self) -> None:
        corpus, vocabulary = self.corpus, self.vocabulary
        if vocabulary.size != corpus.vocabulary_size:
            what = f"was built with a vocabulary of {corpus.vocabulary_size:,} pieces, not {vocabulary.size:,}"
            raise UsageError(what, where=corpus.folder, remedy="use the vocabulary that the corpus was built with")
        self.planner = Planner(corpus, self.plan_folder, self.settings, self.seed)
        self.objective = self.planner.objective
        self._masker = Masker(self.masking, vocabulary, self.settings.length, self.seed)
        self._open_records = lru_cache(maxsize=_OPEN_PLANS)(self.planner.open_records)
        self._planned: dict[int, PlanFacts] = {}
        self._one_at_a_time = threading.Lock()  # otherwise, two threads could plan the same epoch

    def plan_epoch(self, epoch: int) -> PlanFacts:
        """Plan an epoch, unless the folder already has its plan."""
        planned = self._planned_epoch(epoch)
        with self._one_at_a_time:
            if planned not in self._planned:
                self._planned[planned] = self.planner.plan(planned)
            return self._planned[planned]

    def count(self, epoch: int) -> int:
        """Return the number of instances in an epoch, which must have been planned."""
        return self._planned[self._planned_epoch(epoch)].num_instances

    def make_in_order(self, epoch: int, start: int, stop: int) -> InstanceBatch:
        """Return the instances from `start` to `stop` in the random order of an epoch."""
        order = Permutation(self.plan_epoch(epoch).num_instances, self.seed, epoch, "order")
        return self.make_batch(epoch, order(np.arange(start, stop)))

    def make_batch(self, epoch: int, numbers: Numbers) -> InstanceBatch:
        """Return the instances of an epoch with these numbers, in this order. Plans the epoch if necessary."""
        epoch = self._planned_epoch(epoch)
        with self._one_at_a_time:
            all_records = self._open_records(epoch)
        records = all_records.take(numbers)
        texts = self.objective.texts(self.corpus, records)
        layout = lay_out(texts, self.corpus, self.vocabulary, with_word_starts=self.masking.whole_words)
        labels = self.objective.label(layout, self._masker, epoch, numbers)
        targets = self.objective.instance_targets(records)
        return InstanceBatch(layout.piece_ids, layout.segments, labels, layout.lengths, targets)

    def _planned_epoch(self, epoch: int) -> int:
        """Return the epoch whose plan is used: with fixed masks, always the first."""
        return 0 if self.masking.fixed else epoch
