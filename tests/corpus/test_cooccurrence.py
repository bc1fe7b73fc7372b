from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bertmill.corpus import cooccurrence
from bertmill.corpus.cooccurrence import count_pairs, most_frequent, piece_counts, positive_mutual_information, sample
from bertmill.corpus.parts import DocumentPart, PartName
from tests.corpus.factory import write_corpus

VOCABULARY = 40
CONTEXTS = np.array([7, 5, 11, 30])
PARTS: tuple[PartName, ...] = ("train", "heldout")
WEIGHTS = {-1: 4, 1: 4, 2: 3, -7: 1}


def part_of(pieces: list[int] | NDArray[np.int64], folder: Path) -> DocumentPart:
    array = np.array(pieces, np.int64)
    return DocumentPart(write_corpus(folder, [[len(array)]], pieces=array, vocabulary_size=VOCABULARY), "train", 0.0)


@given(st.lists(st.integers(5, VOCABULARY - 1), min_size=1, max_size=60), st.integers(3, 70))
def test_pairs_are_counted_at_their_offsets_within_each_stretch(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[int], chunk: int
) -> None:
    part = part_of(pieces, tmp_path_factory.mktemp("corpus") / "corpus")
    expected = np.zeros((VOCABULARY, len(CONTEXTS)), int)
    for start in range(0, len(pieces), chunk):
        stretch = pieces[start : start + chunk]
        for here, piece in enumerate(stretch):
            for there, context in enumerate(stretch):
                if context in CONTEXTS:
                    expected[piece, CONTEXTS.tolist().index(context)] += WEIGHTS.get(there - here, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "CHUNK_PIECES", chunk)
        assert (count_pairs(part, CONTEXTS, WEIGHTS, max_pieces=1000) == expected).all()


def test_progress_rises_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "CHUNK_PIECES", 100)
    shares: list[float] = []
    part = part_of([*range(5, 40)] * 10, tmp_path / "corpus")
    count_pairs(part, CONTEXTS, WEIGHTS, max_pieces=350, on_progress=shares.append)
    assert shares == pytest.approx([0, 2 / 7, 4 / 7, 6 / 7, 1])


def test_progress_rises_to_the_end_also_if_documents_are_held_out(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[5, 5]] * 20, sentences_per_shard=7, vocabulary_size=VOCABULARY)
    shares: list[float] = []
    part = DocumentPart(corpus, "train", 0.5)
    count_pairs(part, CONTEXTS, WEIGHTS, max_pieces=1000, on_progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_contexts_are_the_most_frequent_pieces_that_the_table_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([3, 9, 0, 9, 5])
    assert most_frequent(counts, 3).tolist() == [1, 3, 4]
    monkeypatch.setattr(cooccurrence, "MAX_CELLS", 14)
    assert most_frequent(counts, 3).tolist() == [1, 3]


def test_a_sample_has_the_beginning_of_every_shard(tmp_path: Path) -> None:
    pieces = np.arange(1000) % VOCABULARY
    corpus = write_corpus(
        tmp_path / "corpus", [[10] * 100], sentences_per_shard=20, pieces=pieces, vocabulary_size=VOCABULARY
    )
    part = DocumentPart(corpus, "train", 0.0)
    assert (np.concatenate(list(sample(part, 2000))) == pieces).all()
    stretches = [stretch.tolist() for stretch in sample(part, 100)]
    assert stretches == [pieces[start : start + 20].tolist() for start in range(0, 1000, 200)]


def test_held_out_documents_do_not_count(tmp_path: Path) -> None:
    documents = np.repeat(np.arange(5, 25), 10)  # each document is one piece, ten times
    corpus = write_corpus(
        tmp_path / "corpus", [[5, 5]] * 20, sentences_per_shard=7, pieces=documents, vocabulary_size=VOCABULARY
    )
    counts = {name: piece_counts(DocumentPart(corpus, name, 0.2), 1000) for name in PARTS}
    assert counts["heldout"].sum() == 40
    assert counts["train"].sum() == 160
    assert not (counts["heldout"] * counts["train"]).any()


def test_information_is_the_positive_log_ratio_of_probabilities() -> None:
    counts = np.random.default_rng(0).poisson(1.0, (2000, 30)).astype(np.int32)
    context = counts.sum(0) ** 0.75
    with np.errstate(divide="ignore"):
        expected = np.log(counts / counts.sum(1, keepdims=True) / (context / context.sum()))
    np.testing.assert_allclose(positive_mutual_information(counts.copy()), np.maximum(expected, 0), atol=1e-5)


def test_a_piece_without_pairs_has_no_information() -> None:
    assert (positive_mutual_information(np.array([[0, 0], [3, 1], [0, 2]], np.int32))[0] == 0).all()


def test_counts_of_pieces(tmp_path: Path) -> None:
    counts = piece_counts(part_of([7, 5, 7, 9], tmp_path / "corpus"), 1000)
    assert {piece: int(count) for piece, count in enumerate(counts) if count} == {5: 1, 7: 2, 9: 1}
