"""The part of a passage that answers a question, or that there is none.

A sequence is `[CLS] question [SEP] passage [SEP]`; two numbers per piece say how well an answer starts and ends there,
trained by cross-entropy over the pieces of a window, with [CLS] where the answer is not in it. The passage slides
through windows; a span is scored in the window where its first piece has the widest context, and its score is the sum
of start and end. All spans of at most 30 pieces are compared, not only those of the best starts and ends. The null
score is that of [CLS], the least over the windows: with a threshold there is no answer where the best span does not
exceed it by more. The threshold is the one with the best F1 on the dev questions, and is kept in the model folder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertmill.tasks.answer_scores import answer_scores
from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgement, Judgements, Task, run_windows
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.rows import BadRowError
from bertmill.tasks.windows import WindowMaker, widest_context
from bertmill.text.truncation import Range
from bertmill.text.wordpiece import Pieces

MAX_QUESTION_PIECES = 64
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


@dataclass(frozen=True)
class AnswerQuestions(Task):
    """`null_threshold` is None where every question has an answer."""

    null_threshold: float | None = None
    metric: str = "f1"

    name = "answer"
    head = "BertForQuestionAnswering"
    max_length = 384
    stride = 128

    def example(self, row: LabelledRow) -> Example:
        if len(row.texts) != 2:
            raise BadRowError("no question", "has no question", "give a question and a passage", where=row.place)
        return Example(row, (row.texts,), None if row.label is None else row.spans)

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        return () if row.label is None else ("answerable" if row.label else "unanswerable",)

    def settings(self) -> dict[str, Any]:
        return {"num_labels": 2}

    def note(self) -> dict[str, Any]:
        return {"task": self.name, "metric": self.metric, "null_threshold": self.null_threshold}

    def encode(self, example: Example, make_windows: WindowMaker) -> EncodedQuestion:
        wordpiece = make_windows.tokenizer.wordpiece
        question_text, passage_text = example.row.texts
        question = np.frombuffer(wordpiece.ids(question_text, split_special=True), np.uint32)
        room = make_windows.max_length - make_windows.tokenizer.num_special_tokens_to_add(pair=True)
        question = make_windows.cut_question(question, min(MAX_QUESTION_PIECES, room // 2))
        passage = make_windows.pieces(passage_text)
        ranges = make_windows.slide(len(passage.ids), room - len(question))
        windows = tuple(make_windows.window(question, passage.ids[start:end]) for start, end in ranges)
        return EncodedQuestion(example, (windows,), passage, tuple(ranges), len(question) + 2)

    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        parts = run_windows(model, examples, device)
        rows = torch.cat([torch.stack([part.start_logits, part.end_logits], 1) for part in parts])  # [pieces, 2]
        split: tuple[Tensor, ...] = rows.split([example.num_pieces for example in examples])
        return split

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        windows = [window for example in examples for window in example.sequences[0]]
        rows = torch.cat(list(outputs)).split([len(window.ids) for window in windows])
        padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=float("-inf"))  # [W, T, 2]
        wanted = torch.tensor([span for example in examples for span in _encoded(example).spans], device=padded.device)
        return F.cross_entropy(padded.transpose(1, 2).flatten(0, 1), wanted.flatten(), reduction="sum") / 2

    def weight(self, example: EncodedExample) -> float:
        return float(len(example.sequences[0]))

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """Exact match and F1 of the best span, whether there is an answer, and how far it exceeds the null score."""
        question = _encoded(example)
        wanted = question.example.row.label
        assert isinstance(wanted, tuple)
        (spans,) = best_spans([question], [output], 1)
        text = next((text for text, _, _ in _texts_of(question, spans)), "")
        return np.array([*answer_scores(text, wanted), bool(wanted), spans.margin], np.float64)

    def metrics(self, judgements: Judgements) -> dict[str, float]:
        if self.null_threshold is None:
            return dict(zip(("exact", "f1"), judgements[:, :2].mean(0).tolist(), strict=True))
        figures = _with_threshold(judgements, self.null_threshold)
        with_zero = _with_threshold(judgements, 0.0)
        return figures | {f"{name}_at_zero": with_zero[name] for name in ("exact", "f1")}

    @property
    def is_to_be_tuned(self) -> bool:
        return self.null_threshold is not None

    def tuned(self, judgements: Judgements) -> AnswerQuestions:
        """With the threshold that would have been best: between two margins, or beyond all of them."""
        _, f1, is_answerable, margins = judgements.T
        order = np.argsort(-margins)
        # What answering the n surest questions and no other gives, against answering none.
        gain = np.concatenate([[0.0], np.cumsum((f1 - (1 - is_answerable))[order])])
        num_answered = int(gain.argmax())
        borders = np.concatenate([[margins.max() + 1], margins[order], [margins.min() - 1]])
        return replace(self, null_threshold=float(borders[num_answered : num_answered + 2].mean()))

    def error(self, example: EncodedExample, output: Array) -> float:
        exact, f1, is_answerable, margin = map(float, self.judge(example, output))
        if self.null_threshold is not None and margin <= self.null_threshold:
            return is_answerable * max(1e-6, self.null_threshold - margin)
        return 0.0 if exact else (1 - f1) * max(1e-6, margin)

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        return self.decode_all([example], [output])[0]

    def decode_all(self, examples: Sequence[EncodedExample], outputs: Sequence[Array]) -> list[Answer]:
        questions = list(map(_encoded, examples))
        return [
            self._answer(question, spans)
            for question, spans in zip(questions, best_spans(questions, outputs), strict=True)
        ]

    def _answer(self, question: EncodedQuestion, spans: Spans) -> Answer:
        may_be_none = self.null_threshold is not None or not len(spans.scores)
        probabilities = _softmax([*spans.scores.tolist(), *([spans.null] if may_be_none else [])])
        answers = [
            {"answer": text, "start": start, "end": end, "score": probability}
            for (text, start, end), probability in zip(_texts_of(question, spans), probabilities, strict=False)
        ]
        if may_be_none and spans.margin <= (self.null_threshold or 0.0):
            answers.insert(0, {"answer": "", "start": 0, "end": 0, "score": probabilities[-1]})
        return {**answers[0], "answers": answers}


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


def _softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    shares = [math.exp(score - largest) for score in scores]
    whole = sum(shares)
    return [share / whole for share in shares]


def _texts_of(question: EncodedQuestion, spans: Spans) -> list[tuple[str, int, int]]:
    """The characters of the passage as it was given, and where they are, of each span."""
    passage = question.example.row.texts[1]
    starts = question.passage.starts[spans.firsts].tolist()
    ends = question.passage.ends[spans.lasts].tolist()
    return [(passage[start:end], start, end) for start, end in zip(starts, ends, strict=True)]


def _encoded(example: EncodedExample) -> EncodedQuestion:
    assert isinstance(example, EncodedQuestion)
    return example


def _largest(values: Array, count: int) -> NDArray[np.intp]:
    """Where the largest values of each row are, in no order."""
    if values.shape[1] <= count:
        return np.broadcast_to(np.arange(values.shape[1]), values.shape)
    return np.argpartition(values, -count, axis=1)[:, -count:]


def _with_threshold(judgements: Judgements, threshold: float) -> dict[str, float]:
    """Figures over all questions, over those with an answer, and over those without."""
    is_answerable, margins = judgements[:, 2] > 0, judgements[:, 3]
    is_answered = (margins > threshold)[:, None]
    scores = np.where(is_answered, judgements[:, :2], ~is_answerable[:, None])
    return {
        **dict(zip(("exact", "f1"), scores.mean(0).tolist(), strict=True)),
        "answerable_f1": float(scores[is_answerable, 1].sum() / max(1, is_answerable.sum())),
        "unanswerable_right": float(scores[~is_answerable, 1].sum() / max(1, (~is_answerable).sum())),
    }
