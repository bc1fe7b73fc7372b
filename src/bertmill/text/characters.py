"""Character classes, and the normalization of words: stripping accents and lowercasing.

All Unicode data is in character_table.py, so ids do not depend on the Unicode version of the running Python.
A normalized word is a list of (character, index of the original character). A character may become several (NFD),
disappear (marks, controls) or move (canonical order of marks).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

from bertmill.text import character_table as table

Origin = tuple[str, int]  # a normalized character, and the index of the original character in the word


def _expand(ranges: tuple[tuple[int, int], ...]) -> frozenset[str]:
    return frozenset(chr(point) for first, last in ranges for point in range(first, last + 1))


def _regex_class(ranges: tuple[tuple[int, int], ...]) -> str:
    """The inside of a `[...]` pattern that matches these code points."""
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


WHITE_SPACE_CLASS = _regex_class(table.WHITE_SPACE)
IDEOGRAPH_CLASS = _regex_class(table.IDEOGRAPHS)
PUNCTUATION_CLASS = _regex_class(table.PUNCTUATION)
PUNCTUATION_CHARACTERS = _expand(table.PUNCTUATION)
NONSPACING_CHARACTERS = _expand(table.NONSPACING_MARKS)
_DROPPED_FIRSTS = [first for first, _ in table.DROPPED]
COMBINING_CLASS_OF = {
    chr(point): value for first, last, value in table.COMBINING_CLASSES for point in range(first, last + 1)
}

# Hangul syllables decompose by arithmetic (The Unicode Standard, 3.12).
_SYLLABLE_BASE, _SYLLABLE_END = 0xAC00, 0xD7A4
_LEAD_BASE, _VOWEL_BASE, _TAIL_BASE = 0x1100, 0x1161, 0x11A7
_NUM_VOWELS, _NUM_TAILS = 21, 28


def is_dropped(character: str) -> bool:
    """Whether the tokenizer ignores a character: controls, formats, private use, U+FFFD, NUL, lone surrogates."""
    point = ord(character)
    nearest = bisect_right(_DROPPED_FIRSTS, point) - 1
    return nearest >= 0 and point <= table.DROPPED[nearest][1]


def decompose(character: str) -> str:
    """The canonical decomposition (NFD) of one character."""
    point = ord(character)
    if _SYLLABLE_BASE <= point < _SYLLABLE_END:
        lead_and_vowel, tail = divmod(point - _SYLLABLE_BASE, _NUM_TAILS)
        lead, vowel = divmod(lead_and_vowel, _NUM_VOWELS)
        return chr(_LEAD_BASE + lead) + chr(_VOWEL_BASE + vowel) + (chr(_TAIL_BASE + tail) if tail else "")
    return table.DECOMPOSED.get(character, character)


def normalise(word: str, *, strip_accents: bool, lowercase: bool) -> list[Origin]:
    """Normalize `word` for lookup; returns the remaining characters, each with its original index in `word`."""
    characters = [(character, index) for index, character in enumerate(word) if not is_dropped(character)]
    if strip_accents:
        decomposed = [(part, index) for character, index in characters for part in decompose(character)]
        ordered = _canonical_order(decomposed)
        characters = [origin for origin in ordered if origin[0] not in NONSPACING_CHARACTERS]
    if lowercase:
        characters = [
            (part, index) for character, index in characters for part in table.LOWER.get(character, character)
        ]
    return characters


def covered_range(text: str, origins: list[Origin], strip_accents: bool) -> tuple[int, int]:
    """The range of `text` that the characters came from, including marks that were stripped from the last one."""
    indices = [index for _, index in origins]
    end = max(indices) + 1
    while strip_accents and end < len(text) and text[end] in NONSPACING_CHARACTERS:
        end += 1
    return min(indices), end


def split_punctuation(characters: list[Origin]) -> Iterator[list[Origin]]:
    """Yield the runs without punctuation, and each punctuation character on its own."""
    for is_punctuation, run in groupby(characters, key=lambda origin: origin[0] in PUNCTUATION_CHARACTERS):
        origins = list(run)
        yield from ([origin] for origin in origins) if is_punctuation else [origins]


def _canonical_order(characters: list[Origin]) -> list[Origin]:
    """Sort each run of marks by combining class; marks of the same class keep their order."""
    result: list[Origin] = []
    for _, run in groupby(characters, key=lambda origin: origin[0] in COMBINING_CLASS_OF):
        result += sorted(run, key=lambda origin: COMBINING_CLASS_OF.get(origin[0], 0))
    return result
