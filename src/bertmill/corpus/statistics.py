"""Corpus statistics, reported before training: duplicates, unknown pieces, short documents, entropy.

The statistics take one pass over the shards, in constant memory. Duplicates are found by 64-bit hashes of sentences and
documents: h = Σ value[piece] · base^position, and likewise for a document from the hashes of its sentences. If there
are too many hashes to keep, only those whose last bits are zero are kept. This keeps either all copies of a text or
none, so the fraction of duplicates remains correct.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.shards import Shard
from bertmill.randomness import keyed_generator
from bertmill.text.printable import counted

MAX_HASHES = 1 << 23
SHORT_SENTENCES = 2  # documents with fewer sentences have no pair of sentences
SHORT_PIECES = 16
LENGTH = 128  # of the instances whose number is estimated
_PAIR_SPECIALS = 3
_BASE = 0x9E3779B97F4A7C15  # odd; the bits of the golden ratio
_WORD = 1 << 64
_SOME_UNKNOWN = 0.01
_MANY = 0.05

Hashes = NDArray[np.uint64]


class Repeats:
    """Counts duplicate texts by their hashes."""

    def __init__(self) -> None:
        self._kept: Hashes = np.empty(0, np.uint64)
        self._new: list[Hashes] = []
        self._num_new = 0
        self.one_in = 1  # one in this many hashes is kept

    def add(self, hashes: Hashes) -> None:
        """Add the hashes of some texts."""
        chosen = hashes[hashes % self.one_in == 0]
        self._new.append(chosen)
        self._num_new += len(chosen)
        while len(self._kept) + self._num_new > MAX_HASHES:
            self.one_in *= 2
            self._kept = self._kept_now()
            self._kept = self._kept[self._kept % self.one_in == 0]

    def _kept_now(self) -> Hashes:
        kept = np.concatenate([self._kept, *self._new])
        self._new, self._num_new = [], 0
        return kept

    def count(self) -> int:
        """Return the number of texts that repeat another one. It is an estimate if not all hashes were kept."""
        kept = self._kept_now()
        return (len(kept) - len(np.unique(kept))) * self.one_in


class _Documents:
    """Lengths and hashes of documents, combined across shards."""

    def __init__(self) -> None:
        self._pieces = self._sentences = self._hash = 0  # of the document that continues in the next shard

    def add(self, shard: Shard, sentence_hashes: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int64], Hashes]:
        """Return the numbers of pieces and sentences and the hash of each document that ends in this shard."""
        num_sentences = len(shard.sentence_ends)
        ends = np.append(shard.document_ends.astype(np.int64), num_sentences)  # the last one may continue
        starts = np.append(0, ends[:-1])
        piece_ends = np.append(0, shard.sentence_ends.astype(np.int64))
        pieces, sentences = piece_ends[ends] - piece_ends[starts], ends - starts
        hashes = _hash_rows(sentence_hashes, starts, sentences)
        shift = np.array([pow(_BASE, self._sentences, _WORD), self._hash], np.uint64)
        hashes[:1] = hashes[:1] * shift[:1] + shift[1:]
        pieces[0] += self._pieces
        sentences[0] += self._sentences
        self._pieces, self._sentences, self._hash = int(pieces[-1]), int(sentences[-1]), int(hashes[-1])
        return pieces[:-1], sentences[:-1], hashes[:-1]


def _hash_rows(values: Hashes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """Return Σ values · base^position for each row of a flat array; 0 for an empty row."""
    powers = np.full(int(lengths.max(initial=0)) + 1, _BASE, np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers)
    positions = np.arange(len(values)) - np.repeat(starts, lengths)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values * powers[positions])])
    hashes: Hashes = sums[starts + lengths] - sums[starts]
    return hashes


def compute_statistics(shards: Iterable[Shard], vocabulary_size: int, unknown_id: int) -> dict[str, Any]:
    """Return the statistics as the manifest stores them."""
    values = keyed_generator(0, "statistics").integers(_WORD, size=vocabulary_size, dtype=np.uint64)
    counts = np.zeros(vocabulary_size, np.int64)
    sentence_repeats, document_repeats, documents = Repeats(), Repeats(), _Documents()
    sentence_lengths, document_lengths = np.zeros(32, np.int64), np.zeros(64, np.int64)
    num_short = num_instances = num_documents = longest = 0
    for shard in shards:
        piece_ids = shard.pieces[:]
        counts += np.bincount(piece_ids, minlength=vocabulary_size)
        ends = shard.sentence_ends.astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        hashes = _hash_rows(values[piece_ids], ends - lengths, lengths)
        sentence_repeats.add(hashes)
        sentence_lengths += _by_power_of_two(lengths, len(sentence_lengths))
        pieces, sentences, hashes = documents.add(shard, hashes)
        document_repeats.add(hashes)
        document_lengths += _by_power_of_two(pieces, len(document_lengths))
        num_documents += len(pieces)
        num_short += int(((sentences < SHORT_SENTENCES) | (pieces < SHORT_PIECES)).sum())
        num_instances += int((-(-pieces // (LENGTH - _PAIR_SPECIALS))).sum())
        longest = max(longest, int(lengths.max(initial=0)))
    return {
        "unigram_entropy": round(_entropy(counts), 6),
        "unknown_share": round(int(counts[unknown_id]) / int(counts.sum()), 6),
        "pieces_used": int((counts > 0).sum()),
        "duplicate_sentences": sentence_repeats.count(),
        "duplicate_documents": document_repeats.count(),
        "duplicates_from_one_in": max(sentence_repeats.one_in, document_repeats.one_in),
        "short_documents": num_short,
        "instances_of_128": num_instances,
        "longest_sentence": longest,
        "sentence_lengths": np.trim_zeros(sentence_lengths, "b").tolist(),
        "document_lengths": np.trim_zeros(document_lengths, "b").tolist(),
    }


def _entropy(counts: NDArray[np.int64]) -> float:
    """Return the entropy in nats: the loss of a model that knows only how often each piece occurs."""
    fractions = counts[counts > 0] / counts.sum()
    return float(-(fractions * np.log(fractions)).sum())


def _by_power_of_two(lengths: NDArray[np.int64], num_bins: int) -> NDArray[np.int64]:
    """Count the lengths from 2^i to 2^(i+1) - 1, for each i."""
    exponents = np.frexp(lengths.astype(np.float64))[1] - 1
    return np.bincount(exponents, minlength=num_bins)


def summarize(facts: dict[str, Any]) -> list[str]:
    """Format the statistics in the `facts` of a corpus as lines, with advice where something is wrong."""
    found = facts["statistics"]
    one_in = found["duplicates_from_one_in"]
    estimated = "" if one_in == 1 else f", estimated from one text in {one_in}"
    documents, sentences = facts["documents"], facts["sentences"]
    lines = [
        f"entropy:    {found['unigram_entropy']:.2f} nats per piece (the loss of a model that knows only frequencies)",
        f"unknown:    {found['unknown_share']:.2%} of the pieces"
        + ("; use a vocabulary that fits this text" if found["unknown_share"] > _SOME_UNKNOWN else ""),
        f"duplicates: {_part(found['duplicate_documents'], documents, 'document')}, "
        f"{_part(found['duplicate_sentences'], sentences, 'sentence')}{estimated}"
        + ("; remove repeated documents first" if found["duplicate_documents"] > _MANY * documents else ""),
        f"short:      {_part(found['short_documents'], documents, 'document')} with fewer than "
        f"{SHORT_SENTENCES} sentences or {SHORT_PIECES} pieces",
        f"instances:  about {found['instances_of_128']:,} per epoch, of up to {LENGTH} pieces each",
    ]
    if documents == 1:
        lines.append(
            "warning:    the corpus is a single document, so next-sentence prediction has no other document to draw "
            "from; train with mlm or mlm+sop, or set `document` to split the text into documents"
        )
    return lines


def _part(count: int, total: int, noun: str) -> str:
    return f"{counted(count, noun)} ({count / total:.1%})"
