"""Texts of any length as windows that a model can read and that leave nothing out, and their answers put together.

A window is `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`. A text that does not fit slides through several, by `stride`
pieces each. The texts of a pair share the room as in truncation (the longer gives way); both reach their ends
together: where one has fewer parts, they are repeated evenly. What the windows of a sequence say is averaged,
each counting as much as the pieces of text it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from bertmill.checkpoint.names import MODEL_NOTE, model_note
from bertmill.config.commands import RowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.config import BertConfig
from bertmill.model.packing import PackedBatch
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.truncation import Range, cut_ranges, share_room
from bertmill.text.wordpiece import Pieces

Texts = tuple[str, ...]  # a text, or a pair of texts

MAX_REMEMBERED_PIECES = 1 << 18  # of passages; questions about the same one usually stand together
PIECES_AT_ONCE = 1024  # that go through the model together, where nothing is learnt; more need memory and save no time


@dataclass(frozen=True)
class Window:
    """One sequence of pieces that goes through the model."""

    ids: NDArray[np.uint32]
    num_first: int  # pieces of segment 0: [CLS], A and [SEP]
    weight: int  # pieces of text


@dataclass
class WindowMaker:
    """Turns texts into windows of at most `max_length` pieces; with `truncate` only the first is kept.

    Examples that do not fit are counted, whether they are cut or not.
    """

    tokenizer: BertTokenizer
    max_length: int
    stride: int | None = None  # pieces advanced from window to window; None: three quarters of the room
    truncate: bool = False
    num_long: int = field(default=0, init=False)
    num_cut_questions: int = field(default=0, init=False)
    num_lost_answers: int = field(default=0, init=False)
    _passages: dict[str, Pieces] = field(default_factory=dict, init=False)
    _num_remembered: int = field(default=0, init=False)  # pieces

    def __post_init__(self) -> None:
        if self.max_length < 5:
            raise UsageError(f"--max-length {self.max_length} leaves no room for two texts", remedy="give at least 5")

    @property
    def remark(self) -> str | None:
        """What became of the examples that do not fit, if there were any."""
        fate = "cut there" if self.truncate else "read in windows"
        parts = [f"{self.num_long:,} rows are longer than {self.max_length} pieces: {fate}"] if self.num_long else []
        parts += [f"{self.num_cut_questions:,} questions are too long: cut"] if self.num_cut_questions else []
        lost = f"{self.num_lost_answers:,} answers are too long, or cut by the window they begin in: never found"
        parts += [lost] if self.num_lost_answers else []
        return "; ".join(parts) or None

    def __call__(self, sequences: Sequence[Texts]) -> tuple[tuple[Window, ...], ...]:
        """The windows of each sequence of an example. Special strings such as [MASK] in a text are text."""
        windows = tuple(map(self._windows, sequences))
        self.num_long += any(len(of_sequence) > 1 for of_sequence in windows)
        return tuple(of_sequence[:1] for of_sequence in windows) if self.truncate else windows

    def _windows(self, texts: Texts) -> tuple[Window, ...]:
        ids = [np.frombuffer(self.tokenizer.wordpiece.ids(text, split_special=True), np.uint32) for text in texts]
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(len(texts) == 2)
        plan = plan_sequence(tuple(map(len, ids)), room, self.stride)
        return tuple(
            self.window(*(part[start:end] for part, (start, end) in zip(ids, ranges, strict=True))) for ranges in plan
        )

    def slide(self, num_pieces: int, room: int) -> list[Range]:
        """The ranges of pieces that windows with so much room for them show; no piece may be cut off here."""
        if self.truncate:
            raise UsageError("--truncate would leave words without a tag, or answers unfound", remedy="leave it away")
        ranges = [part for (part,) in plan_sequence((num_pieces,), room, self.stride)]
        self.num_long += len(ranges) > 1
        return ranges

    def cut_question(self, ids: NDArray[np.uint32], limit: int) -> NDArray[np.uint32]:
        """The pieces of a question that stand beside every part of its passage; what is cut is counted."""
        self.num_cut_questions += len(ids) > limit
        return ids[:limit]

    def pieces(self, text: str) -> Pieces:
        """The pieces of a passage with their characters, remembered for its other questions."""
        if text not in self._passages:
            if self._num_remembered > MAX_REMEMBERED_PIECES:
                self._passages.clear()
                self._num_remembered = 0
            self._passages[text] = self.tokenizer.wordpiece.pieces(text, split_special=True)
            self._num_remembered += len(self._passages[text].ids)
        return self._passages[text]

    def window(self, *parts: NDArray[np.uint32]) -> Window:
        """One text, or two, as a sequence that goes through the model."""
        num_pieces = sum(map(len, parts))
        row = np.full(num_pieces + len(parts) + 1, self.tokenizer.sep_token_id, np.uint32)
        row[0] = self.tokenizer.cls_token_id
        start = 1
        for part in parts:
            row[start : start + len(part)] = part
            start += len(part) + 1
        return Window(row, len(parts[0]) + 2, max(1, num_pieces))

    def note(self) -> dict[str, Any]:
        """What a model folder remembers, so that texts are read as they were in training."""
        return {"max_length": self.max_length, "stride": self.stride, "truncate": self.truncate}


def window_maker(
    settings: RowSettings,
    tokenizer: BertTokenizer,
    config: BertConfig,
    usual_length: int | None = None,
    usual_stride: int | None = None,
) -> WindowMaker:
    """Windows as the settings want them; if they do not say, as is usual, at most as long as the model can read.

    A usual stride is at most a third of the window, so that windows always share pieces.
    """
    longest = config.max_position_embeddings
    if settings.max_length is not None and settings.max_length > longest:
        raise UsageError(f"--max-length {settings.max_length} is longer than the {longest} positions of the model")
    length = settings.max_length or min(longest, usual_length or longest)
    stride = settings.stride or (usual_stride and min(usual_stride, length // 3))
    if stride and stride > length:
        what = f"a stride of {stride} would jump over pieces: a window has {length}"
        raise UsageError(what, remedy="give a smaller --stride, or longer windows with --max-length")
    return WindowMaker(tokenizer, length, stride, bool(settings.truncate))


def remembered_settings(settings: RowSettings, folder: Path) -> RowSettings:
    """The settings, and where they do not say how long texts are read, what the note of a model folder says."""
    try:
        remembered = RowSettings.model_validate(model_note(folder).get("windows", {}))
    except ValidationError:
        what = "says nothing sensible about windows"
        raise IntegrityError(what, where=folder / MODEL_NOTE, remedy="fine-tune again") from None
    if settings.max_length not in (None, remembered.max_length):  # the stride was one for windows of another length
        remembered = remembered.model_copy(update={"stride": None})
    given = {name: getattr(settings, name) for name in ("max_length", "stride", "truncate")}
    return remembered.model_copy(update={name: value for name, value in given.items() if value is not None})


def plan_sequence(lengths: tuple[int, ...], room: int, stride: int | None) -> list[tuple[Range, ...]]:
    """Which part of each text stands in which window; all parts together are all pieces."""
    if sum(lengths) <= room:
        return [tuple((0, length) for length in lengths)]
    limits = (room,) if len(lengths) == 1 else share_room(lengths, room)
    parts = [
        cut_ranges(length, limit, limit - min(limit, stride or -(-3 * limit // 4)), "right")
        for length, limit in zip(lengths, limits, strict=True)
    ]
    num_windows = max(map(len, parts))
    return [tuple(of_text[number * len(of_text) // num_windows] for of_text in parts) for number in range(num_windows)]


def widest_context(ranges: Sequence[Range], num_pieces: int) -> NDArray[np.intp]:
    """The window in which each piece has the most pieces around it on its poorer side; where equal, the first."""
    widest = np.zeros(num_pieces, np.intp)
    most = np.full(num_pieces, -1)
    for number, (start, end) in enumerate(ranges):
        context = np.arange(end - start)
        context = np.minimum(context, context[::-1])
        is_wider = context > most[start:end]
        most[start:end][is_wider] = context[is_wider]
        widest[start:end][is_wider] = number
    return widest


def in_portions(windows: Sequence[Window]) -> Iterator[list[Window]]:
    """The windows, one after the other, as many at once as are allowed; a single longer one is a portion alone."""
    portion: list[Window] = []
    room = PIECES_AT_ONCE
    for window in windows:
        if portion and len(window.ids) > room:
            yield portion
            portion, room = [], PIECES_AT_ONCE
        portion.append(window)
        room -= len(window.ids)
    yield portion


def pack(windows: Sequence[Window]) -> PackedBatch:
    """Windows as one flat batch."""
    lengths = [len(window.ids) for window in windows]
    ids = torch.from_numpy(np.concatenate([window.ids for window in windows]).astype(np.int64))
    ends = np.cumsum(lengths)
    segments = torch.ones(len(ids), dtype=torch.int64)
    for window, end, length in zip(windows, ends.tolist(), lengths, strict=True):
        segments[end - length : end - length + window.num_first] = 0
    return PackedBatch(ids, lengths, segments)


def merge_windows(rows: Tensor, sequences: Sequence[Sequence[Window]]) -> Tensor:
    """The rows of all windows, one after the other → the weighted mean row of each sequence [sequences, …]."""
    if all(len(windows) == 1 for windows in sequences):
        return rows
    shares = torch.zeros(len(sequences), len(rows))
    column = 0
    for number, windows in enumerate(sequences):
        weights = torch.tensor([float(window.weight) for window in windows])
        shares[number, column : column + len(windows)] = weights / weights.sum()
        column += len(windows)
    return shares.to(rows) @ rows
