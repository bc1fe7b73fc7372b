"""The part of a passage that answers a question, or that there is none.

A sequence is `[CLS] question [SEP] passage [SEP]`; two numbers per piece say how well an answer starts and ends there,
trained by cross-entropy over the pieces of a window, with [CLS] where the answer is not in it. The answer is the best
span (spans.py). With a threshold there is none where the best span does not exceed the null score by more. The
threshold is the one with the best F1 on the dev questions. An answer has at most 30 pieces, or where training answers
are longer, as many as 99 % of them have. The model folder keeps both numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.tasks.answer_scores import answer_scores
from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgement, Judgements, Task, run_windows
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import BadRowError
from bertmill.tasks.spans import EncodedQuestion, Spans, best_spans, texts_of
from bertmill.tasks.windows import WindowMaker
from bertmill.text.tokenizer import BertTokenizer

MAX_QUESTION_PIECES = 64
USUAL_ANSWER_PIECES = 30
FOUND_SHARE = 0.99  # of the training answers: that many are not too long to be found
NONE = -1  # stands for there being no answer, in the place of the number of a span
MAX_SURPLUS = 50.0  # over the null score: an answer cannot be surer


@dataclass(frozen=True)
class AnswerQuestions(Task):
    """`null_threshold` is None where every question has an answer; of several answers the others stand in a list."""

    null_threshold: float | None = None
    max_answer_pieces: int = USUAL_ANSWER_PIECES
    num_answers: int = 1

    name = "answer"
    head = "BertForQuestionAnswering"
    goals = ("f1", "exact")
    max_length = 384
    stride = 128

    @classmethod
    def for_rows(cls, rows: Sequence[LabelledRow], tokenizer: BertTokenizer) -> AnswerQuestions:
        may_be_none = any(row.label == () for row in rows)
        # The shortest answer of each question: it is enough to find one.
        answers = [min(row.label, key=len) for row in rows if row.label]
        lengths = [len(tokenizer.wordpiece.ids(answer, split_special=True)) for answer in answers]
        long = int(np.quantile(lengths, FOUND_SHARE, method="inverted_cdf")) if lengths else 0
        return cls(0.0 if may_be_none else None, max(USUAL_ANSWER_PIECES, long))

    def remarks(self) -> list[str]:
        if self.max_answer_pieces == USUAL_ANSWER_PIECES:
            return []
        return [f"answers have at most {self.max_answer_pieces} pieces, as {FOUND_SHARE:.0%} of the given ones"]

    @property
    def reads_first_piece(self) -> bool:
        return self.null_threshold is not None

    def subject(self, row: LabelledRow) -> str:
        return row.texts[-1]  # the passage

    def example(self, row: LabelledRow) -> Example:
        if len(row.texts) != 2 or row.choices:
            raise BadRowError("no question", "has no question", "give a question and a passage", where=row.place)
        return Example(row, None if row.label is None else row.spans)

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        return () if row.label is None else ("answerable" if row.label else "unanswerable",)

    def settings(self) -> dict[str, Any]:
        return {"num_labels": 2}

    def note(self) -> dict[str, Any]:
        return {
            "null_threshold": self.null_threshold,
            "max_answer_pieces": self.max_answer_pieces,
        }

    def encode(self, example: Example, make_windows: WindowMaker) -> EncodedQuestion:
        wordpiece = make_windows.tokenizer.wordpiece
        question_text, passage_text = example.row.texts
        question = np.frombuffer(wordpiece.ids(question_text, split_special=True), np.uint32)
        room = make_windows.max_length - make_windows.tokenizer.num_special_tokens_to_add(pair=True)
        question = make_windows.cut_question(question, min(MAX_QUESTION_PIECES, room // 2))
        passage = make_windows.pieces(passage_text)
        ranges = make_windows.slide(len(passage.ids), room - len(question))
        windows = tuple(make_windows.window(question, passage.ids[start:end]) for start, end in ranges)
        encoded = EncodedQuestion(example, (windows,), passage, tuple(ranges), len(question) + 2)
        make_windows.num_lost_answers += encoded.loses_answer(self.max_answer_pieces)
        return encoded

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
        (spans,) = best_spans([question], [output], self.max_answer_pieces, 1)
        text = next((text for text, _, _ in texts_of(question, spans, 1)), "")
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
        borders = np.concatenate([[margins.max() + 1], margins[order], [margins.min() - 1]])
        # What answering the n surest questions and no other gives, against answering none; equal ones go together.
        gain = np.concatenate([[0.0], np.cumsum((f1 - (1 - is_answerable))[order])])
        num_answered = int(np.where(borders[:-1] > borders[1:], gain, -np.inf).argmax())
        return replace(self, null_threshold=float(borders[num_answered : num_answered + 2].mean()))

    @property
    def tuning(self) -> str:
        return f"null threshold {self.null_threshold:.4g}"

    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        exact, f1, is_answerable, margin = map(float, judgement)
        surplus = max(-MAX_SURPLUS, min(MAX_SURPLUS, margin - (self.null_threshold or 0.0)))
        if self.null_threshold is not None and surplus <= 0:
            return is_answerable * math.exp(-surplus)
        return 0.0 if exact else (1 - f1) * math.exp(surplus)

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        return self.decode_all([example], [output])[0]

    def decode_all(self, examples: Sequence[EncodedExample], outputs: Sequence[Array]) -> list[Answer]:
        questions = list(map(_encoded, examples))
        return [
            self._answer(question, spans)
            for question, spans in zip(questions, best_spans(questions, outputs, self.max_answer_pieces), strict=True)
        ]

    def _answer(self, question: EncodedQuestion, spans: Spans) -> Answer:
        may_be_none = self.null_threshold is not None or not len(spans.scores)
        probabilities = _softmax([*spans.scores.tolist(), *([spans.null] if may_be_none else [])])
        order = list(range(len(spans.scores)))
        if may_be_none:  # it stands first if it is the answer, else among the others by its probability
            is_none = spans.margin <= (self.null_threshold or 0.0)
            place = 0 if is_none else max(1, sum(each > probabilities[-1] for each in probabilities))
            order.insert(place, NONE)
        texts = texts_of(question, spans, self.num_answers)
        answers: list[Answer] = []
        for number in order[: self.num_answers]:
            text, start, end = ("", 0, 0) if number == NONE else texts[number]
            answers.append({"answer": text, "start": start, "end": end, "score": probabilities[number]})
        return answers[0] if self.num_answers == 1 else {**answers[0], "answers": answers}


def _softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    shares = [math.exp(score - largest) for score in scores]
    whole = sum(shares)
    return [share / whole for share in shares]


def _encoded(example: EncodedExample) -> EncodedQuestion:
    assert isinstance(example, EncodedQuestion)
    return example


def _with_threshold(judgements: Judgements, threshold: float) -> dict[str, float]:
    """Figures over all questions, over those with an answer, and over those without, where there are any."""
    is_answerable, margins = judgements[:, 2] > 0, judgements[:, 3]
    is_answered = (margins > threshold)[:, None]
    scores = np.where(is_answered, judgements[:, :2], ~is_answerable[:, None])
    return {
        **dict(zip(("exact", "f1"), scores.mean(0).tolist(), strict=True)),
        **({"answerable_f1": float(scores[is_answerable, 1].mean())} if is_answerable.any() else {}),
        **({"unanswerable_right": float(scores[~is_answerable, 1].mean())} if not is_answerable.all() else {}),
    }
