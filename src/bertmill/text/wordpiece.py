"""WordPiece: split a text into pieces, each with its id, the characters it covers and its word.

1. Split the text at spaces into chunks, and each chunk into units. Every CJK ideograph and every punctuation character
   is a unit, and so is each run of other characters between them and other whitespace.
2. Clean each unit (drop controls), strip accents and lowercase it (uncased models), and split it again if that produced
   punctuation: `≠` is `=` with a mark. The results are words.
3. Match each word greedily, longest piece first. A word that cannot be matched becomes one `[UNK]`.

The pieces of a chunk or unit do not depend on its context, so both are cached. Text repeats itself, so almost all of
the work is looking up chunks.

Ids match Hugging Face's BertTokenizer (`tokenizers`), which differs from Google's original code:

- Private-use characters and lone surrogates are dropped (Google keeps private use).
- One CJK range starts at U+2B920 instead of U+2B820.
- Letters are lowercased one at a time (no final sigma), after accents are stripped, not before.
- Words of more than 100 characters are unknown (Google: 200).
- Character classes are those of Unicode 8.
- Special strings such as `[MASK]` in the text become special ids, unless `split_special` is set (Google: plain text).
  Added tokens that are not special always become their ids.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bertmill.text.added_tokens import AddedTokens, Match, any_of
from bertmill.text.characters import (
    IDEOGRAPH_CLASS,
    PUNCTUATION_CLASS,
    WHITE_SPACE_CLASS,
    covered_range,
    normalise,
    split_punctuation,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONTINUATION = "##"
UNKNOWN = "[UNK]"
MAX_WORD_CHARACTERS = 100
MAX_CACHED_STRINGS = 1 << 16
MAX_CACHED_CHARACTERS = 40  # longer strings rarely repeat
_ASCII_UNITS = re.compile("[0-9A-Za-z]+|[^0-9A-Za-z]")  # of printable ASCII
_COMMON_MARKS = tuple((mark, f" {mark} ") for mark in ",.()-\"':;")  # only the common ones: each search takes time

Row = tuple[int, int, int, int]  # id, start and end of a piece, and 1 if it begins a word, else 0


class Pieces(NamedTuple):
    """The pieces of a text, as columns: piece i covers `text[starts[i]:ends[i]]` and belongs to word `words[i]`."""

    ids: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    words: NDArray[np.uint32]


class WordPiece:
    """Splits text into the pieces of one vocabulary, without `[CLS]`, pairs or padding."""

    def __init__(
        self,
        vocabulary: dict[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        chinese_characters: bool = True,
        never_split: Collection[str] = (),
        special_tokens: Collection[str] = (),
        added_tokens: Collection[str] = (),
        unknown: str = UNKNOWN,
    ) -> None:
        """`strip_accents` defaults to `lowercase`; words in `never_split` stay whole if whitespace surrounds them."""
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.chinese_characters = chinese_characters
        self.never_split = frozenset(never_split)
        self.special_tokens = tuple(special_tokens)
        self.added_tokens = tuple(added_tokens)
        self.unknown = unknown
        self._unknown_id = vocabulary[unknown]
        self._inner_pieces = {  # pieces inside a word, by their text without `##`
            piece.removeprefix(CONTINUATION): number
            for piece, number in vocabulary.items()
            if piece.startswith(CONTINUATION)
        }
        self._max_piece_characters = max(map(len, vocabulary))
        self._units = _unit_pattern(chinese_characters, self.never_split)
        self._special = any_of(special_tokens)
        self.added = AddedTokens(
            {token: vocabulary[token] for token in added_tokens},
            lowercase=lowercase,
            strip_accents=self.strip_accents,
            chinese_characters=chinese_characters,
        )
        self._rows_of_unit = _Cache(self._analyze_unit)
        self._rows_of_chunk = _Cache(self._analyze_chunk)
        self._ids_of_unit = _Cache(self._encode_unit)
        self._ids_of_chunk = _Cache(self._encode_chunk)

    def settings(self) -> dict[str, Any]:
        """The arguments that recreate the tokenizer, as JSON values."""
        settings = {
            "vocabulary": self.vocabulary,
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "chinese_characters": self.chinese_characters,
            "never_split": sorted(self.never_split),
            "special_tokens": list(self.special_tokens),
            "unknown": self.unknown,
        }
        return {**settings, "added_tokens": list(self.added_tokens)} if self.added_tokens else settings

    def ids(self, text: str, *, split_special: bool = False) -> array[int]:
        """The ids of all pieces of `text`. This is the fast path: one lookup per cached chunk, and one join."""
        ids = array("I")
        if not self.added_tokens and (split_special or not self._special.search(text)):
            self._append_ids(ids, text)
            return ids
        for start, end, token in self._segments(text, split_special):
            if token is None:
                self._append_ids(ids, text[start:end])
            else:
                ids.append(token)
        return ids

    def _append_ids(self, ids: array[int], text: str) -> None:
        """Append the ids of a text without special or added tokens."""
        chunks = (text if self.never_split else self.simplified(text)).split(" ")
        ids.frombytes(b"".join(map(self._ids_of_chunk.__getitem__, chunks)))

    def pieces(self, text: str, *, split_special: bool = False) -> Pieces:
        """The pieces of `text` with the characters they cover and their words."""
        import numpy as np

        rows: list[bytes] = []  # of each chunk
        offsets: list[int] = []  # start of each chunk in the text
        for start, end, token in self._segments(text, split_special):
            if token is not None:
                rows.append(_packed([(token, 0, end - start, 1)]))
                offsets.append(start)
            else:
                part = text[start:end]
                if self.lowercase and not self.never_split:
                    part = _lower_ascii(part)  # moves no character, and leaves fewer distinct chunks
                chunks = part.split(" ")
                rows += map(self._rows_of_chunk.__getitem__, chunks)
                offsets += accumulate((len(chunk) + 1 for chunk in chunks[:-1]), initial=start)
        table = np.frombuffer(b"".join(rows), np.uint32).reshape(-1, 4)
        num_pieces = np.fromiter(map(len, rows), np.intp, len(rows)) // table.strides[0]
        offset = np.repeat(np.array(offsets, np.uint32), num_pieces)
        ids, starts, ends, begins_word = table.T
        return Pieces(ids, starts + offset, ends + offset, np.cumsum(begins_word, dtype=np.uint32) - 1)

    def units(self, chunk: str) -> list[str]:
        """Split a chunk into units (step 1 of the module docstring)."""
        if chunk.isascii() and chunk.isprintable() and not self.never_split:
            return _ASCII_UNITS.findall(chunk)
        return self._units.findall(chunk)

    def words(self, unit: str) -> list[str]:
        """Split a unit into words (step 2 of the module docstring)."""
        if unit in self.never_split:
            return [unit]
        if unit.isascii() and unit.isprintable():
            return [unit.lower() if self.lowercase else unit]
        characters = normalise(unit, strip_accents=self.strip_accents, lowercase=self.lowercase)
        return ["".join(character for character, _ in origins) for origins in split_punctuation(characters)]

    def _segments(self, text: str, split_special: bool) -> Iterator[tuple[int, int, int | None]]:
        """Yield (start, end, id) of special and added tokens in `text`, and (start, end, None) of the text between."""
        special = [] if split_special else self._special.finditer(text)
        found = ((match.start(), match.end(), self.vocabulary[match[0]]) for match in special)
        for start, end, token in _with_gaps(found, 0, len(text)):
            if token is None and self.added_tokens:
                inner = ((start + a, start + b, number) for a, b, number in self.added.find(text[start:end]))
                yield from _with_gaps(inner, start, end)
            else:
                yield start, end, token

    def simplified(self, text: str) -> str:
        """Lowercase ASCII (if uncased) and separate common marks: the same pieces from fewer distinct chunks."""
        if self.lowercase:
            text = _lower_ascii(text)
        for mark, mark_apart in _COMMON_MARKS:
            text = text.replace(mark, mark_apart)
        return text

    def _encode_chunk(self, chunk: str) -> bytes:
        """Like `_analyze_chunk`, but returns only the ids."""
        if chunk.isascii() and chunk.isalnum() and not self.never_split:  # most chunks are a word
            return self._encode_unit(chunk)
        return b"".join(map(self._ids_of_unit.__getitem__, self.units(chunk)))

    def _analyze_chunk(self, chunk: str) -> bytes:
        is_simple = chunk.isascii() and chunk.isprintable() and not self.never_split
        if is_simple and chunk.isalnum():  # most chunks are a word
            return _packed(self._analyze_unit(chunk))
        rows = []
        for match in (_ASCII_UNITS if is_simple else self._units).finditer(chunk):
            offset = match.start()
            for piece_id, start, end, begins_word in self._rows_of_unit[match[0]]:
                rows.append((piece_id, start + offset, end + offset, begins_word))
        return _packed(rows)

    def _encode_unit(self, unit: str) -> bytes:
        """Like `_analyze_unit`, but returns only the ids."""
        if unit.isascii() and unit.isalnum() and unit not in self.never_split:
            return array("I", self.match(unit.lower() if self.lowercase else unit)[0]).tobytes()
        return array("I", [row[0] for row in self._analyze_unit(unit)]).tobytes()

    def _analyze_unit(self, unit: str) -> list[Row]:
        if unit in self.never_split:
            return [(self.vocabulary.get(unit, self._unknown_id), 0, len(unit), 1)]
        if unit.isascii() and unit.isprintable():
            ids, ends = self.match(unit.lower() if self.lowercase else unit)
            return [(*span, span[1] == 0) for span in zip(ids, [0, *ends], ends, strict=False)]
        return self._analyze_carefully(unit)

    def _analyze_carefully(self, unit: str) -> list[Row]:
        """Like `_analyze_unit`, for units whose length may change; offsets refer to the original characters."""
        rows = []
        characters = normalise(unit, strip_accents=self.strip_accents, lowercase=self.lowercase)
        for origins in split_punctuation(characters):
            ids, ends = self.match("".join(character for character, _ in origins))
            for piece_id, start, end in zip(ids, [0, *ends], ends, strict=False):
                covered = covered_range(unit, origins[start:end], self.strip_accents)
                rows.append((piece_id, *covered, int(start == 0)))
        return rows

    def match(self, word: str) -> tuple[list[int], list[int]]:
        """The ids and ends of the pieces of `word`: always the longest piece that fits, or one unknown piece."""
        length = len(word)
        if length > MAX_WORD_CHARACTERS:
            return [self._unknown_id], [length]
        ids: list[int] = []
        ends: list[int] = []
        start = 0
        find = self.vocabulary.get
        while start < length:
            end = min(length, start + self._max_piece_characters)
            while (piece_id := find(word[start:end])) is None:
                end -= 1
                if end == start:
                    return [self._unknown_id], [length]
            ids.append(piece_id)
            ends.append(end)
            start = end
            find = self._inner_pieces.get
        return ids, ends


def _with_gaps(found: Iterable[Match], start: int, end: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield the matches in a range of a text, and the non-empty gaps around them with None as their id."""
    for match in found:
        if match[0] > start:
            yield start, match[0], None
        yield match
        start = match[1]
    if start < end:
        yield start, end, None


def _lower_ascii(text: str) -> str:
    """Lowercase A to Z only: other letters are lowercased after their accents are stripped."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _packed(rows: Iterable[Row]) -> bytes:
    return array("I", chain.from_iterable(rows)).tobytes()


ValueT = TypeVar("ValueT")


class _Cache(dict[str, ValueT]):
    """Caches the result of `compute` for each string; cleared when full, since frequent words soon return."""

    def __init__(self, compute: Callable[[str], ValueT]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, string: str) -> ValueT:
        value = self._compute(string)
        if len(string) <= MAX_CACHED_CHARACTERS:
            if len(self) >= MAX_CACHED_STRINGS:
                self.clear()
            self[string] = value
        return value


def _unit_pattern(chinese_characters: bool, never_split: Collection[str]) -> re.Pattern[str]:
    alone = PUNCTUATION_CLASS + (IDEOGRAPH_CLASS if chinese_characters else "")
    pattern = f"[^{WHITE_SPACE_CLASS}{alone}]+|[{alone}]"
    if never_split:
        between_spaces = f"(?<![^{WHITE_SPACE_CLASS}])(?:{any_of(never_split).pattern})(?![^{WHITE_SPACE_CLASS}])"
        pattern = f"{between_spaces}|{pattern}"
    return re.compile(pattern)
