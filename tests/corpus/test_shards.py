"""A corpus folder is read back as it was written, for any division into shards, and a damaged one is rejected."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus import shards
from bertmill.corpus.shards import Corpus, pack_words, piece_type, shard_file
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.storage import MANIFEST, read_json, write_manifest
from bertmill.text.vocabulary import SPECIAL_TOKENS
from bertmill.text.wordpiece import WordPiece
from tests.corpus.factory import FACTS, STATISTICS

Sentence = list[tuple[int, bool]]  # (piece, whether it begins a word)
Document = list[Sentence]
SIZE = 100


def write(folder: Path, content: list[list[Document]], *, size: int = SIZE, open_end: bool = False) -> Path:
    """Write a corpus, shard by shard. With `open_end`, the last document of a shard continues in the next one."""
    folder.mkdir(exist_ok=True)
    for number, documents in enumerate(content):
        sentences = [sentence for document in documents for sentence in document]
        rows = [row for sentence in sentences for row in sentence]
        ends = np.cumsum([len(document) for document in documents])
        columns = {
            "pieces": np.array([piece for piece, _ in rows], piece_type(size)),
            "words": pack_words(np.array([begins for _, begins in rows], np.bool_)),
            "sentences": np.cumsum([len(sentence) for sentence in sentences]).astype("<u4"),
            "documents": (ends[:-1] if open_end and number < len(content) - 1 else ends).astype("<u4"),
        }
        for kind, column in columns.items():
            (folder / shard_file(number, kind)).write_bytes(column.tobytes())
    facts = {**FACTS, "shards": len(content), "vocabulary_size": size}
    write_manifest(folder, facts={"corpus": facts})
    return folder


sentence = st.lists(st.tuples(st.integers(0, SIZE - 1), st.booleans()), min_size=1, max_size=20)
document = st.lists(sentence, min_size=1, max_size=4)
content = st.lists(st.lists(document, min_size=1, max_size=4), min_size=1, max_size=4)


@given(content=content, open_end=st.booleans(), data=st.data())
def test_any_range_of_pieces_and_words_can_be_read(
    content: list[list[Document]], open_end: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    corpus = Corpus(write(tmp_path_factory.mktemp("corpus"), content, open_end=open_end))
    rows = [row for documents in content for document in documents for sentence in document for row in sentence]
    assert corpus.num_pieces == len(rows)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    for first, last in [(start, stop), (0, len(rows))]:
        assert corpus.pieces(first, last).tolist() == [piece for piece, _ in rows[first:last]]
        assert corpus.begins_word(first, last).tolist() == [begins for _, begins in rows[first:last]]
    assert corpus.num_sentences == sum(len(document) for documents in content for document in documents)
    assert corpus.num_documents == sum(map(len, content)) - (len(content) - 1 if open_end else 0)
    assert [len(shard.sentence_ends) for shard in corpus.shards] == np.diff(corpus.sentence_offsets).tolist()
    assert [len(shard.document_ends) for shard in corpus.shards] == np.diff(corpus.document_offsets).tolist()


def test_more_shards_than_may_be_open_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "MAX_OPEN_SHARDS", 2)
    content: list[list[Document]] = [[[[(number, True)]]] for number in range(10)]
    corpus = Corpus(write(tmp_path / "corpus", content))
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    assert corpus.pieces(0, 10).tolist() == list(range(10))
    assert [corpus.shards[number].pieces[:].item() for number in (9, 0, -1, 5)] == [9, 0, 9, 5]
    assert [shard.pieces[:].item() for shard in corpus.shards] == list(range(10))
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_files + 4
    with pytest.raises(IndexError):
        corpus.shards[10]


def test_statistics_of_an_earlier_version_are_found_under_their_old_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "corpus", [[[[(1, True)]]]])
    facts = read_json(folder / MANIFEST)["corpus"]
    facts["doctor"] = facts.pop("statistics")
    write_manifest(folder, facts={"corpus": facts})
    assert Corpus(folder).facts["statistics"] == STATISTICS


def test_a_large_vocabulary_is_stored_as_wider_numbers(tmp_path: Path) -> None:
    size = (1 << 16) + 1
    corpus = Corpus(write(tmp_path / "corpus", [[[[(size - 1, True), (0, False)]]]], size=size))
    assert corpus.pieces(0, 2).tolist() == [size - 1, 0]
    assert piece_type(1 << 16) == np.uint16
    assert piece_type(size) == np.uint32


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    part: Document = [[(7, True), (8, False)], [(9, True)]]
    return write(tmp_path / "corpus", [[part, part], [part, part]])


@pytest.mark.parametrize("kind", shards.KINDS)
def test_a_shard_that_is_truncated_while_it_is_used_is_an_error(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a truncated memory map would end the process with SIGBUS."""
    monkeypatch.setattr(shards, "MAX_OPEN_SHARDS", 1)
    corpus = Corpus(folder)  # the last shard is open, and the first is opened again
    for number in (0, 1):
        os.truncate(folder / shard_file(number, kind), 0)
    read = corpus.begins_word if kind == "words" else corpus.pieces
    if kind in ("pieces", "words"):
        with pytest.raises(IntegrityError, match=rf"shard-00001\.{kind}: was truncated while it was in use"):
            read(corpus.num_pieces - 3, corpus.num_pieces)
    with pytest.raises(IntegrityError, match=rf"shard-00000\.{kind}: has 0 bytes, not \d+; build the corpus again"):
        read(0, 3)


@pytest.mark.parametrize("kind", shards.KINDS)
@pytest.mark.parametrize(
    ("spoil", "words"), [(cut, "bytes, not"), (flip, "sha256 differs"), (Path.unlink, "is missing")]
)
def test_a_changed_shard_is_detected(folder: Path, kind: str, spoil: Callable[[Path], None], words: str) -> None:
    spoil(folder / shard_file(1, kind))
    with pytest.raises(IntegrityError, match=rf"shard-00001\.{kind}.*{words}"):
        Corpus(folder)


@pytest.mark.parametrize(
    ("kind", "column", "words"),
    [
        ("pieces", np.array([1, 2, SIZE, 3, 4, 5], "<u2"), f"holds the piece {SIZE}, but the vocabulary has {SIZE}"),
        ("pieces", np.zeros(7, np.uint8), "is truncated"),
        ("pieces", np.zeros(5, "<u2"), r"does not match the \.sentences file"),
        ("words", np.zeros(2, np.uint8), r"does not have the same number of pieces as the \.words file"),
        ("sentences", np.array([2, 3, 5, 7], "<u4"), r"does not match the \.sentences file"),
        ("sentences", np.array([3, 2, 5, 6], "<u4"), r"does not match the \.sentences file"),
        ("sentences", np.array([0, 2, 5, 6], "<u4"), r"does not match the \.sentences file"),
        ("sentences", np.zeros(0, "<u4"), r"does not match the \.sentences file"),
        ("documents", np.array([2, 5], "<u4"), r"does not match the \.documents file"),
        ("documents", np.array([0, 4], "<u4"), r"does not match the \.documents file"),
        ("documents", np.array([2, 3], "<u4"), "the last document has no end"),
        ("documents", np.zeros(0, "<u4"), "the last document has no end"),
    ],
)
def test_inconsistent_files_are_rejected_even_with_correct_hashes(
    folder: Path, kind: str, column: np.ndarray, words: str
) -> None:
    (folder / shard_file(1, kind)).write_bytes(column.tobytes())
    write_manifest(folder, facts={"corpus": read_json(folder / MANIFEST)["corpus"]})
    with pytest.raises(IntegrityError, match=words):
        Corpus(folder)


@pytest.mark.parametrize(
    ("manifest", "kind"),
    [
        (None, UsageError),
        ({"files": {}}, UsageError),
        ({"corpus": 3, "files": {}}, UsageError),
        ({"corpus": {"shards": 2}, "files": {}}, IntegrityError),
        ({"corpus": {**FACTS, "shards": -1}}, IntegrityError),
        ({"corpus": {**FACTS, "shards": "2"}}, IntegrityError),
    ],
)
def test_a_folder_that_is_not_a_corpus_is_rejected(folder: Path, manifest: object, kind: type[BertmillError]) -> None:
    (folder / MANIFEST).unlink()
    if manifest is not None:
        (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(kind):
        Corpus(folder)


def test_another_vocabulary_is_rejected_with_both_hashes_in_the_error(folder: Path) -> None:
    vocabulary = {piece: number for number, piece in enumerate(SPECIAL_TOKENS)}
    corpus = Corpus(folder)
    corpus.facts["vocabulary_sha256"] = ours = shards.vocabulary_sha256(WordPiece(vocabulary))
    corpus.require_vocabulary(WordPiece(vocabulary, special_tokens=SPECIAL_TOKENS), "here")
    for other in (WordPiece(vocabulary, lowercase=False), WordPiece({**vocabulary, "a": 5})):
        theirs = shards.vocabulary_sha256(other)
        with pytest.raises(IntegrityError, match=rf"here: .*{theirs}.*{ours}"):
            corpus.require_vocabulary(other, "here")
