"""Find the words of a raw text, for input that is not already split into words.

- An ideograph is a word.
- A run of letters and digits is a word. A mark between two runs joins them (`well-known`, `3,000`, `O'Brien`), except
  for the endings that newspaper corpora separate (`John` `'s`).
- Any other mark is a word, except the last period of an abbreviation such as `U.S.`.
- Whitespace separates words; every other character is part of one.
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
_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}\u3000-\u303f\uff00-\uffef]")  # with Chinese punctuation


def find_words(text: str) -> list[Span]:
    """The start and end of each word."""
    return [match.span() for match in _WORD.finditer(text)]


def join_words(words: list[str]) -> tuple[str, list[Span]]:
    """Join words into a text, with spaces except next to ideographs; also returns the start and end of each word."""
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
