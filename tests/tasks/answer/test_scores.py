"""Tests for exact match and F1 against an independent implementation of SQuAD's rules."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.tasks.answer.scores import answer_scores

ANSWERS = st.text() | st.lists(
    st.sampled_from(["the", "a", "An", "cat", "Cat", "cats", "U.S.", "1,000", "(x)", "é", "“q”", " ", "\t", "''"])
).map(" ".join)


def words_by_the_rules(answer: str) -> list[str]:
    """Normalize: lower case, no ASCII punctuation, no articles as whole words, words split at whitespace."""
    kept = "".join(character for character in answer.lower() if character not in set(string.punctuation))
    words, word = [], ""
    for character in kept + " ":  # for articles, a word is a run of letters, digits and underscores
        if character.isalnum() or character == "_":
            word += character
        else:
            words += [" " if word in ("a", "an", "the") else word, character]
            word = ""
    return "".join(words).split()


def scores_by_the_rules(given: str, wanted: list[str]) -> tuple[float, float]:
    best = (0.0, 0.0)
    # The SQuAD 2.0 script ignores correct answers that are empty after normalization.
    for answer in [answer for answer in wanted if words_by_the_rules(answer)] or [""]:
        one, other = words_by_the_rules(given), words_by_the_rules(answer)
        exact = float(" ".join(one) == " ".join(other))
        rest = list(other)
        same = 0
        for word in one:
            if word in rest:
                rest.remove(word)
                same += 1
        if not one or not other:
            f1 = float(one == other)
        elif same == 0:
            f1 = 0.0
        else:
            precision, recall = same / len(one), same / len(other)
            f1 = 2 * precision * recall / (precision + recall)
        best = (max(best[0], exact), max(best[1], f1))
    return best


def is_plain(text: str) -> bool:
    """Whether a text has no ideographs, and no characters on which `isalnum` and the regular expression differ."""
    return not any("\u2e80" <= c <= "\u9fff" or ord(c) > 0x2FFF or c.isalnum() != _is_word(c) for c in text.lower())


def _is_word(character: str) -> bool:
    import re

    return bool(re.fullmatch(r"\w", character)) and character != "_"


@given(ANSWERS, st.lists(ANSWERS, max_size=3))
def test_scores_follow_the_rules_of_squad(answer: str, wanted: list[str]) -> None:
    if all(map(is_plain, [answer, *wanted])):
        assert answer_scores(answer, wanted) == pytest.approx(scores_by_the_rules(answer, wanted))


@pytest.mark.parametrize(
    ("given_answer", "wanted", "expected"),
    [
        ("The  Cat!", ["a cat"], (1.0, 1.0)),
        ("Xia dynasty (夏朝)", ["the Xia dynasty (夏朝)"], (1.0, 1.0)),
        ("sun 日", ["the sun"], (0.0, 2 / 3)),
        ("A股", ["股"], (0.0, 2 / 3)),
        ("cat sat", ["cat"], (0.0, 2 / 3)),
        ("", [], (1.0, 1.0)),
        ("cat", [], (0.0, 0.0)),
        ("", ["cat"], (0.0, 0.0)),
        ("cat", ["dog", "the cat"], (1.0, 1.0)),
        ("北京市", ["北京"], (0.0, 0.8)),
        ("《北京》", ["北京。"], (1.0, 1.0)),
        ("维生素A", ["维生素"], (0.0, 6 / 7)),
        ("Nature", ["《Nature》是杂志", "《Nature》"], (1.0, 1.0)),
    ],
)
def test_scores_of_known_cases(given_answer: str, wanted: list[str], expected: tuple[float, float]) -> None:
    assert answer_scores(given_answer, wanted) == pytest.approx(expected)
