"""Co-occurrence of pieces: counts of pairs and their positive pointwise mutual information (PPMI).

Pairs may span sentences and documents. Held-out documents are not counted. Only the most frequent pieces are contexts,
so that a table of pieces × contexts stays below MAX_CELLS, and a large corpus is sampled. Counts are integers: the
order in which they are added does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.parts import DocumentPart

MAX_CELLS = 1 << 28  # of 4 bytes
CONTEXT_POWER = 0.75
CHUNK_PIECES = 1 << 21
_ROWS_AT_ONCE = 1 << 10

Floats = NDArray[np.float32]
OnProgress = Callable[[float], None]


def piece_counts(part: DocumentPart, max_pieces: int) -> NDArray[np.int64]:
    """How often each piece of the vocabulary occurs in a sample of the documents."""
    counts = np.zeros(part.corpus.vocabulary_size, np.int64)
    for pieces in sample(part, max_pieces):
        counts += np.bincount(pieces, minlength=len(counts))
    return counts


def most_frequent(counts: NDArray[np.int64], max_contexts: int) -> NDArray[np.int64]:
    """The pieces that serve as contexts, the most frequent first."""
    return np.argsort(-counts, kind="stable")[: min(max_contexts, MAX_CELLS // len(counts))]


def count_pairs(
    part: DocumentPart,
    contexts: NDArray[np.int64],
    weights: Mapping[int, int],
    *,
    max_pieces: int,
    on_progress: OnProgress = lambda _: None,
) -> NDArray[np.int32]:
    """How often each piece has each context at the offsets of `weights`, times the weight of the offset."""
    column = np.full(part.corpus.vocabulary_size, -1, np.int64)
    column[contexts] = np.arange(len(contexts))
    table = np.zeros((len(column), len(contexts)), np.int32)
    cells = table.reshape(-1)
    for pieces in sample(part, max_pieces, on_progress):
        rows, columns = pieces.astype(np.int64) * len(contexts), column[pieces]
        for offset, weight in weights.items():
            first, last = max(0, -offset), min(len(pieces), len(pieces) - offset)  # pieces whose context is inside
            context = columns[first + offset : max(first, last) + offset]
            keys = (rows[first : max(first, last)] + context)[context >= 0].astype(np.uint32)
            keys.sort()  # adding up runs of equal keys is much faster than adding keys in any order
            starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] + 1))
            cells[keys[starts]] += weight * np.diff(starts, append=len(keys)).astype(np.int32)
    return table


def sample(part: DocumentPart, max_pieces: int, on_progress: OnProgress = lambda _: None) -> Iterator[NDArray[Any]]:
    """The same fraction of every shard, from its beginning; all pieces if there are no more than `max_pieces`."""
    fraction = min(1.0, max_pieces / part.corpus.num_pieces)
    num_shards = len(part.corpus.shards)
    for number in range(num_shards):
        pieces = part.pieces(number)
        stop = math.ceil(fraction * len(pieces))
        for start in range(0, stop, CHUNK_PIECES):
            on_progress((number + start / stop) / num_shards)
            yield pieces[start : min(start + CHUNK_PIECES, stop)]
    on_progress(1.0)


def positive_mutual_information(table: NDArray[np.int32]) -> Floats:
    """Positive pointwise mutual information, max(0, log p(context | piece) / p(context)), in the memory of `table`.

    The distribution of contexts is raised to the power 3/4, so that rare contexts do not dominate (Levy, Goldberg and
    Dagan, 2015).
    """
    information = table.view(np.float32)
    totals = table.sum(0, dtype=np.float64) ** CONTEXT_POWER
    log_context = np.log(np.maximum(totals, 1e-30) / max(totals.sum(), 1e-30)).astype(np.float32)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        counts = table[start : start + _ROWS_AT_ONCE].astype(np.float32)
        log_piece = np.log(np.maximum(counts.sum(1, keepdims=True, dtype=np.float64), 1.0)).astype(np.float32)
        with np.errstate(divide="ignore"):
            values = np.log(counts) - log_piece - log_context
        information[start : start + _ROWS_AT_ONCE] = np.maximum(values, 0.0)
    return information
