"""Plan which part of each text goes into which window, when texts are longer than the model allows.

A plan is a list of windows; a window is a range of pieces for each text. The rules and the order are those of Hugging
Face's tokenizers: `stride` is the number of pieces that adjacent windows share, the first window is what truncation
keeps, and the others are the overflow. There is one difference: where nothing of a text would be left, Hugging Face
returns an empty or an overlong window, and this module raises UsageError.
"""

from __future__ import annotations

from itertools import product
from typing import Literal

from bertmill.errors import UsageError

Range = tuple[int, int]
Window = tuple[Range, ...]  # one range per text of the sequence: A, or A and B
Strategy = Literal["longest_first", "only_first", "only_second", "do_not_truncate"]
Side = Literal["left", "right"]


def plan_windows(
    lengths: tuple[int, ...], room: int, strategy: Strategy, *, stride: int, side: Side, overflow: bool
) -> list[Window]:
    """The windows for texts of `lengths` pieces; a window has room for `room` pieces besides `[CLS]` and `[SEP]`.

    Without `overflow`, only the first window is returned, which is what truncation keeps.
    """
    if stride < 0:
        raise UsageError(f"stride must be at least 0, not {stride}")
    if strategy == "do_not_truncate" or sum(lengths) <= room:
        return [tuple((0, length) for length in lengths)]
    limits = _limits(lengths, room, strategy)
    parts = [cut_ranges(length, limit, stride, side) for length, limit in zip(lengths, limits, strict=True)]
    if not overflow:
        return [tuple(ranges[0] for ranges in parts)]
    if len(parts) == 1:
        return [(part,) for part in parts[0]]
    first, second = parts
    # As in Hugging Face: what truncation keeps, each other part of A with all of B, A's first part with the rest of B.
    return [(first[0], second[0]), *product(first[1:], second), *product(first[:1], second[1:])]


def _limits(lengths: tuple[int, ...], room: int, strategy: Strategy) -> tuple[int, ...]:
    """The number of pieces that each text may keep."""
    if strategy == "longest_first":
        return (room,) if len(lengths) == 1 else share_room(lengths, room)
    index = 0 if strategy == "only_first" else 1
    if index >= len(lengths):
        raise UsageError("truncation only_second needs a second text")
    kept = room - (sum(lengths) - lengths[index])
    if kept <= 0 and len(lengths) == 2:
        what = f"the other text alone fills max_length, so truncation {strategy} leaves no room"
        raise UsageError(what, remedy="use longest_first")
    return tuple(kept if place == index else length for place, length in enumerate(lengths))


def share_room(lengths: tuple[int, ...], room: int) -> tuple[int, int]:
    """The lengths of two texts in `room` pieces: the longer one is shortened first, until both are equally long."""
    shorter, longer = min(lengths), max(lengths)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter = room // 2
        longer = room - shorter
    return (shorter, longer) if lengths[0] <= lengths[1] else (longer, shorter)


def cut_ranges(length: int, limit: int, stride: int, side: Side) -> list[Range]:
    """Ranges of at most `limit` pieces that cover `length` pieces; adjacent ranges share `stride` pieces."""
    if length <= limit:
        return [(0, length)]
    if limit < 1:
        raise UsageError("max_length leaves no room for the text", remedy="increase max_length")
    if stride >= limit:
        raise UsageError(f"stride ({stride}) must be smaller than the {limit} pieces of the text that fit in a window")
    ranges = [(start, min(start + limit, length)) for start in range(0, length - stride, limit - stride)]
    return ranges if side == "right" else [(length - end, length - start) for start, end in ranges]
