"""Questions with their passages as pieces, and the best spans of many passages at once.

A passage slides through windows; a span is scored in the window where its first piece has the widest context, and its
score is the sum of start and end. All spans of at most 30 pieces are compared: one that is among the best n starts at
one of the n pieces whose best span is best, so a sliding maximum over the ends leaves few to look at. The null score is
that of [CLS], the least over the windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.tasks.base import Array, EncodedExample
from bertmill.tasks.windows import widest_context
from bertmill.text.truncation import Range
from bertmill.text.wordpiece import Pieces

MAX_ANSWER_PIECES = 30
NUM_BEST = 20
NO_SPAN = -1e9  # by how much nothing exceeds the null score


@dataclass(frozen=True)
class EncodedQuestion(EncodedExample):
    """A question with its passage as pieces; every window shows a range of the passage."""

    passage: Pieces
    ranges: tuple[Range, ...]
    offset: int  # of the passage in each window

    @property
    def spans(self) -> list[Range]:
        """The first and the last piece of the first right answer in each window; [CLS] if it is not all there."""
        answer = self._answer_pieces()
        if answer is None:
            return [(0, 0)] * len(self.ranges)
        first, last = answer
        return [
            (first - start + self.offset, last - start + self.offset) if start <= first and last < end else (0, 0)
            for start, end in self.ranges
        ]

    def _answer_pieces(self) -> Range | None:
        if not self.target:
            return None
        start, end = self.target[0]
        first = int(np.searchsorted(self.passage.ends, start, side="right"))
        last = int(np.searchsorted(self.passage.starts, end, side="left")) - 1
        return (first, last) if first <= last else None  # an answer without a piece cannot be found


class Spans(NamedTuple):
    """The best spans of one passage, best first, and the score of there being none."""

    scores: Array
    firsts: NDArray[np.intp]  # pieces of the passage
    lasts: NDArray[np.intp]
    null: float

    @property
    def margin(self) -> float:
        """By how much the best exceeds the null score."""
        return float(self.scores[0]) - self.null if len(self.scores) else NO_SPAN


def best_spans(examples: Sequence[EncodedQuestion], outputs: Sequence[Array], count: int = NUM_BEST) -> list[Spans]:
    """The best spans of each passage, out of all, for many passages at once.

    A span among the best starts at one of as many pieces whose best span is best, so only the spans of those are
    looked at. Each row is a window.
    """
    flat = np.concatenate(outputs)  # [pieces, 2]
    begins, sizes, may_start = _rows_of_windows(examples)
    column = np.arange(int(sizes.max()))
    is_passage = column < sizes[:, None]  # [windows, pieces]
    passages_at = begins + np.repeat([each.offset for each in examples], [len(each.ranges) for each in examples])
    places = np.minimum(passages_at[:, None] + column, len(flat) - 1)
    ends = np.full((len(begins), len(column) + MAX_ANSWER_PIECES), -np.inf, np.float32)
    ends[:, : len(column)] = np.where(is_passage, flat[places, 1], -np.inf)
    starts = np.where(is_passage, flat[places, 0], -np.inf)
    for row, allowed in may_start:
        starts[row, : len(allowed)] = np.where(allowed, starts[row, : len(allowed)], -np.inf)
    firsts = _largest(starts + _largest_ahead(ends)[:, : len(column)], count)  # [windows, up to count]
    lasts = firsts[..., None] + np.arange(MAX_ANSWER_PIECES)
    rows = np.arange(len(begins))[:, None]
    scores = (starts[rows, firsts][..., None] + ends[rows[..., None], lasts]).reshape(len(begins), -1)
    best = _largest(scores, count)
    scores, firsts, lengths = scores[rows, best], firsts[rows, best // MAX_ANSWER_PIECES], best % MAX_ANSWER_PIECES
    order = np.argsort(-scores, axis=1, kind="stable")
    firsts = firsts[rows, order] + np.array([start for example in examples for start, _ in example.ranges])[:, None]
    scores, lasts, nulls = scores[rows, order], firsts + lengths[rows, order], flat[begins].sum(1)
    ends_of_rows = list(accumulate(len(example.ranges) for example in examples))
    return [
        _merged(scores[start:end], firsts[start:end], lasts[start:end], nulls[start:end], count)
        for start, end in pairwise([0, *ends_of_rows])
    ]


def _merged(scores: Array, firsts: NDArray[np.intp], lasts: NDArray[np.intp], nulls: Array, count: int) -> Spans:
    """The best spans of all windows of a passage; those of each are in order."""
    if len(scores) == 1:
        found = Spans(scores[0], firsts[0], lasts[0], float(nulls[0]))
    else:
        order = np.argsort(-scores.ravel(), kind="stable")[:count]
        found = Spans(scores.ravel()[order], firsts.ravel()[order], lasts.ravel()[order], float(nulls.min()))
    if len(found.scores) and found.scores[-1] > -np.inf:
        return found
    num_spans = np.count_nonzero(found.scores > -np.inf)
    return Spans(found.scores[:num_spans], found.firsts[:num_spans], found.lasts[:num_spans], found.null)


def _rows_of_windows(
    examples: Sequence[EncodedQuestion],
) -> tuple[NDArray[np.intp], NDArray[np.intp], list[tuple[int, NDArray[np.bool_]]]]:
    """Where each window begins in the flat row of all, how many pieces of passage it has, and, of those that are not
    alone, where a span may start: where the window is the one with the widest context."""
    windows = [window for example in examples for window in example.sequences[0]]
    lengths = [len(window.ids) for window in windows]
    begins = np.array(list(accumulate(lengths[:-1], initial=0)))
    sizes = np.array([end - start for example in examples for start, end in example.ranges])
    may_start = []
    row = 0
    for example in examples:
        if len(example.ranges) > 1:
            widest = widest_context(example.ranges, len(example.passage.ids))
            may_start += [
                (row + number, widest[start:end] == number) for number, (start, end) in enumerate(example.ranges)
            ]
        row += len(example.ranges)
    return begins, sizes, may_start


def _largest_ahead(values: Array) -> Array:
    """The largest of each number and those after it, as many as an answer has pieces; by doubling."""
    width = 1
    largest = values.copy()
    while width < MAX_ANSWER_PIECES:
        step = min(width, MAX_ANSWER_PIECES - width)
        largest[:, :-step] = np.maximum(largest[:, :-step], largest[:, step:])
        width += step
    return largest


def texts_of(question: EncodedQuestion, spans: Spans) -> list[tuple[str, int, int]]:
    """The characters of the passage as it was given, and where they are, of each span."""
    passage = question.example.row.texts[1]
    starts = question.passage.starts[spans.firsts].tolist()
    ends = question.passage.ends[spans.lasts].tolist()
    return [(passage[start:end], start, end) for start, end in zip(starts, ends, strict=True)]


def _largest(values: Array, count: int) -> NDArray[np.intp]:
    """Where the largest values of each row are, in no order."""
    if values.shape[1] <= count:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(values, -count, axis=1)[:, -count:]
