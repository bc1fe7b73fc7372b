"""Look up boundaries of sentences and documents by their numbers in the whole corpus, across shards.

A shard counts from its own start. Here, everything counts from the start of the corpus: sentence number → piece,
document number → sentence. Numbers are arrays, and each shard is accessed once for all of its numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.shards import Corpus, Shard

Numbers = NDArray[np.int64]


def sentence_ends(corpus: Corpus, sentences: Numbers) -> Numbers:
    """Return where each of `sentences` ends, in pieces."""
    ends = _look_up(corpus, sentences, corpus.sentence_offsets, lambda shard: shard.sentence_ends)
    return ends + corpus.piece_offsets[shards_of(sentences, corpus.sentence_offsets)]


def sentence_starts(corpus: Corpus, sentences: Numbers) -> Numbers:
    """Return where each of `sentences` begins, in pieces: at the end of the previous sentence."""
    return np.where(sentences > 0, sentence_ends(corpus, np.maximum(sentences - 1, 0)), 0)


def document_ends(corpus: Corpus, documents: Numbers) -> Numbers:
    """Return where each of `documents` ends, in sentences."""
    ends = _look_up(corpus, documents, corpus.document_offsets, lambda shard: shard.document_ends)
    return ends + corpus.sentence_offsets[shards_of(documents, corpus.document_offsets)]


def document_starts(corpus: Corpus, documents: Numbers) -> Numbers:
    """Return where each of `documents` begins, in sentences: at the end of the previous document."""
    return np.where(documents > 0, document_ends(corpus, np.maximum(documents - 1, 0)), 0)


def shards_of(numbers: Numbers, offsets: Numbers) -> Numbers:
    """Return the shard of each number. An empty shard, which has the same offset as the next one, has no numbers."""
    return np.searchsorted(offsets, numbers, side="right") - 1


def whole_sentences(corpus: Corpus, sentences: Numbers, stops: Numbers, wanted: Numbers, rooms: Numbers) -> Numbers:
    """For each of `sentences`, count the pieces of whole sentences from there on, until there are `wanted` pieces.

    The first sentence always counts. Counting stops before a sentence that

    - does not fit in `rooms`,
    - is at or after the sentence number in `stops`, or
    - is in the next shard.
    """
    lengths = np.empty(len(sentences), np.int64)
    shards = shards_of(sentences, corpus.sentence_offsets)
    for number in np.unique(shards):
        is_here = shards == number
        ends = corpus.shards[int(number)].sentence_ends
        first = sentences[is_here] - corpus.sentence_offsets[number]
        start = np.where(first > 0, ends[np.maximum(first - 1, 0)], 0).astype(np.int64)
        # Search for numbers of the same type as `ends`. Otherwise, numpy would copy the whole array.
        reaching = np.searchsorted(ends, np.maximum(start + wanted[is_here], 0).astype(ends.dtype), side="left")
        too_much = np.searchsorted(ends, (start + rooms[is_here]).astype(ends.dtype), side="right")
        stop = np.minimum(stops[is_here] - corpus.sentence_offsets[number], len(ends))
        last = np.maximum(np.minimum(np.minimum(reaching, too_much - 1), stop - 1), first)
        lengths[is_here] = ends[last] - start
    return lengths


def _look_up(corpus: Corpus, numbers: Numbers, offsets: Numbers, ends_of: Callable[[Shard], NDArray[Any]]) -> Numbers:
    """Return the entry of each number in the array of its shard, without adding offsets."""
    found = np.empty(len(numbers), np.int64)
    shards = shards_of(numbers, offsets)
    for shard in np.unique(shards):
        is_here = shards == shard
        found[is_here] = ends_of(corpus.shards[int(shard)])[numbers[is_here] - offsets[shard]]
    return found
