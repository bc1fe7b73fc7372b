"""WordPiece: a text becomes pieces, each with its id, the characters it covers and the word it is part of.

1. The text is cut at spaces into chunks, and a chunk into units: every CJK ideograph and every punctuation
   character is one, and so is each run of other characters between them and other white space.
2. A unit is cleaned (controls dropped), stripped of accents and lowered (uncased models), and split again
   where that brought out punctuation: `≠` is `=` with a mark. This gives words.
3. A word is matched greedily, longest piece first; a word that cannot be matched is one `[UNK]`.
What a chunk or a unit becomes depends on nothing around it, so both are remembered: text repeats itself,
and almost all of the work is looking chunks up.

Ids equal those of Hugging Face's BertTokenizer (`tokenizers`), which deviates from Google's original code:
private-use and lone-surrogate characters are dropped (Google keeps private use); one CJK range starts at
U+2B920 instead of U+2B820; letters are lowered one at a time (no final sigma), after the accents are
stripped, not before; words of more than 100 characters are unknown (Google: 200); character classes are
those of Unicode 8. Special strings such as `[MASK]` in the text become special ids unless `split_special`;
in Google's code they are ordinary text.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bertmill.text.characters import (
    IDEOGRAPH_CLASS,
    NONSPACING_CHARACTERS,
    PUNCTUATION_CLASS,
    WHITE_SPACE_CLASS,
    Origin,
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
MAX_CACHED_CHARACTERS = 40  # longer ones hardly repeat
_ASCII_UNITS = re.compile("[0-9A-Za-z]+|[^0-9A-Za-z]")  # of printable ASCII
_COMMON_MARKS = tuple((mark, f" {mark} ") for mark in ",.()-\"':;")  # each search costs, so not all marks

Row = tuple[int, int, int, int]  # id of a piece, where it starts, where it ends, and 1 if it begins a word, else 0


class Pieces(NamedTuple):
    """The pieces of a text, by column: piece i covers `text[starts[i]:ends[i]]` in word number `words[i]`."""

    ids: NDArray[np.uint32]
    starts: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    words: NDArray[np.uint32]


class WordPiece:
    """The tokenizer proper: text to pieces by one vocabulary. Knows nothing of `[CLS]`, pairs or padding."""

    def __init__(
        self,
        vocabulary: dict[str, int],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        chinese_characters: bool = True,
        never_split: Collection[str] = (),
        special_tokens: Collection[str] = (),
        unknown: str = UNKNOWN,
    ) -> None:
        """`strip_accents` follows `lowercase` when None; `never_split` words, between white space, stay as they are."""
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.chinese_characters = chinese_characters
        self.never_split = frozenset(never_split)
        self.special_tokens = tuple(special_tokens)
        self.unknown = unknown
        self._unknown_id = vocabulary[unknown]
        self._inner_pieces = {  # those that go on inside a word, by what they add
            piece.removeprefix(CONTINUATION): number
            for piece, number in vocabulary.items()
            if piece.startswith(CONTINUATION)
        }
        self._max_piece_characters = max(map(len, vocabulary))
        self._units = _unit_pattern(chinese_characters, self.never_split)
        self._special = _any_of(special_tokens)
        self._rows_of_unit = _Cache(self._analyse_unit)
        self._rows_of_chunk = _Cache(self._analyse_chunk)
        self._ids_of_unit = _Cache(self._encode_unit)
        self._ids_of_chunk = _Cache(self._encode_chunk)

    def settings(self) -> dict[str, Any]:
        """The arguments that make an equal tokenizer, as JSON can hold them."""
        return {
            "vocabulary": self.vocabulary,
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "chinese_characters": self.chinese_characters,
            "never_split": sorted(self.never_split),
            "special_tokens": list(self.special_tokens),
            "unknown": self.unknown,
        }

    def ids(self, text: str, *, split_special: bool = False) -> array[int]:
        """The ids of all pieces of `text`. The fast way: a look-up for every chunk seen before, and one join."""
        ids = array("I")
        if split_special or not self._special.search(text):
            chunks = (text if self.never_split else self.simplified(text)).split(" ")
            ids.frombytes(b"".join(map(self._ids_of_chunk.__getitem__, chunks)))
            return ids
        for start, end, is_special in self._segments(text):
            if is_special:
                ids.append(self.vocabulary[text[start:end]])
            else:
                ids += self.ids(text[start:end], split_special=True)
        return ids

    def pieces(self, text: str, *, split_special: bool = False) -> Pieces:
        """The pieces of `text` with the characters they cover and their words."""
        import numpy as np

        rows: list[bytes] = []  # of each chunk
        offsets: list[int] = []  # where it starts in the text
        for start, end, is_special in [(0, len(text), False)] if split_special else self._segments(text):
            if is_special:
                rows.append(_packed([(self.vocabulary[text[start:end]], 0, end - start, 1)]))
                offsets.append(start)
            else:
                part = text[start:end]
                if self.lowercase and not self.never_split:
                    part = _lower_ascii(part)  # no character moves, and there are fewer different chunks
                chunks = part.split(" ")
                rows += map(self._rows_of_chunk.__getitem__, chunks)
                offsets += accumulate((len(chunk) + 1 for chunk in chunks[:-1]), initial=start)
        table = np.frombuffer(b"".join(rows), np.uint32).reshape(-1, 4)
        num_pieces = np.fromiter(map(len, rows), np.intp, len(rows)) // table.strides[0]
        offset = np.repeat(np.array(offsets, np.uint32), num_pieces)
        ids, starts, ends, begins_word = table.T
        return Pieces(ids, starts + offset, ends + offset, np.cumsum(begins_word, dtype=np.uint32) - 1)

    def units(self, chunk: str) -> list[str]:
        """The units of a chunk: see step 1 above."""
        if chunk.isascii() and chunk.isprintable() and not self.never_split:
            return _ASCII_UNITS.findall(chunk)
        return self._units.findall(chunk)

    def words(self, unit: str) -> list[str]:
        """The words that a unit becomes: see step 2 above."""
        if unit in self.never_split:
            return [unit]
        if unit.isascii() and unit.isprintable():
            return [unit.lower() if self.lowercase else unit]
        characters = normalise(unit, strip_accents=self.strip_accents, lowercase=self.lowercase)
        return ["".join(character for character, _ in origins) for origins in split_punctuation(characters)]

    def _segments(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """(start, end, whether it is a special string) of the parts of `text`, in order, empty ones left out."""
        end_of_last = 0
        for match in self._special.finditer(text):
            if match.start() > end_of_last:
                yield end_of_last, match.start(), False
            yield match.start(), match.end(), True
            end_of_last = match.end()
        if end_of_last < len(text):
            yield end_of_last, len(text), False

    def simplified(self, text: str) -> str:
        """A text of the same pieces that has fewer different chunks: ASCII lowered, common marks set apart."""
        if self.lowercase:
            text = _lower_ascii(text)
        for mark, mark_apart in _COMMON_MARKS:
            text = text.replace(mark, mark_apart)
        return text

    def _encode_chunk(self, chunk: str) -> bytes:
        """What `_analyse_chunk` gives, ids only."""
        if chunk.isascii() and chunk.isalnum() and not self.never_split:  # most chunks: a word
            return self._encode_unit(chunk)
        return b"".join(map(self._ids_of_unit.__getitem__, self.units(chunk)))

    def _analyse_chunk(self, chunk: str) -> bytes:
        is_simple = chunk.isascii() and chunk.isprintable() and not self.never_split
        if is_simple and chunk.isalnum():  # most chunks: a word
            return _packed(self._analyse_unit(chunk))
        rows = []
        for match in (_ASCII_UNITS if is_simple else self._units).finditer(chunk):
            offset = match.start()
            for piece_id, start, end, begins_word in self._rows_of_unit[match[0]]:
                rows.append((piece_id, start + offset, end + offset, begins_word))
        return _packed(rows)

    def _encode_unit(self, unit: str) -> bytes:
        """What `_analyse_unit` gives, ids only."""
        if unit.isascii() and unit.isalnum() and unit not in self.never_split:
            return array("I", self.match(unit.lower() if self.lowercase else unit)[0]).tobytes()
        return array("I", [row[0] for row in self._analyse_unit(unit)]).tobytes()

    def _analyse_unit(self, unit: str) -> list[Row]:
        if unit in self.never_split:
            return [(self.vocabulary.get(unit, self._unknown_id), 0, len(unit), 1)]
        if unit.isascii() and unit.isprintable():
            ids, ends = self.match(unit.lower() if self.lowercase else unit)
            return [(*span, span[1] == 0) for span in zip(ids, [0, *ends], ends, strict=False)]
        return self._analyse_carefully(unit)

    def _analyse_carefully(self, unit: str) -> list[Row]:
        """For units whose characters may change in number: offsets go through each character's origin."""
        rows = []
        characters = normalise(unit, strip_accents=self.strip_accents, lowercase=self.lowercase)
        for origins in split_punctuation(characters):
            ids, ends = self.match("".join(character for character, _ in origins))
            for piece_id, start, end in zip(ids, [0, *ends], ends, strict=False):
                rows.append((piece_id, *self._covered(unit, origins[start:end]), int(start == 0)))
        return rows

    def _covered(self, unit: str, origins: list[Origin]) -> tuple[int, int]:
        """The part of `unit` that the characters came from, with the stripped marks that stand on the last one."""
        indices = [index for _, index in origins]
        end = max(indices) + 1
        while self.strip_accents and end < len(unit) and unit[end] in NONSPACING_CHARACTERS:
            end += 1
        return min(indices), end

    def match(self, word: str) -> tuple[list[int], list[int]]:
        """Ids of the pieces of `word` and where each ends: always the longest that fits, or one unknown piece."""
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


def _lower_ascii(text: str) -> str:
    """Only A to Z: other letters are lowered after their accents are stripped."""
    if text.isascii():
        return text.lower()
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def _packed(rows: Iterable[Row]) -> bytes:
    return array("I", chain.from_iterable(rows)).tobytes()


ValueT = TypeVar("ValueT")


class _Cache(dict[str, ValueT]):
    """Remembers what `compute` gave for a string; starts afresh when full, and the words that matter are soon back."""

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
        between_spaces = f"(?<![^{WHITE_SPACE_CLASS}])(?:{_any_of(never_split).pattern})(?![^{WHITE_SPACE_CLASS}])"
        pattern = f"{between_spaces}|{pattern}"
    return re.compile(pattern)


def _any_of(strings: Collection[str]) -> re.Pattern[str]:
    """A pattern that finds the longest of `strings` wherever one stands, and nothing if there are none."""
    longest_first = sorted(strings, key=lambda string: (-len(string), string))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
