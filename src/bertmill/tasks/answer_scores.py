"""How well an answer agrees with the right ones, by SQuAD's rules: exact match, and F1 over words.

Both are compared without case, without ASCII punctuation, without articles and with single blanks; the best agreement
with any of the right answers counts, but for those of which nothing is left then. Where nothing is right, only the
empty answer is. Where an answer has ideographs, each of them is a word, all punctuation goes, and there are no
articles.
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
    is_chinese = any(map(_IDEOGRAPH.search, (given, *wanted)))
    words_of = _chinese_words if is_chinese else _words
    words = words_of(given)
    right = [words_of_answer for answer in wanted if (words_of_answer := words_of(answer))] or [[]]
    return float(words in right), max(_f1(words, each) for each in right)


def _words(answer: str) -> list[str]:
    return _ARTICLES.sub(" ", answer.lower().translate(_ASCII_MARKS)).split()


def _chinese_words(answer: str) -> list[str]:
    return _IDEOGRAPH.sub(r" \g<0> ", answer.lower().translate(_ALL_MARKS)).split()


def _f1(given: list[str], wanted: list[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    num_same = (Counter(given) & Counter(wanted)).total()
    return 2 * num_same / (len(given) + len(wanted))
