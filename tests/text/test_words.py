"""Words of a raw text: each character except whitespace is in exactly one, and they are what a reader would count."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.text.characters import WHITE_SPACE_CLASS
from bertmill.text.words import find_words, join_words

TEXTS = st.text() | st.text(alphabet="aB1.,'’-$ 中文。\u3000\u200b\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("John's well-known firm paid $3,000.50.", "John 's well-known firm paid $ 3,000.50 ."),
        ("O'Brien doesn't live in the U.S. today", "O'Brien doesn't live in the U.S. today"),
        ("(Really?) Yes…", "( Really ? ) Yes …"),
        ("我爱iPhone手机。", "我 爱 iPhone 手 机 。"),
        ("she’ll go", "she ’ll go"),
        ("It rose 3.5. So", "It rose 3.5 . So"),
        ("", ""),
    ],
)
def test_words_are_those_that_a_reader_would_count(text: str, words: str) -> None:
    assert [text[start:end] for start, end in find_words(text)] == words.split()


@given(TEXTS)
def test_words_are_in_order_and_omit_only_whitespace(text: str) -> None:
    end_of_last = 0
    for start, end in [*find_words(text), (len(text), len(text))]:
        assert end_of_last <= start <= end
        assert re.fullmatch(f"[{WHITE_SPACE_CLASS}]*", text[end_of_last:start])
        end_of_last = end


@given(st.lists(TEXTS))
def test_joined_words_are_found_at_their_spans(words: list[str]) -> None:
    text, spans = join_words(words)
    assert [text[start:end] for start, end in spans] == words


def test_there_is_no_space_next_to_ideographs() -> None:
    assert join_words(["I", "like", "北", "京", "，", "ok", "!"])[0] == "I like北京，ok !"
