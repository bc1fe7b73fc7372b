"""Plan instances of full sentences, packed across document boundaries (RoBERTa's FULL-SENTENCES), from lengths alone.

An instance starts where the previous one ended. It takes sentences until the target is reached or the next sentence
does not fit; each document end inside costs one more [SEP]. A sentence longer than an instance is cut into windows of
full length, and the remainder is treated as a sentence, so nothing is lost. An instance ends before documents of the
other part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers, document_ends, sentence_ends
from bertmill.corpus.instances import Layout, Text
from bertmill.corpus.masking import NOT_SELECTED, Masker
from bertmill.corpus.objectives.base import Objective
from bertmill.corpus.parts import DocumentPart, Span
from bertmill.corpus.plan import PlanSettings, draw_targets
from bertmill.corpus.shards import Corpus

if TYPE_CHECKING:
    from bertmill.corpus.instances import InstanceBatch

# `num_breaks` documents end inside an instance, starting with `first_document`. A [SEP] follows each of them.
RECORD: np.dtype[Any] = np.dtype(
    [("start", "<u8"), ("first_document", "<u8"), ("length", "<u4"), ("num_breaks", "<u4")]
)


class FullSentences(Objective):
    """Full sentences in one segment. Subclasses determine what is predicted."""

    record = RECORD
    num_special = 2
    model_class = "BertForMaskedLM"

    def plan_shard(
        self, part: DocumentPart, shard: int, settings: PlanSettings, generator: np.random.Generator
    ) -> tuple[NDArray[Any], dict[str, int]]:
        ends_of_shard = part.corpus.shards[shard].sentence_ends
        sentences = np.arange(len(ends_of_shard))
        # The document of each sentence, within the shard.
        document = np.searchsorted(part.corpus.shards[shard].document_ends, sentences, side="right")
        # With a [SEP] counted before each document, the size of a range is the difference of two numbers.
        ends, ends_with_breaks = ends_of_shard.tolist(), (ends_of_shard + document).tolist()
        documents = document.tolist()
        draws = draw_targets(settings, generator, num_more=0)
        rows: list[tuple[int, int, int, int]] = []
        for sentence, stop in _stretches(part.spans(shard)):
            start = ends[sentence - 1] if sentence else 0
            while sentence < stop:
                (target,) = next(draws)
                begin = start + documents[sentence]
                reaching = bisect_left(ends_with_breaks, begin + target, sentence, stop)
                too_much = bisect_right(ends_with_breaks, begin + settings.room, sentence, stop)
                last = min(reaching, too_much - 1)
                if last < sentence:  # not even one sentence fits
                    rows.append((start, documents[sentence], settings.room, 0))
                    start += settings.room
                else:
                    rows.append((start, documents[sentence], ends[last] - start, documents[last] - documents[sentence]))
                    sentence, start = last + 1, ends[last]
        return _records(rows, part.corpus, shard), {"pieces": sum(row[2] for row in rows)}

    def texts(self, corpus: Corpus, records: NDArray[Any]) -> list[list[Text]]:
        num_breaks = records["num_breaks"].astype(np.int64)
        firsts = np.repeat(records["first_document"].astype(np.int64), num_breaks)
        place_in_instance = np.arange(len(firsts)) - np.repeat(np.cumsum(num_breaks) - num_breaks, num_breaks)
        breaks = sentence_ends(corpus, document_ends(corpus, firsts + place_in_instance) - 1)
        inner_breaks = np.split(breaks, np.cumsum(num_breaks)[:-1])
        rows = zip(records["start"].tolist(), records["length"].tolist(), inner_breaks, strict=True)
        return [
            [Text(*bounds) for bounds in pairwise([start, *inner.tolist(), start + length])]
            for start, length, inner in rows
        ]


class MaskedLanguageModeling(FullSentences):
    """Predict masked pieces."""

    heads: ClassVar[Mapping[str, str]] = {"mlm": "MLM"}

    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        return masker.mask(layout, epoch, numbers)


class CausalLanguageModeling(FullSentences):
    """Predict each piece from those before it: the label of a position is the next piece, if it is an ordinary one."""

    causal = True
    is_masked = False
    heads: ClassVar[Mapping[str, str]] = {"clm": "CLM"}
    shows_labels = False

    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        labels = np.full_like(layout.piece_ids, NOT_SELECTED)
        labels[:-1] = np.where(layout.is_ordinary[1:], layout.piece_ids[1:], NOT_SELECTED)
        return labels

    def predicted_share(self, mask_rate: float) -> float:
        return 1.0

    def describe_instance(self, instance: InstanceBatch) -> list[str]:
        return ["each predicted from the pieces before it"]


def _stretches(spans: list[Span]) -> list[tuple[int, int]]:
    """Merge adjacent spans into ranges of sentences, because an instance must be one slice of the corpus."""
    stretches: list[tuple[int, int]] = []
    for _, first, stop in spans:
        if stretches and stretches[-1][1] == first:
            first = stretches.pop()[0]
        stretches.append((first, stop))
    return stretches


def _records(rows: list[tuple[int, int, int, int]], corpus: Corpus, number: int) -> NDArray[Any]:
    records = np.array(rows, RECORD)
    records["start"] += np.uint64(corpus.piece_offsets[number])
    records["first_document"] += np.uint64(corpus.document_offsets[number])
    return records
