"""Corpus statistics match a plain count of sentences and documents, across shards and in bounded memory."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus import statistics
from bertmill.corpus.shards import Shard
from bertmill.corpus.statistics import Repeats, compute_statistics, summarize

Document = list[list[int]]
SIZE, UNKNOWN = 6, 1


def shards_of(documents: list[Document], sentences_per_shard: int) -> list[Shard]:
    """Cut documents into shards with a fixed number of sentences, also inside a document."""
    sentences = [sentence for document in documents for sentence in document]
    ends = np.cumsum([len(document) for document in documents])
    shards = []
    for start in range(0, len(sentences), sentences_per_shard):
        part = sentences[start : start + sentences_per_shard]
        here = ends[(ends > start) & (ends <= start + len(part))] - start
        pieces = np.array([piece for sentence in part for piece in sentence], np.uint16)
        sentence_ends = np.cumsum([len(sentence) for sentence in part]).astype(np.uint32)
        shards.append(Shard(pieces, np.zeros(-(-len(pieces) // 8), np.uint8), sentence_ends, here.astype(np.uint32)))
    return shards


def num_repeats(rows: list[Any]) -> int:
    return len(rows) - len(Counter(map(repr, rows)))


sentence = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=20)
document = st.lists(sentence, min_size=1, max_size=6)


@given(st.lists(document, min_size=1, max_size=12), st.integers(1, 5))
def test_statistics_match_a_plain_count(documents: list[Document], sentences_per_shard: int) -> None:
    found = compute_statistics(shards_of(documents, sentences_per_shard), SIZE, UNKNOWN)
    sentences = [sentence for document in documents for sentence in document]
    pieces = [piece for sentence in sentences for piece in sentence]
    lengths = [sum(map(len, document)) for document in documents]
    shares = [count / len(pieces) for count in Counter(pieces).values()]
    assert found["unigram_entropy"] == pytest.approx(-sum(share * math.log(share) for share in shares), abs=1e-6)
    assert found["unknown_share"] == pytest.approx(pieces.count(UNKNOWN) / len(pieces), abs=1e-6)
    assert found["pieces_used"] == len(set(pieces))
    assert found["duplicate_sentences"] == num_repeats(sentences)
    assert found["duplicate_documents"] == num_repeats(documents)
    assert found["short_documents"] == sum(
        len(document) < 2 or length < 16 for document, length in zip(documents, lengths, strict=True)
    )
    assert found["instances_of_128"] == sum(math.ceil(length / 125) for length in lengths)
    assert found["longest_sentence"] == max(map(len, sentences))
    for counts, values in (
        (found["sentence_lengths"], map(len, sentences)),
        (found["document_lengths"], lengths),
    ):
        assert {i: count for i, count in enumerate(counts) if count} == Counter(int(math.log2(v)) for v in values)


def test_reordered_pieces_or_sentences_are_not_duplicates() -> None:
    documents = [[[2, 3], [4]], [[3, 2], [4]], [[4], [2, 3]], [[2], [3, 4]]]
    found = compute_statistics(shards_of(documents, 3), SIZE, UNKNOWN)
    assert found["duplicate_documents"] == 0
    assert found["duplicate_sentences"] == 8 - len({(2, 3), (4,), (3, 2), (2,), (3, 4)})


def test_too_many_hashes_are_sampled_and_the_estimate_is_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "MAX_HASHES", 4000)
    repeats = Repeats()
    hashes = np.random.default_rng(3).integers(1 << 63, size=40_000, dtype=np.uint64)
    for part in np.array_split(np.concatenate([hashes, hashes[:10_000]]), 13):
        repeats.add(part)
    assert repeats.one_in >= 8
    assert repeats.count() == pytest.approx(10_000, rel=0.15)
    assert len(repeats._kept) <= 4000


def facts(**findings: object) -> dict[str, Any]:
    found = {
        "unigram_entropy": 7.5,
        "unknown_share": 0.001,
        "duplicate_sentences": 10,
        "duplicate_documents": 0,
        "duplicates_from_one_in": 1,
        "short_documents": 3,
        "instances_of_128": 1234,
    }
    return {"documents": 100, "sentences": 1000, "statistics": {**found, **findings}}


def test_the_summary_gives_advice_only_where_it_is_needed() -> None:
    plain = "\n".join(summarize(facts()))
    assert "7.50 nats" in plain
    assert "10 sentences (1.0%)" in plain
    assert "about 1,234 per epoch, of up to 128" in plain
    for words in ("warning", "use a vocabulary", "remove repeated", "estimated"):
        assert words not in plain
    assert "use a vocabulary that fits this text" in "\n".join(summarize(facts(unknown_share=0.2)))
    assert "remove repeated documents first" in "\n".join(summarize(facts(duplicate_documents=50)))
    assert "estimated from one text in 8" in "\n".join(summarize(facts(duplicates_from_one_in=8)))
    assert "train with mlm or mlm+sop" in "\n".join(summarize({**facts(), "documents": 1}))
