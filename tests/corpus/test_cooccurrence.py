from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertmill.corpus import cooccurrence
from bertmill.corpus.cooccurrence import WEIGHTS, count_pairs, factorize, piece_vectors, positive_information, sample
from bertmill.corpus.shards import Corpus
from tests.corpus.factory import write_corpus

VOCABULARY = 40
CONTEXTS = np.array([7, 5, 11, 30])


def corpus_of(pieces: list[int] | NDArray[np.int64], folder: Path) -> Corpus:
    array = np.array(pieces, np.int64)
    return write_corpus(folder, [[len(array)]], pieces=array, vocabulary_size=VOCABULARY)


@given(st.lists(st.integers(5, VOCABULARY - 1), min_size=1, max_size=60), st.integers(3, 70))
def test_pairs_are_counted_in_both_directions_within_each_stretch(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], chunk: int
) -> None:
    corpus = corpus_of(pieces, tmp_path_factory.mktemp("corpus") / "corpus")
    expected = np.zeros((VOCABULARY, len(CONTEXTS)), int)
    for start in range(0, len(pieces), chunk):
        stretch = pieces[start : start + chunk]
        for here, piece in enumerate(stretch):
            for there, other in enumerate(stretch):
                if 0 < abs(here - there) <= len(WEIGHTS) and other in CONTEXTS:
                    expected[piece, CONTEXTS.tolist().index(other)] += WEIGHTS[abs(here - there) - 1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "CHUNK_PIECES", chunk)
        assert (count_pairs(corpus, CONTEXTS, 1000, lambda share: None) == expected).all()


def test_a_sample_is_spread_over_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = np.arange(1000) % VOCABULARY
    corpus = corpus_of(pieces, tmp_path / "corpus")
    monkeypatch.setattr(cooccurrence, "CHUNK_PIECES", 100)
    assert (np.concatenate(list(sample(corpus, 2000))) == pieces).all()
    stretches = list(sample(corpus, 200))
    assert [stretch.tolist() for stretch in stretches] == [
        pieces[start : start + 20].tolist() for start in range(0, 1000, 100)
    ]


def test_information_is_the_positive_log_ratio_of_probabilities() -> None:
    counts = np.random.default_rng(0).poisson(1.0, (2000, 30)).astype(np.int32)
    context = counts.sum(0) ** 0.75
    with np.errstate(divide="ignore"):
        expected = np.log(counts / counts.sum(1, keepdims=True) / (context / context.sum()))
    np.testing.assert_allclose(positive_information(counts.copy()), np.maximum(expected, 0), atol=1e-5)


def test_a_piece_without_pairs_has_no_information() -> None:
    assert (positive_information(np.array([[0, 0], [3, 1], [0, 2]], np.int32))[0] == 0).all()


def test_the_factors_are_those_of_the_singular_value_decomposition() -> None:
    random = np.random.default_rng(0)
    matrix = (
        random.standard_normal((200, 60)) @ np.diag(0.8 ** np.arange(60)) @ random.standard_normal((60, 90))
    ).astype(np.float32)
    vectors = factorize(matrix, 10, seed=3)
    left, values, _ = np.linalg.svd(matrix)
    expected = left[:, :10] * np.sqrt(values[:10])
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-3)
    assert (factorize(matrix, 10, seed=3) == vectors).all()


def test_pieces_in_similar_contexts_have_similar_vectors(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    # 10 and 11 stand between 20 and 21, 12 and 13 between 22 and 23.
    groups = [
        (20, random.choice([10, 11]), 21) if random.random() < 0.5 else (22, random.choice([12, 13]), 23)
        for _ in range(2000)
    ]
    corpus = corpus_of(np.array(groups).reshape(-1), tmp_path / "corpus")
    shares: list[float] = []
    counts = cooccurrence.piece_counts(corpus, 1 << 20)
    vectors = piece_vectors(corpus, counts, 8, max_pieces=1 << 20, max_contexts=30, seed=0, on_progress=shares.append)
    unit = vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=1, keepdims=True))
    assert unit[10] @ unit[11] > 0.95 > 0.8 > unit[10] @ unit[12]
    assert np.abs(vectors[14]).max() < 1e-6
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_table_of_a_large_vocabulary_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "MAX_CELLS", 10 * VOCABULARY)
    corpus = corpus_of(np.random.default_rng(0).integers(5, VOCABULARY, 3000), tmp_path / "corpus")
    seen: list[tuple[int, ...]] = []
    count = cooccurrence.count_pairs
    monkeypatch.setattr(cooccurrence, "count_pairs", lambda *given: seen.append(given[1].shape) or count(*given))
    vectors = piece_vectors(
        corpus,
        cooccurrence.piece_counts(corpus, 3000),
        32,
        max_pieces=3000,
        max_contexts=1 << 13,
        seed=0,
        on_progress=lambda share: None,
    )
    assert seen == [(10,)]
    assert vectors.shape == (VOCABULARY, 10)
