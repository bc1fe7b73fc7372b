"""Instances of full sentences, packed across document boundaries (RoBERTa's FULL-SENTENCES), from lengths alone.

From where the last instance ended, sentences are taken until the target is reached or the next would not fit; each
document end inside costs one more [SEP]. A sentence that is longer than a whole instance is cut into windows of full
length and its rest goes on as a sentence: nothing is lost. An instance ends where documents
of the other part follow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.objectives import ROW_RECORD, BlockPlan, Counts, PlanSettings, targets
from bertmill.corpus.parts import DocumentPart, Span
from bertmill.corpus.shards import Corpus


def plan_full_sentences(
    part: DocumentPart, block: int, settings: PlanSettings, generator: np.random.Generator
) -> BlockPlan:
    """The instances of one shard."""
    shard = part.corpus.shards[block]
    sentences = np.arange(len(shard.sentence_ends))
    document = np.searchsorted(shard.document_ends, sentences, side="right")  # of each sentence, within the shard
    # With a [SEP] counted before each document, what stands between two places is the difference of two numbers.
    ends, ends_with_breaks = shard.sentence_ends.tolist(), (shard.sentence_ends + document).tolist()
    documents = document.tolist()
    draws = targets(settings, generator, num_more=0)
    rows: list[tuple[int, int, int, int]] = []
    for sentence, stop in _stretches(part.spans(block)):
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
    return BlockPlan(_records(rows, part.corpus, block), Counts(len(rows), sum(row[2] for row in rows)))


def _stretches(spans: list[Span]) -> list[tuple[int, int]]:
    """Sentences, from … to, between which no document is left out: an instance is one slice of the corpus."""
    stretches: list[tuple[int, int]] = []
    for _, first, stop in spans:
        if stretches and stretches[-1][1] == first:
            first = stretches.pop()[0]
        stretches.append((first, stop))
    return stretches


def _records(rows: list[tuple[int, int, int, int]], corpus: Corpus, block: int) -> NDArray[Any]:
    records = np.array(rows, ROW_RECORD)
    records["start"] += np.uint64(corpus.piece_offsets[block])
    records["first_document"] += np.uint64(corpus.document_offsets[block])
    return records
