"""Which pieces occur together in a corpus, as vectors: pieces in similar contexts have similar vectors.

1. Count every pair of pieces at most five apart, near ones more than far ones. Only the most frequent pieces count as
   contexts, so the table of pieces × contexts stays below MAX_CELLS, and a large corpus is sampled.
2. Convert counts to positive pointwise mutual information, max(0, log p(piece, context) / (p(piece) p(context))),
   with the distribution of contexts raised to the power 3/4 (Levy, Goldberg and Dagan, 2015).
3. Factorize the table: the vectors are U √S of its truncated singular value decomposition, computed by random
   projection with power iterations (Halko, Martinsson and Tropp, 2011).
Counts are integers, so their order does not matter; everything random is a function of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.shards import Corpus
from bertmill.randomness import keyed_generator

WEIGHTS = (4, 3, 2, 1, 1)  # of a pair of pieces 1, 2, … apart
MAX_CELLS = 1 << 28  # 1 GiB
CONTEXT_POWER = 0.75
CHUNK_PIECES = 1 << 21
POWER_ITERATIONS = 3
EXTRA_DIMENSIONS = 16  # of the random projection; they make the last vectors more exact
_ROWS_AT_ONCE = 1 << 10

Floats = NDArray[np.float32]
OnProgress = Callable[[float], None]


def piece_counts(corpus: Corpus, max_pieces: int) -> NDArray[np.int64]:
    """How often each piece of the vocabulary occurs in a sample of the corpus."""
    counts = np.zeros(corpus.vocabulary_size, np.int64)
    for pieces in sample(corpus, max_pieces):
        counts += np.bincount(pieces, minlength=corpus.vocabulary_size)
    return counts


def piece_vectors(
    corpus: Corpus,
    counts: NDArray[np.int64],
    dimensions: int,
    *,
    max_pieces: int,
    max_contexts: int,
    seed: int,
    on_progress: OnProgress,
) -> Floats:
    """A vector per piece of the vocabulary, largest dimension first; zero for pieces that the sample does not have."""
    num_contexts = min(corpus.vocabulary_size, max_contexts, MAX_CELLS // corpus.vocabulary_size)
    contexts = np.argsort(-counts, kind="stable")[:num_contexts]
    table = count_pairs(corpus, contexts, max_pieces, lambda share: on_progress(0.7 * share))
    information = positive_information(table)
    vectors = factorize(information, min(dimensions, num_contexts), seed)
    on_progress(1.0)
    return vectors


def sample(corpus: Corpus, max_pieces: int) -> Iterator[NDArray[Any]]:
    """Evenly spaced stretches of the corpus, all of it if it has no more than `max_pieces`."""
    num_chunks = -(-corpus.num_pieces // CHUNK_PIECES)
    taken = min(CHUNK_PIECES, max(1, max_pieces // num_chunks))
    for start in range(0, corpus.num_pieces, CHUNK_PIECES):
        yield corpus.pieces(start, min(start + taken, corpus.num_pieces))


def count_pairs(
    corpus: Corpus, contexts: NDArray[np.int64], max_pieces: int, on_progress: OnProgress
) -> NDArray[np.int32]:
    """Weighted counts of pieces × contexts, in both directions."""
    num_contexts = len(contexts)
    column = np.full(corpus.vocabulary_size, -1, np.int64)
    column[contexts] = np.arange(num_contexts)
    table = np.zeros((corpus.vocabulary_size, num_contexts), np.int32)
    cells = table.reshape(-1)
    num_chunks = -(-corpus.num_pieces // CHUNK_PIECES)
    for number, pieces in enumerate(sample(corpus, max_pieces)):
        rows, columns = pieces.astype(np.int64) * num_contexts, column[pieces]
        for distance, weight in enumerate(WEIGHTS, start=1):
            for row, other in ((rows[:-distance], columns[distance:]), (rows[distance:], columns[:-distance])):
                keys = (row + other)[other >= 0].astype(np.uint32)
                keys.sort()
                firsts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
                cells[keys[firsts]] += weight * np.diff(firsts, append=len(keys)).astype(np.int32)
        on_progress((number + 1) / num_chunks)
    return table


def positive_information(table: NDArray[np.int32]) -> Floats:
    """The positive pointwise mutual information, in the memory of `table`."""
    information = table.view(np.float32)
    context_totals = table.sum(0, dtype=np.float64) ** CONTEXT_POWER
    log_context = np.log(np.maximum(context_totals / context_totals.sum(), 1e-30)).astype(np.float32)
    for start in range(0, len(table), _ROWS_AT_ONCE):
        counts = table[start : start + _ROWS_AT_ONCE].astype(np.float32)
        log_piece = np.log(np.maximum(counts.sum(1, keepdims=True, dtype=np.float64), 1.0)).astype(np.float32)
        with np.errstate(divide="ignore"):
            values = np.log(counts) - log_piece - log_context
        information[start : start + _ROWS_AT_ONCE] = np.maximum(values, 0.0)
    return information


def factorize(matrix: Floats, rank: int, seed: int) -> Floats:
    """U √S of the `rank` largest singular values, largest first."""
    width = min(rank + EXTRA_DIMENSIONS, *matrix.shape)
    basis = keyed_generator(seed, "random projection").standard_normal((matrix.shape[1], width), np.float32)
    basis = np.linalg.qr(matrix @ basis)[0]
    for _ in range(POWER_ITERATIONS):
        basis = np.linalg.qr(matrix.T @ basis)[0]
        basis = np.linalg.qr(matrix @ basis)[0]
    left, values, _ = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    vectors: Floats = (basis @ left[:, :rank]) * np.sqrt(values[:rank])
    return vectors
