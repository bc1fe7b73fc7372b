"""Exact match and F1 of answers, by SQuAD's rules.

Answers are normalized before they are compared: lower case, no ASCII punctuation, no articles, and words separated by
single spaces. The score is the best one over all correct answers.

- Correct answers that are empty after normalization are ignored.
- If no correct answer remains, only an empty answer is correct.
- Each ideograph is a word. If any answer contains ideographs, all Unicode punctuation is removed too.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from bertmill.text.characters import IDEOGRAPH_CLASS, PUNCTUATION_CHARACTERS

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}]")
_ASCII_MARKS = dict.fromkeys(map(ord, string.punctuation))
_ALL_MARKS = _ASCII_MARKS | dict.fromkeys(map(ord, PUNCTUATION_CHARACTERS))


def answer_scores(given: str, wanted: Sequence[str]) -> tuple[float, float]:
    """Return exact match (0 or 1) and F1 against the correct answers `wanted`, which may be none."""
    marks = _ALL_MARKS if any(map(_IDEOGRAPH.search, (given, *wanted))) else _ASCII_MARKS
    words = _words(given, marks)
    right = [words_of_answer for answer in wanted if (words_of_answer := _words(answer, marks))] or [[]]
    return float(words in right), max(_f1(words, each) for each in right)


def _words(answer: str, marks: dict[int, None]) -> list[str]:
    words = _ARTICLES.sub(" ", answer.lower().translate(marks))  # A股 is one word: its A is not an article
    return _IDEOGRAPH.sub(r" \g<0> ", words).split()


def _f1(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    num_same = (Counter(given) & Counter(wanted)).total()
    return 2 * num_same / (len(given) + len(wanted))
