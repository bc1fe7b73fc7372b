"""The words of a text as people count them, where nobody has said what the words are.

An ideograph is a word. So is a run of letters and digits; a mark between two of them joins them (`well-known`,
`3,000`, `O'Brien`), but for the endings that corpora of newspapers set apart (`John` `'s`). Any other mark is a word by
itself, but for the last period of an abbreviation such as `U.S.`. White space is between words, and every other
character is in one.
"""

from __future__ import annotations

import re

from bertmill.text.characters import IDEOGRAPH_CLASS, PUNCTUATION_CLASS, WHITE_SPACE_CLASS

Span = tuple[int, int]

_INNER = f"[^{WHITE_SPACE_CLASS}{PUNCTUATION_CLASS}{IDEOGRAPH_CLASS}]"
_APOSTROPHE = "['\u2019]"
_ENDING = rf"{_APOSTROPHE}(?:s|re|ve|ll|d|m)(?!{_INNER})"
_WORD = re.compile(
    rf"(?:(?!\d){_INNER}\.){{2,}}(?!{_INNER})"
    rf"|{_INNER}+(?:(?!{_ENDING})[-.,:/_@&+'\u2019]{_INNER}+)*"
    rf"|{_ENDING}"
    rf"|[{IDEOGRAPH_CLASS}{PUNCTUATION_CLASS}]",
    re.IGNORECASE,
)
_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}\u3000-\u303f\uff00-\uffef]")  # and the marks of Chinese text


def find_words(text: str) -> list[Span]:
    """Where each word starts and ends."""
    return [match.span() for match in _WORD.finditer(text)]


def join_words(words: list[str]) -> tuple[str, list[Span]]:
    """A text of these words, and where each stands in it: with a space between, but not beside an ideograph."""
    parts: list[str] = []
    spans: list[Span] = []
    end = 0
    for word in words:
        if parts and not (_IDEOGRAPH.match(parts[-1][-1:]) or _IDEOGRAPH.match(word[:1])):
            parts.append(" ")
            end += 1
        parts.append(word)
        spans.append((end, end + len(word)))
        end += len(word)
    return "".join(parts), spans
