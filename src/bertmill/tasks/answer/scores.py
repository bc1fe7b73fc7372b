"""How well an answer agrees with the right ones, by SQuAD's rules: exact match, and F1 over words.

Both are compared without case, without ASCII punctuation, without articles and with single blanks; the best agreement
with any of the right answers counts, but for those of which nothing is left then. Where nothing is right, only the
empty answer is. An ideograph is a word, and where there are any, all punctuation goes.
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
    """Exact match (0 or 1) and F1, against the right answers; none of them: there is no answer."""
    marks = _ALL_MARKS if any(map(_IDEOGRAPH.search, (given, *wanted))) else _ASCII_MARKS
    words = _words(given, marks)
    right = [words_of_answer for answer in wanted if (words_of_answer := _words(answer, marks))] or [[]]
    return float(words in right), max(_f1(words, each) for each in right)


def _words(answer: str, marks: dict[int, None]) -> list[str]:
    words = _ARTICLES.sub(" ", answer.lower().translate(marks))  # of which the A of A股 is none
    return _IDEOGRAPH.sub(r" \g<0> ", words).split()


def _f1(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    num_same = (Counter(given) & Counter(wanted)).total()
    return 2 * num_same / (len(given) + len(wanted))
