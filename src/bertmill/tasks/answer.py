"""The part of a passage that answers a question, or that there is none.

A sequence is `[CLS] question [SEP] passage [SEP]`; two numbers per piece say how well an answer starts and ends there,
trained by cross-entropy over the pieces of a window, with [CLS] where the answer is not in it. The passage slides
through windows; a span is scored in the window where its first piece has the widest context, and its score is the sum
of start and end. All spans of at most 30 pieces are compared, not only those of the best starts and ends. The null
score is that of [CLS], the least over the windows: with a threshold there is no answer where the best span does not
exceed it by more. The threshold is the one with the best F1 on the dev questions, and is kept in the model folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import sliding_window_view
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


@dataclass(frozen=True)
class SpanOfPieces:
    score: float
    first: int
    last: int


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

    def best_spans(self, example: EncodedQuestion, output: Array, count: int = NUM_BEST) -> list[SpanOfPieces]:
        """The best spans of the passage, best first; none where it has no piece."""
        widest = widest_context(example.ranges, len(example.passage.ids))
        scores, firsts, lengths = [], [], []
        of_windows = self._of_windows(example, output)
        for number, ((start, end), rows) in enumerate(zip(example.ranges, of_windows, strict=True)):
            of_start, of_end = rows[example.offset : example.offset + end - start].T
            of_start = np.where(widest[start:end] == number, of_start, -np.inf)
            beyond = np.full(MAX_ANSWER_PIECES, -np.inf, of_end.dtype)
            ends_after = sliding_window_view(np.concatenate([of_end, beyond]), MAX_ANSWER_PIECES)[:-1]
            of_spans = of_start[:, None] + ends_after  # [pieces, lengths]
            best = _largest(of_spans.ravel(), count)
            first, length = np.divmod(best, MAX_ANSWER_PIECES)
            scores.append(of_spans.ravel()[best])
            firsts.append(first + start)
            lengths.append(length)
        all_scores, all_firsts, all_lengths = map(np.concatenate, (scores, firsts, lengths))
        order = np.argsort(-all_scores, kind="stable")[:count]
        return [
            SpanOfPieces(float(all_scores[place]), int(all_firsts[place]), int(all_firsts[place] + all_lengths[place]))
            for place in order
            if all_scores[place] > -np.inf
        ]

    def null_score(self, example: EncodedQuestion, output: Array) -> float:
        return min(float(rows[0].sum()) for rows in self._of_windows(example, output))

    def _of_windows(self, example: EncodedQuestion, output: Array) -> list[Array]:
        ends = accumulate(len(window.ids) for window in example.sequences[0][:-1])
        return np.split(output, list(ends))

    def text_of(self, example: EncodedQuestion, span: SpanOfPieces) -> tuple[str, int, int]:
        """The characters of the passage as it was given, and where they are."""
        start, end = int(example.passage.starts[span.first]), int(example.passage.ends[span.last])
        return example.example.row.texts[1][start:end], start, end

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """Exact match and F1 of the best span, whether there is an answer, and how far it exceeds the null score."""
        question = _encoded(example)
        wanted = question.example.row.label
        assert isinstance(wanted, tuple)
        best = self.best_spans(question, output, 1)
        if not best:
            return np.array([not wanted, not wanted, bool(wanted), NO_SPAN], np.float64)
        text, _, _ = self.text_of(question, best[0])
        margin = best[0].score - self.null_score(question, output)
        return np.array([*answer_scores(text, wanted), bool(wanted), margin], np.float64)

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
        question = _encoded(example)
        best, null = self.best_spans(question, output), self.null_score(question, output)
        margin = best[0].score - null if best else NO_SPAN
        has_answer = best and (self.null_threshold is None or margin > self.null_threshold)
        scores = [span.score for span in best] + ([] if self.null_threshold is None and best else [null])
        probabilities = _softmax(np.array(scores))
        answers = [
            dict(zip(("answer", "start", "end"), self.text_of(question, span), strict=True)) | {"score": probability}
            for span, probability in zip(best, probabilities, strict=False)
        ]
        if not has_answer:
            answers.insert(0, {"answer": "", "start": 0, "end": 0, "score": probabilities[-1]})
        return {**answers[0], "answers": answers}


def _encoded(example: EncodedExample) -> EncodedQuestion:
    assert isinstance(example, EncodedQuestion)
    return example


def _largest(values: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Where the largest values are, in no order."""
    return np.argpartition(-values, count - 1)[:count] if len(values) > count else np.arange(len(values))


def _softmax(scores: NDArray[np.float64]) -> list[float]:
    shares = np.exp(scores - scores.max())
    probabilities: list[float] = (shares / shares.sum()).tolist()
    return probabilities


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
