"""Shard texts add up to the whole text, cut where documents end or before a line that gives pieces."""

import itertools
import re
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.corpus import shard_texts
from bertmill.corpus.shard_texts import DocumentMode, cut_shard_texts
from bertmill.errors import DataError
from bertmill.text.files import Line
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.wordpiece import WordPiece


def lines_of(*texts: str, file: str = "a.txt") -> list[Line]:
    return [Line(file, number, text) for number, text in enumerate(texts, start=1)]


@pytest.mark.parametrize(
    ("document", "lines", "text"),
    [
        (None, lines_of("a", "b", "", " ", "c"), "a\nb\n\nc\n\n"),
        (None, lines_of("", "a", ""), "a\n\n"),
        (None, lines_of("a") + lines_of("b", file="b.txt"), "a\n\nb\n\n"),
        (None, lines_of("a") + lines_of("b"), "a\n\nb\n\n"),  # the same file twice
        (None, lines_of("a\n\nb", "c", file="a.jsonl.gz"), "a\nb\n\nc\n\n"),
        ("blank-line", lines_of("a\n\nb", "c", file="a.jsonl"), "a\n\nb\nc\n\n"),
        ("file", lines_of("a", "", "b") + lines_of("c", file="b.txt"), "a\nb\n\nc\n\n"),
        ("record", lines_of("a", "", "b"), "a\n\nb\n\n"),
    ],
)
def test_documents_end_according_to_the_mode(document: DocumentMode | None, lines: list[Line], text: str) -> None:
    assert [shard.text.decode() for shard in cut_shard_texts(lines, document)] == [text]


@given(texts=st.lists(st.sampled_from(["", "word " * 30, "\u200b" * 300, "x" * 3000]), max_size=60))
def test_shard_texts_add_up_to_the_text_and_a_document_continues_with_a_line_of_pieces(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shard_texts, "SHARD_CHARACTERS", 2000)
        found = [shard.text.decode() for shard in cut_shard_texts(lines_of(*texts), None)]
    documents = re.findall("(?:.+\n)+", "".join(f"{text}\n" for text in texts))
    assert "".join(found) == "".join(f"{document}\n" for document in documents)
    for before, after in itertools.pairwise(found):
        assert len(before) >= 2000
        assert before.endswith("\n\n") or (len(before) >= 4000 and after[0].isalnum())


def test_a_document_without_lines_of_pieces_is_rejected_before_memory_fills_up() -> None:
    line = "\u200b." * 500
    count = 1 + shard_texts.MAX_WITHOUT_PIECES // (len(line) + 1)
    lines = lines_of("a", *[line] * (count - 1), "b", *[line] * count, "")
    with pytest.raises(DataError, match=rf"a\.txt:{2 * count + 1}: more than 4,194,304 characters"):
        list(cut_shard_texts(lines, None))
    *enough, one_more, blank = lines
    assert sum(len(shard.text.decode()) for shard in cut_shard_texts([*enough, blank, one_more], None)) > 8_000_000


def test_short_lines_need_little_memory() -> None:
    lines = lines_of(*["."] * 300_000)
    tracemalloc.start()
    assert sum(len(shard.text) for shard in cut_shard_texts(lines, None)) == 600_001
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_letters_and_digits_always_give_pieces() -> None:
    """Cuts inside a document rely on this."""
    uncased = BertTokenizer.from_pretrained("minilm").wordpiece
    for wordpiece in (uncased, WordPiece(uncased.vocabulary, lowercase=False)):
        letters = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isalnum()]
        assert all(len(wordpiece.ids(letter)) for letter in letters)
