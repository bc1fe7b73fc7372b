"""The tokenizer's results: sequences of pieces, laid out as the model reads them.

`Encoding` is one sequence: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, with a window of each text, and padding.
Its columns (ids, offsets, words …) are computed on access. `BatchEncoding` is the dict that is passed to a model.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bertmill.errors import UsageError
from bertmill.text.truncation import Side, Window

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class TextPieces:
    """The pieces of one text: their ids, and their characters and words, which are computed on first access."""

    def __init__(self, ids: list[int], locate: Callable[[], tuple[list[tuple[int, int]], list[int]]]) -> None:
        self.ids = ids
        self._locate = locate

    @cached_property
    def offsets_and_words(self) -> tuple[list[tuple[int, int]], list[int]]:
        """The characters that each piece covers, and the number of its word."""
        return self._locate()


@dataclass(frozen=True)
class Encoding:
    """One sequence of a batch, with a property for each column."""

    texts: tuple[TextPieces, ...]
    window: Window
    special: tuple[int, int] | None  # the ids of [CLS] and [SEP]; None without special tokens
    pad_id: int
    piece_of_id: Callable[[int], str]
    num_padding: int = 0
    padding_side: Side = "right"

    def padded(self, length: int, side: Side) -> Encoding:
        """A copy that is padded to `length` on `side`; a longer sequence gets no padding."""
        return replace(self, num_padding=max(0, length - len(self)), padding_side=side)

    def __len__(self) -> int:
        num_special = 0 if self.special is None else len(self.texts) + 1
        return sum(end - start for start, end in self.window) + num_special + self.num_padding

    @property
    def ids(self) -> list[int]:
        """The id of each piece."""
        cls, sep = self.special or (self.pad_id, self.pad_id)
        return self._row([text.ids for text in self.texts], cls, [sep] * len(self.texts), self.pad_id)

    @property
    def tokens(self) -> list[str]:
        """The pieces as strings."""
        return [self.piece_of_id(number) for number in self.ids]

    @property
    def type_ids(self) -> list[int]:
        """The segment of each piece: 1 for the second text and its `[SEP]`, otherwise 0."""
        segments = range(len(self.texts))
        return self._row([[segment] * len(self.texts[segment].ids) for segment in segments], 0, list(segments), 0)

    @property
    def attention_mask(self) -> list[int]:
        """0 for padding, otherwise 1."""
        return self._row([[1] * len(text.ids) for text in self.texts], 1, [1] * len(self.texts), 0)

    @property
    def special_tokens_mask(self) -> list[int]:
        """1 for special tokens and padding, otherwise 0."""
        return self._row([[0] * len(text.ids) for text in self.texts], 1, [1] * len(self.texts), 1)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The characters that each piece covers in its text; (0, 0) for special tokens and padding."""
        columns = [text.offsets_and_words[0] for text in self.texts]
        return self._row(columns, (0, 0), [(0, 0)] * len(self.texts), (0, 0))

    @property
    def word_ids(self) -> list[int | None]:
        """The number of each piece's word; None for special tokens and padding."""
        columns = [text.offsets_and_words[1] for text in self.texts]
        return self._row(columns, None, [None] * len(self.texts), None)

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for pieces of the first text, 1 for the second; None for special tokens and padding."""
        numbers = [[index] * len(text.ids) for index, text in enumerate(self.texts)]
        return self._row(numbers, None, [None] * len(self.texts), None)

    def _row(self, columns: Sequence[Sequence[T]], first: T, separators: Sequence[T], padding: T) -> list[T]:
        """The windows of `columns` (one per text), with the values for `[CLS]`, each `[SEP]` and padding."""
        row = [] if self.special is None else [first]
        for column, (start, end), separator in zip(columns, self.window, separators, strict=True):
            row += column[start:end]
            if self.special is not None:
                row.append(separator)
        pads = [padding] * self.num_padding
        return row + pads if self.padding_side == "right" else pads + row


class TokenSpan(NamedTuple):
    """The pieces from `start` up to, but not including, `end`."""

    start: int
    end: int


class BatchEncoding(UserDict[str, Any]):
    """Model inputs by name (`input_ids`, …), also as attributes; its methods map pieces to characters and words."""

    def __init__(self, data: Mapping[str, Any] | None = None, encodings: Sequence[Encoding] = ()) -> None:
        super().__init__(data)
        self.encodings = encodings

    def __getattr__(self, name: str) -> Any:
        if name == "data":  # not set yet
            raise AttributeError(name)
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(f"this batch has no {name!r}, only {', '.join(self.data)}") from None

    def __getitem__(self, key: Any) -> Any:
        return self.encodings[key] if isinstance(key, int) else self.data[key]

    def tokens(self, batch_index: int = 0) -> list[str]:
        """The pieces as strings."""
        return self.encodings[batch_index].tokens

    def word_ids(self, batch_index: int = 0) -> list[int | None]:
        """The number of each piece's word; None for special tokens and padding."""
        return self.encodings[batch_index].word_ids

    def sequence_ids(self, batch_index: int = 0) -> list[int | None]:
        """0 for pieces of the first text, 1 for the second; None for special tokens and padding."""
        return self.encodings[batch_index].sequence_ids

    def token_to_chars(self, batch_index: int, token_index: int | None = None) -> tuple[int, int] | None:
        """The characters that a piece covers in its text; None for special tokens and padding. (i) means (0, i)."""
        if token_index is None:
            batch_index, token_index = 0, batch_index
        encoding = self.encodings[batch_index]
        return None if encoding.sequence_ids[token_index] is None else encoding.offsets[token_index]

    def char_to_token(self, batch_index: int, char_index: int | None = None, sequence_index: int = 0) -> int | None:
        """The piece that covers a character; None for whitespace and truncated text. (i) means (0, i)."""
        if char_index is None:
            batch_index, char_index = 0, batch_index
        encoding = self.encodings[batch_index]
        for index, ((start, end), sequence) in enumerate(zip(encoding.offsets, encoding.sequence_ids, strict=True)):
            if sequence == sequence_index and start <= char_index < end:
                return index
        return None

    def token_to_word(self, batch_index: int, token_index: int | None = None) -> int | None:
        """The word of a piece; None for special tokens and padding. (i) means (0, i)."""
        if token_index is None:
            batch_index, token_index = 0, batch_index
        return self.encodings[batch_index].word_ids[token_index]

    def char_to_word(self, batch_index: int, char_index: int | None = None, sequence_index: int = 0) -> int | None:
        """The word that covers a character; None for whitespace and truncated text. (i) means (0, i)."""
        if char_index is None:
            batch_index, char_index = 0, batch_index
        piece = self.char_to_token(batch_index, char_index, sequence_index)
        return None if piece is None else self.token_to_word(batch_index, piece)

    def word_to_tokens(
        self, batch_index: int, word_index: int | None = None, sequence_index: int = 0
    ) -> TokenSpan | None:
        """The first piece of a word and the one after its last; None if it has no piece. (i) means (0, i)."""
        if word_index is None:
            batch_index, word_index = 0, batch_index
        encoding = self.encodings[batch_index]
        words = zip(encoding.word_ids, encoding.sequence_ids, strict=True)
        pieces = [index for index, place in enumerate(words) if place == (word_index, sequence_index)]
        return TokenSpan(pieces[0], pieces[-1] + 1) if pieces else None

    @property
    def is_fast(self) -> bool:
        """Whether pieces can be mapped to characters and words."""
        return bool(self.encodings)

    def to(self, device: str | torch.device, *, non_blocking: bool = False) -> BatchEncoding:
        """Move all tensors to `device`, in place."""
        import torch

        for name, value in self.data.items():
            if isinstance(value, torch.Tensor):
                self.data[name] = value.to(device, non_blocking=non_blocking)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the data only (for worker processes), without the mapping to characters and words."""
        return BatchEncoding, (self.data, [])


def array_kind(value: Any) -> str | None:
    """The kind of a tensor ("pt") or array ("np"), or of the first one in a list; None for numbers."""
    if isinstance(value, list | tuple):
        return array_kind(value[0]) if value else None
    if type(value).__module__.partition(".")[0] == "torch":
        return "pt"
    return "np" if hasattr(value, "tolist") else None


def as_arrays(data: dict[str, list[Any]], kind: str) -> dict[str, Any]:
    """Convert the columns of a batch to torch tensors ("pt") or numpy arrays ("np").

    Integers have 64 bits. As in Hugging Face, fractions have 32 bits in tensors and 64 bits in arrays.
    """
    if kind not in ("pt", "np"):
        raise UsageError(f"unknown return_tensors {kind!r}", remedy='use "pt" or "np"')
    import numpy as np

    try:
        arrays = {name: np.array(rows) for name, rows in data.items()}
    except ValueError:
        what = "sequences of different lengths cannot form one tensor"
        raise UsageError(what, remedy="pass padding=True (and truncation=True)") from None
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise UsageError(f"{name} cannot form a tensor: it has values that are not numbers")
        if array.dtype.kind in "iu" or array.size == 0:
            arrays[name] = array.astype(np.int64)
        elif array.dtype.kind == "f" and kind == "pt":
            arrays[name] = array.astype(np.float32)
    if kind == "np":
        return arrays
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}
