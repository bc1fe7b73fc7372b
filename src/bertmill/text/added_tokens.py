"""Tokens that were added to a vocabulary: find them in a text before it is split into words.

A special token matches its exact characters. Any other added token matches the normalized text (lowercased, without
accents, ideographs apart), also inside a word, as in Hugging Face. The longest token wins at each position.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from bertmill.text.characters import IDEOGRAPH_CLASS, WHITE_SPACE_CLASS, Origin, covered_range, normalise

_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}]")
_WHITE_SPACE = re.compile(f"[{WHITE_SPACE_CLASS}]")

Match = tuple[int, int, int]  # start and end of a token in the text, and its id


class AddedTokens:
    """Finds added tokens that are not special."""

    def __init__(
        self, ids: Mapping[str, int], *, lowercase: bool, strip_accents: bool, chinese_characters: bool
    ) -> None:
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.chinese_characters = chinese_characters
        self.normalized = {token: "".join(character for character, _ in self._normalize(token)) for token in ids}
        self._id_of = {self.normalized[token]: number for token, number in ids.items() if self.normalized[token]}
        self._pattern = any_of(self._id_of)

    def find(self, text: str) -> list[Match]:
        """The tokens in `text`, in order."""
        if not self._id_of:
            return []
        if text.isascii() and text.isprintable():
            lowered = text.lower() if self.lowercase else text
            return [(match.start(), match.end(), self._id_of[match[0]]) for match in self._pattern.finditer(lowered)]
        origins = self._normalize(text)
        normalized = "".join(character for character, _ in origins)
        return [
            (*covered_range(text, origins[match.start() : match.end()], self.strip_accents), self._id_of[match[0]])
            for match in self._pattern.finditer(normalized)
        ]

    def _normalize(self, text: str) -> list[Origin]:
        characters = normalise(text, strip_accents=self.strip_accents, lowercase=self.lowercase)
        return [each for origin in characters for each in self._spaced(*origin)]

    def _spaced(self, character: str, index: int) -> Iterator[Origin]:
        """The character itself; a space for white space; an ideograph between two spaces."""
        is_apart = self.chinese_characters and _IDEOGRAPH.match(character) is not None
        if is_apart:
            yield " ", index
        yield " " if _WHITE_SPACE.match(character) else character, index
        if is_apart:
            yield " ", index


def any_of(strings: Collection[str]) -> re.Pattern[str]:
    """A pattern that matches the longest of `strings` at any position; without strings it matches nothing."""
    longest_first = sorted(strings, key=lambda string: (-len(string), string))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
