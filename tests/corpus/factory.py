"""Small corpora for tests, in their format on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.masking import VocabularyIds
from bertmill.corpus.shards import Corpus, pack_words, piece_type, shard_file
from bertmill.storage import write_manifest

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL_IDS = VocabularyIds(size=1000, cls=2, sep=3, mask=4, special=(0, 1, 2, 3, 4))

Document = Sequence[int]  # the lengths of its sentences

STATISTICS = {
    "unigram_entropy": 1.5,
    "unknown_share": 0.0,
    "pieces_used": 3,
    "duplicate_sentences": 0,
    "duplicate_documents": 0,
    "duplicates_from_one_in": 1,
    "short_documents": 0,
    "instances_of_128": 1,
    "longest_sentence": 4,
    "sentence_lengths": [1, 2],
    "document_lengths": [0, 0, 1],
}
FACTS = {
    "shards": 1,
    "pieces": 4,
    "sentences": 3,
    "documents": 1,
    "dropped_sentences": 0,
    "text_bytes": 9,
    "chinese_words": None,
    "vocabulary_size": SPECIAL_IDS.size,
    "vocabulary_sha256": "0" * 64,
    "sha256": "f" * 64,
    "statistics": STATISTICS,
}


def write_corpus(
    folder: Path,
    documents: Sequence[Document],
    *,
    sentences_per_shard: int = 1 << 30,
    pieces: NDArray[np.int64] | None = None,
    begins_word: NDArray[np.bool_] | None = None,
    vocabulary_size: int = SPECIAL_IDS.size,
) -> Corpus:
    """Write a corpus of documents with these sentence lengths. `pieces` defaults to random ordinary pieces."""
    lengths = np.array([length for document in documents for length in document], np.int64)
    document_ends = np.cumsum([len(document) for document in documents])
    random = np.random.default_rng(len(lengths))
    pieces = random.integers(5, vocabulary_size, lengths.sum()) if pieces is None else pieces
    begins_word = random.random(lengths.sum()) < 0.7 if begins_word is None else begins_word
    ends = np.concatenate([[0], np.cumsum(lengths)])
    folder.mkdir(parents=True)
    num_shards = max(1, -(-len(lengths) // sentences_per_shard))
    for shard in range(num_shards):
        first, last = shard * sentences_per_shard, min((shard + 1) * sentences_per_shard, len(lengths))
        here = slice(ends[first], ends[last])
        own_documents = document_ends[(document_ends > first) & (document_ends <= last)] - first
        contents = {
            "pieces": pieces[here].astype(piece_type(vocabulary_size)),
            "words": pack_words(begins_word[here]),
            "sentences": (ends[first + 1 : last + 1] - ends[first]).astype("<u4"),
            "documents": own_documents.astype("<u4"),
        }
        for kind, content in contents.items():
            (folder / shard_file(shard, kind)).write_bytes(content.tobytes())
    identity = hashlib.sha256(pieces.tobytes() + lengths.tobytes() + document_ends.tobytes()).hexdigest()
    facts = {**FACTS, "shards": num_shards, "vocabulary_size": vocabulary_size, "sha256": identity}
    write_manifest(folder, facts={"corpus": facts})
    return Corpus(folder)


def random_documents(num_sentences: int, *, mean_length: int = 25, seed: int = 0) -> list[list[int]]:
    """Return documents of about 30 sentences, with sentence lengths distributed as in English prose."""
    random = np.random.default_rng(seed)
    lengths = np.maximum(1, random.gamma(2.5, mean_length / 2.5, num_sentences)).astype(int).tolist()
    ends = [0, *np.unique(random.integers(1, num_sentences, num_sentences // 30)).tolist(), num_sentences]
    return [lengths[first:last] for first, last in pairwise(ends)]
