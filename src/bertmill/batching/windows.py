"""Cut inputs of any length into windows that fit the model, without dropping any pieces.

A window is `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`. A text that does not fit is cut into several windows, each
`stride` pieces after the previous one. The two texts of a pair share a window as in truncation (the longer one is cut
first). The last window contains the end of both texts: if one text has fewer parts, they are repeated evenly. The
outputs of a sequence's windows are averaged, weighted by the number of text pieces in each window.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from bertmill.checkpoint.names import METADATA_FILE, read_metadata
from bertmill.config.commands import WindowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.packing import PackedBatch
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.truncation import Range, cut_ranges, share_room
from bertmill.text.wordpiece import Pieces

Texts = tuple[str, ...]  # a text, or a pair of texts

MAX_CACHED_PIECES = 1 << 18  # of passages; questions about the same passage are usually consecutive


@dataclass(frozen=True)
class Window:
    """One sequence of pieces for the model."""

    ids: NDArray[np.uint32]
    num_first: int  # number of pieces in segment 0: [CLS], A and [SEP]
    weight: int  # number of text pieces


@dataclass(frozen=True)
class Windows:
    """Cuts texts into windows of at most `max_length` pieces. With `truncate`, only the first window is kept.

    Inputs that do not fit are counted for one note at the end. Thread-safe.
    """

    tokenizer: BertTokenizer
    max_length: int
    stride: int = 0  # pieces from one window to the next; 0: three quarters of the room
    truncate: bool = False
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    _passages: dict[str, Pieces] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def remark(self) -> str | None:
        """How many inputs did not fit and how they were handled; None if all fit."""
        with self._lock:
            return "; ".join(f"{what}: {count:,}" for what, count in self._counts.items() if count) or None

    def count(self, what: str) -> None:
        """Count an event for `remark`."""
        with self._lock:
            self._counts[what] += 1

    def cut(self, sequences: Sequence[Texts]) -> tuple[tuple[Window, ...], ...]:
        """Return the windows of each sequence of an example. Special strings such as [MASK] are treated as text."""
        windows = tuple(map(self._windows, sequences))
        self._count_long(max(map(len, windows)))
        return tuple(of_sequence[:1] for of_sequence in windows) if self.truncate else windows

    def _windows(self, texts: Texts) -> tuple[Window, ...]:
        ids = [self.ids(text) for text in texts]
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(len(texts) == 2)
        plan = plan_sequence(tuple(map(len, ids)), room, self.stride)
        return tuple(
            self.window(*(part[start:end] for part, (start, end) in zip(ids, ranges, strict=True))) for ranges in plan
        )

    def _count_long(self, num_windows: int) -> None:
        if num_windows > 1:
            treatment = "truncated" if self.truncate else "read in windows"
            self.count(f"rows longer than {self.max_length} pieces ({treatment})")

    def slide(self, num_pieces: int, room: int) -> list[Range]:
        """Return the ranges of pieces in windows with this room, for tasks that need every piece."""
        if self.truncate:
            raise UsageError("this task reads every piece: inputs cannot be truncated", remedy="omit `truncate`")
        ranges = [part for (part,) in plan_sequence((num_pieces,), room, self.stride)]
        self._count_long(len(ranges))
        return ranges

    def ids(self, text: str) -> NDArray[np.uint32]:
        """Return the ids of the pieces of a text, without special pieces."""
        return np.frombuffer(self.tokenizer.wordpiece.ids(text, split_special=True), np.uint32)

    def pieces(self, text: str) -> Pieces:
        """Return the pieces of a passage with their character offsets. Cached for other questions about it."""
        pieces = self._passages.get(text)
        if pieces is None:
            pieces = self.tokenizer.wordpiece.pieces(text, split_special=True)
            with self._lock:
                if sum(len(cached.ids) for cached in self._passages.values()) > MAX_CACHED_PIECES:
                    self._passages.clear()
                self._passages[text] = pieces
        return pieces

    def window(self, *parts: NDArray[np.uint32]) -> Window:
        """Return a window of one or two texts, with special pieces added."""
        num_pieces = sum(map(len, parts))
        row = np.full(num_pieces + len(parts) + 1, self.tokenizer.sep_token_id, np.uint32)
        row[0] = self.tokenizer.cls_token_id
        start = 1
        for part in parts:
            row[start : start + len(part)] = part
            start += len(part) + 1
        return Window(row, len(parts[0]) + 2, max(1, num_pieces))

    def metadata(self) -> dict[str, Any]:
        """Return the settings that a model folder records, so that texts are cut as in training."""
        return {"max_length": self.max_length, "stride": self.stride or None, "truncate": self.truncate}


def make_windows(
    settings: WindowSettings,
    tokenizer: BertTokenizer,
    num_positions: int,
    default_length: int | None = None,
    default_stride: int | None = None,
) -> Windows:
    """Create windows from settings and defaults, never longer than the model's positions.

    The default stride is limited to a third of the window, so that windows always overlap.
    """
    if settings.max_length is not None and settings.max_length > num_positions:
        raise UsageError(f"`max_length={settings.max_length}` exceeds the {num_positions} positions of the model")
    length = settings.max_length or min(num_positions, default_length or num_positions)
    if length < 5:
        raise UsageError(f"a window of {length} pieces has no room for two texts", remedy="use at least 5")
    stride = settings.stride or min(default_stride or 0, length // 3)
    if stride > length:
        remedy = "use a smaller `stride` or a larger `max_length`"
        raise UsageError(f"the stride {stride} must not exceed the window ({length})", remedy=remedy)
    return Windows(tokenizer, length, stride, bool(settings.truncate))


def recorded_settings(settings: WindowSettings, folder: Path) -> WindowSettings:
    """Complete `settings` with the window settings recorded in a model folder."""
    try:
        recorded = WindowSettings.model_validate(read_metadata(folder).get("windows", {}))
    except ValidationError:
        what = "has no valid window settings"
        raise IntegrityError(what, where=folder / METADATA_FILE, remedy="fine-tune again") from None
    if settings.max_length not in (None, recorded.max_length):  # the recorded stride is for another length
        recorded = recorded.model_copy(update={"stride": None})
    given = {name: getattr(settings, name) for name in ("max_length", "stride", "truncate")}
    return recorded.model_copy(update={name: value for name, value in given.items() if value is not None})


def plan_sequence(lengths: tuple[int, ...], room: int, stride: int) -> list[tuple[Range, ...]]:
    """Return the range of each text in each window. Together, the ranges cover all pieces."""
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
    """Return, for each piece, the first window in which the smaller of its left and right contexts is largest."""
    widest = np.zeros(num_pieces, np.intp)
    most = np.full(num_pieces, -1)
    for number, (start, end) in enumerate(ranges):
        context = np.arange(end - start)
        context = np.minimum(context, context[::-1])
        is_wider = context > most[start:end]
        most[start:end][is_wider] = context[is_wider]
        widest[start:end][is_wider] = number
    return widest


def pack(windows: Sequence[Window]) -> PackedBatch:
    """Pack windows into one batch."""
    lengths = [len(window.ids) for window in windows]
    ids = np.concatenate([window.ids for window in windows]).astype(np.int64)
    in_segments = [(window.num_first, len(window.ids) - window.num_first) for window in windows]
    segments = np.repeat(np.arange(2 * len(windows)) % 2, np.ravel(in_segments))
    return PackedBatch(torch.from_numpy(ids), lengths, torch.from_numpy(segments))


def merge_windows(rows: Tensor, sequences: Sequence[Sequence[Window]]) -> Tensor:
    """Average the rows of all windows per sequence, weighted by text pieces: [windows, …] → [sequences, …]."""
    if all(len(windows) == 1 for windows in sequences):
        return rows
    fractions = torch.zeros(len(sequences), len(rows))
    column = 0
    for number, windows in enumerate(sequences):
        weights = torch.tensor([float(window.weight) for window in windows])
        fractions[number, column : column + len(windows)] = weights / weights.sum()
        column += len(windows)
    return fractions.to(rows) @ rows
