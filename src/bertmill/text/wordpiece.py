"""WordPiece: a text becomes pieces, each with its id, the characters it covers and the word it is part of.

1. The text is cut at white space into chunks, and a chunk into units: every CJK ideograph and every
   punctuation character is one, and so is each run of other characters between them.
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
from itertools import chain
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
MAX_CACHED_STRINGS = 1 << 18
MAX_CACHED_CHARACTERS = 40  # longer ones hardly repeat
_ASCII_UNITS = re.compile("[0-9A-Za-z]+|[^0-9A-Za-z]")
_ID_BYTES = array("I").itemsize

Span = tuple[int, int, int]  # id of a piece, where it starts, where it ends
Row = tuple[int, int, int, int]  # the same, and 1 if it begins a word, else 0


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
        self._max_piece_characters = max(map(len, vocabulary))
        self._chunks = re.compile(f"[^{WHITE_SPACE_CLASS}]+")
        self._units = _unit_pattern(chinese_characters)
        self._special = _any_of(special_tokens)
        self._rows_of_unit = _Cache(self._analyse_unit)
        self._rows_of_chunk = _Cache(lambda chunk: _packed(self._analyse_chunk(chunk)))
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
            ids.frombytes(b"".join(map(self._ids_of_chunk.__getitem__, self._chunks.findall(text))))
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

        chunks: list[bytes] = []  # rows of each chunk
        offsets: list[int] = []  # where it starts in the text
        for start, end, is_special in [(0, len(text), False)] if split_special else self._segments(text):
            if is_special:
                chunks.append(_packed([(self.vocabulary[text[start:end]], 0, end - start, 1)]))
                offsets.append(start)
            else:
                for match in self._chunks.finditer(text, start, end):
                    chunks.append(self._rows_of_chunk[match[0]])
                    offsets.append(match.start())
        rows = np.frombuffer(b"".join(chunks), np.uint32).reshape(-1, 4)
        num_pieces = np.fromiter(map(len, chunks), np.intp, len(chunks)) // rows.strides[0]
        offset = np.repeat(np.array(offsets, np.uint32), num_pieces)
        ids, starts, ends, begins_word = rows.T
        return Pieces(ids, starts + offset, ends + offset, np.cumsum(begins_word, dtype=np.uint32) - 1)

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

    def _encode_chunk(self, chunk: str) -> bytes:
        """What `_analyse_chunk` gives, ids only."""
        if chunk in self.never_split:
            return _packed(self._protected(chunk))[:_ID_BYTES]
        text, units = self._prepare(chunk)
        return b"".join(map(self._ids_of_unit.__getitem__, units.findall(text)))

    def _analyse_chunk(self, chunk: str) -> list[Row]:
        if chunk in self.never_split:
            return self._protected(chunk)
        text, units = self._prepare(chunk)
        rows = []
        for match in units.finditer(text):
            offset = match.start()
            for piece_id, start, end, begins_word in self._rows_of_unit[match[0]]:
                rows.append((piece_id, start + offset, end + offset, begins_word))
        return rows

    def _protected(self, chunk: str) -> list[Row]:
        return [(self.vocabulary.get(chunk, self._unknown_id), 0, len(chunk), 1)]

    def _prepare(self, chunk: str) -> tuple[str, re.Pattern[str]]:
        """The text in which to look for units, and their pattern; ASCII, which is most text, has a quicker one."""
        if chunk.isascii() and chunk.isprintable():
            return chunk.lower() if self.lowercase else chunk, _ASCII_UNITS
        return chunk, self._units

    def _encode_unit(self, unit: str) -> bytes:
        return array("I", [row[0] for row in self._analyse_unit(unit)]).tobytes()

    def _analyse_unit(self, unit: str) -> list[Row]:
        if unit.isascii() and unit.isprintable():
            word = unit.lower() if self.lowercase else unit
            return [(piece_id, start, end, start == 0) for piece_id, start, end in self._match(word)]
        return self._analyse_carefully(unit)

    def _analyse_carefully(self, unit: str) -> list[Row]:
        """For units whose characters may change in number: offsets go through each character's origin."""
        rows = []
        characters = normalise(unit, strip_accents=self.strip_accents, lowercase=self.lowercase)
        for origins in split_punctuation(characters):
            for piece_id, start, end in self._match("".join(character for character, _ in origins)):
                rows.append((piece_id, *self._covered(unit, origins[start:end]), int(start == 0)))
        return rows

    def _covered(self, unit: str, origins: list[Origin]) -> tuple[int, int]:
        """The part of `unit` that the characters came from, with the stripped marks that stand on the last one."""
        indices = [index for _, index in origins]
        end = max(indices) + 1
        while self.strip_accents and end < len(unit) and unit[end] in NONSPACING_CHARACTERS:
            end += 1
        return min(indices), end

    def _match(self, word: str) -> list[Span]:
        """The pieces of `word`: always the longest that fits; one unknown piece if nothing does."""
        length = len(word)
        find = self.vocabulary.get
        spans: list[Span] = []
        start, prefix = 0, ""
        while start < length <= MAX_WORD_CHARACTERS:
            for end in range(min(length, start + self._max_piece_characters), start, -1):
                piece_id = find(prefix + word[start:end])
                if piece_id is not None:
                    spans.append((piece_id, start, end))
                    start, prefix = end, CONTINUATION
                    break
            else:
                break
        return spans if start == length else [(self._unknown_id, 0, length)]


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


def _unit_pattern(chinese_characters: bool) -> re.Pattern[str]:
    alone = PUNCTUATION_CLASS + (IDEOGRAPH_CLASS if chinese_characters else "")
    return re.compile(f"[^{alone}]+|[{alone}]")


def _any_of(strings: Collection[str]) -> re.Pattern[str]:
    """A pattern that finds the longest of `strings` wherever one stands, and nothing if there are none."""
    longest_first = sorted(strings, key=lambda string: (-len(string), string))
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
