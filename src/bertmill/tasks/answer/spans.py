"""Encoded questions, and the search for the best spans of many passages at once.

A long passage is read in overlapping windows. A span is scored in the window where its first piece has the widest
context; its score is the sum of its start and end logits. The search is exact over all spans of at most `max_pieces`:
a span among the best n starts at one of the n pieces whose best span scores highest, and a sliding maximum over the
ends finds the best span of each piece. The null score is the lowest score of [CLS] over all windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.batching.windows import widest_context
from bertmill.tasks.base import Array, Example
from bertmill.text.truncation import Range
from bertmill.text.wordpiece import Pieces

NUM_BEST = 20
NO_SPAN = -1e9  # the margin of a passage without spans


@dataclass(frozen=True)
class QuestionExample(Example):
    """An encoded question with the pieces of its passage and the range of the passage that each window shows."""

    passage: Pieces
    ranges: tuple[Range, ...]
    offset: int  # of the passage in each window

    def loses_answer(self, max_pieces: int) -> bool:
        """Whether the question has answers, but none of them can be found."""
        return bool(self.target) and all(self._is_lost(answer, max_pieces) for answer in self.target)

    def _is_lost(self, answer: Range, max_pieces: int) -> bool:
        """Whether an answer has no piece, has too many, or is cut off by the only window in which it may start."""
        pieces = self._pieces_of(answer)
        if pieces is None:
            return True
        first, last = pieces
        window = widest_context(self.ranges, len(self.passage.ids))[first]
        return last - first >= max_pieces or last >= self.ranges[window][1]

    @property
    def spans(self) -> list[Range]:
        """The first and the last piece of the first answer in each window; [CLS] if the window does not contain it."""
        pieces = self._pieces_of(self.target[0]) if self.target else None
        if pieces is None:
            return [(0, 0)] * len(self.ranges)
        first, last = pieces
        return [
            (first - start + self.offset, last - start + self.offset) if start <= first and last < end else (0, 0)
            for start, end in self.ranges
        ]

    def _pieces_of(self, answer: Range) -> Range | None:
        """Return the first and the last piece of an answer, which is a range of characters."""
        start, end = answer
        first = int(np.searchsorted(self.passage.ends, start, side="right"))
        last = int(np.searchsorted(self.passage.starts, end, side="left")) - 1
        return (first, last) if first <= last else None


class Spans(NamedTuple):
    """The best spans of one passage, best first, and the null score."""

    scores: Array
    firsts: NDArray[np.intp]  # pieces of the passage
    lasts: NDArray[np.intp]
    null: float

    @property
    def margin(self) -> float:
        """The difference between the best score and the null score."""
        return float(self.scores[0]) - self.null if len(self.scores) else NO_SPAN


def best_spans(
    examples: Sequence[QuestionExample], outputs: Sequence[Array], max_pieces: int, count: int = NUM_BEST
) -> list[Spans]:
    """Return the best `count` spans of each passage, with at most `max_pieces` pieces per span."""
    longest = max(end - start for example in examples for start, end in example.ranges)
    max_pieces = max(1, min(max_pieces, longest))
    starts, ends, nulls = _scores_in_windows(examples, np.concatenate(outputs), max_pieces)
    scores, firsts, lasts = _best_in_windows(starts, ends, max_pieces, count)
    begins = np.array([start for example in examples for start, _ in example.ranges])[:, None]
    firsts, lasts = firsts + begins, lasts + begins
    ends_of_examples = accumulate((len(example.ranges) for example in examples), initial=0)
    rows = [slice(start, end) for start, end in pairwise(ends_of_examples)]
    return [_merged(scores[row], firsts[row], lasts[row], nulls[row], count) for row in rows]


def _scores_in_windows(examples: Sequence[QuestionExample], flat: Array, max_pieces: int) -> tuple[Array, Array, Array]:
    """Return the start scores [W, T], the end scores [W, T + max_pieces] and the null score [W] of each window.

    Start and end scores are those of the passage pieces that a window shows, or -inf where an answer cannot start or
    end. `flat` holds the two logits of every piece of all windows.
    """
    windows = [window for example in examples for window in example.sequences[0]]
    begins = np.fromiter(accumulate((len(window.ids) for window in windows[:-1]), initial=0), np.intp)
    sizes = np.array([end - start for example in examples for start, end in example.ranges])
    offsets = np.repeat([example.offset for example in examples], [len(example.ranges) for example in examples])
    column = np.arange(sizes.max())
    is_shown = column < sizes[:, None]
    places = np.minimum((begins + offsets)[:, None] + column, len(flat) - 1)
    ends = np.full((len(windows), len(column) + max_pieces), -np.inf, np.float32)
    ends[:, : len(column)] = np.where(is_shown, flat[places, 1], -np.inf)
    starts = np.where(is_shown & _may_start(examples, is_shown.shape), flat[places, 0], -np.inf)
    return starts, ends, flat[begins].sum(1)


def _may_start(examples: Sequence[QuestionExample], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return where a span may start in each window: at pieces that no other window shows with a wider context."""
    allowed = np.ones(shape, np.bool_)
    row = 0
    for example in examples:
        if len(example.ranges) > 1:
            widest = widest_context(example.ranges, len(example.passage.ids))
            for number, (start, end) in enumerate(example.ranges):
                allowed[row + number, : end - start] = widest[start:end] == number
        row += len(example.ranges)
    return allowed


def _best_in_windows(
    starts: Array, ends: Array, max_pieces: int, count: int
) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
    """Return the scores of the best spans in each row, best first, and their first and last columns."""
    rows = np.arange(len(starts))[:, None]
    firsts = _largest(starts + _largest_ahead(ends, max_pieces)[:, : starts.shape[1]], count)  # [W, up to count]
    lasts = firsts[..., None] + np.arange(max_pieces)  # [W, up to count, max_pieces]
    scores = (starts[rows, firsts][..., None] + ends[rows[..., None], lasts]).reshape(len(starts), -1)
    best = _largest(scores, count)
    best = best[rows, np.argsort(-scores[rows, best], axis=1, kind="stable")]
    first = firsts[rows, best // max_pieces]
    return scores[rows, best], first, first + best % max_pieces


def _merged(scores: Array, firsts: NDArray[np.intp], lasts: NDArray[np.intp], nulls: Array, count: int) -> Spans:
    """Merge the spans of all windows of a passage, which are sorted within each window."""
    order = np.argsort(-scores.ravel(), kind="stable")[:count]
    order = order[scores.ravel()[order] > -np.inf]  # there may be fewer than `count` spans
    return Spans(scores.ravel()[order], firsts.ravel()[order], lasts.ravel()[order], float(nulls.min()))


def _largest_ahead(values: Array, count: int) -> Array:
    """Return the maximum over each value and the `count - 1` values after it, by doubling."""
    width = 1
    largest = values.copy()
    while width < count:
        step = min(width, count - width)
        largest[:, :-step] = np.maximum(largest[:, :-step], largest[:, step:])
        width += step
    return largest


def texts_of(question: QuestionExample, spans: Spans, count: int) -> list[tuple[str, int, int]]:
    """Return the text and the character offsets of the first `count` spans, in the original passage."""
    passage = question.row.passage
    starts = question.passage.starts[spans.firsts[:count]].tolist()
    ends = question.passage.ends[spans.lasts[:count]].tolist()
    return [(passage[start:end], start, end) for start, end in zip(starts, ends, strict=True)]


def _largest(values: Array, count: int) -> NDArray[np.intp]:
    """Return the columns of the largest values of each row, in no particular order."""
    if values.shape[1] <= count:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(values, -count, axis=1)[:, -count:]
