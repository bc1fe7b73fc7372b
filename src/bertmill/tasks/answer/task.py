"""The task answer: find the part of a passage that answers a question, or report no answer.

A sequence is `[CLS] question [SEP] passage [SEP]`. The model returns a start and an end logit per piece. The loss is
the cross-entropy over the pieces of a window, with [CLS] as the target if the window does not contain the answer. The
answer is the best span (spans.py).

- Null threshold: the answer is empty unless the score of the best span exceeds the null score by more than the
  threshold, which is tuned for the best F1 on the dev questions.
- Length limit: an answer has at most 30 pieces, or more if that is needed for 99% of the training answers.

The model folder records both numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from bertmill.batching.windows import Windows
from bertmill.checkpoint.names import METADATA_FILE
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.config import BertConfig
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.answer.rows import PASSAGE_FIELDS, AnswerOptions, QuestionRow, parse_question, read_questions
from bertmill.tasks.answer.scores import answer_scores
from bertmill.tasks.answer.spans import NUM_BEST, QuestionExample, Spans, best_spans, texts_of
from bertmill.tasks.base import Answer, Array, FolderEntries, Score, Scores, Task, TaskOptions, run_windows
from bertmill.tasks.sequence import refuse_other_fields
from bertmill.text.printable import one_line
from bertmill.text.tokenizer import BertTokenizer

MAX_QUESTION_PIECES = 64
DEFAULT_ANSWER_PIECES = 30
FOUND_FRACTION = 0.99  # the fraction of training answers that the length limit must cover
NO_ANSWER = -1  # in place of the index of a span
MAX_SURPLUS = 50.0  # bounds the confidence of an error
_LOST = "answers that cannot be found (too long, or cut off by the window they start in)"


class AnswerPredictOptions(TaskOptions):
    """Options of answer for `predict`."""

    top_k: int = Field(1, ge=1, le=NUM_BEST, description="answers per question; more than one gives a list")


@dataclass(frozen=True)
class AnswerQuestions(Task[QuestionRow, QuestionExample]):
    """Find the part of a passage that answers a question, or report no answer.

    rows:     {"question": "Who came?", "passage": "Then Ann came.", "answer": "Ann"}, "" if there is no
              answer, or a list of "answers"; .jsonl, .json (also in SQuAD's format), .parquet
    columns:  not used; the fields always have these names
    metrics:  f1 (default), exact
    """

    null_threshold: float | None = None  # None: every question has an answer
    max_answer_pieces: int = DEFAULT_ANSWER_PIECES
    top_k: int = 1  # above 1, an answer contains a list of the best answers

    name = "answer"
    head = "BertForQuestionAnswering"
    Options = AnswerOptions
    PredictOptions = AnswerPredictOptions
    selection_metrics = ("f1", "exact")
    fields: ClassVar[tuple[str, ...]] = ("question", "passage")

    def __post_init__(self) -> None:
        if not isinstance(self.top_k, int) or not 1 <= self.top_k <= NUM_BEST:
            raise UsageError(f"top_k must be between 1 and {NUM_BEST}, not {self.top_k}")

    @classmethod
    def read(cls, file: RowFile, options: AnswerOptions, *, labeled: bool) -> Iterator[QuestionRow]:
        return read_questions(file, labeled)

    @classmethod
    def request(cls, fields: Mapping[str, Any], place: str = "request") -> QuestionRow:
        refuse_other_fields(fields, ("question", *PASSAGE_FIELDS), cls.name)
        return parse_question(fields, place)

    @classmethod
    def from_rows(cls, rows: Sequence[QuestionRow], options: Any, tokenizer: BertTokenizer, file: RowFile) -> Self:
        has_unanswerable = any(not row.answers for row in rows)
        # The shortest answer of each question counts, because finding one is enough.
        answers = [min(row.answer_texts, key=len) for row in rows if row.answers]
        lengths = [len(tokenizer.wordpiece.ids(answer, split_special=True)) for answer in answers]
        longest = int(np.quantile(lengths, FOUND_FRACTION, method="inverted_cdf")) if lengths else 0
        if longest > DEFAULT_ANSWER_PIECES:
            notice = f"answers are limited to {longest} pieces, covering {FOUND_FRACTION:.0%} of the training answers"
            file.counts.notices.append(notice)
        return cls(0.0 if has_unanswerable else None, max(DEFAULT_ANSWER_PIECES, longest))

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self:
        threshold = metadata.get("null_threshold")
        max_pieces = metadata.get("max_answer_pieces", DEFAULT_ANSWER_PIECES)
        if not isinstance(threshold, float | int | None) or not isinstance(max_pieces, int) or max_pieces < 1:
            what = "null_threshold or max_answer_pieces is not a valid number"
            raise IntegrityError(what, where=METADATA_FILE, remedy="fine-tune again")
        return cls(threshold, max_pieces)

    def folder_entries(self) -> FolderEntries:
        metadata = {"null_threshold": self.null_threshold, "max_answer_pieces": self.max_answer_pieces}
        return FolderEntries({"num_labels": 2}, metadata)

    def threshold(self, may_have_none: bool) -> float | None:
        """Return the null threshold for predictions that may leave a question unanswered, or None if they may not."""
        return (self.null_threshold or 0.0) if may_have_none else None

    def labels(self, row: QuestionRow) -> tuple[str, ...]:
        return () if row.answers is None else ("answerable" if row.answers else "unanswerable",)

    def split_key(self, row: QuestionRow) -> SplitKey:
        return SplitKey(row.passage)

    @property
    def reads_cls(self) -> bool:
        return self.null_threshold is not None

    def encode(self, row: QuestionRow, windows: Windows) -> QuestionExample:
        question = windows.ids(row.texts[0])
        room = windows.max_length - windows.tokenizer.num_special_tokens_to_add(pair=True)
        limit = min(MAX_QUESTION_PIECES, room // 2)
        if len(question) > limit:
            windows.count("questions that are too long (truncated)")
        question = question[:limit]
        passage = windows.pieces(row.passage)
        ranges = windows.slide(len(passage.ids), room - len(question))
        parts = tuple(windows.window(question, passage.ids[start:end]) for start, end in ranges)
        places = (passage, tuple(ranges), len(question) + 2)
        example = QuestionExample(row, (parts,), row.answers, *places, weight=float(len(parts)))
        if example.loses_answer(self.max_answer_pieces):
            windows.count(_LOST)
        return example

    def outputs(self, model: nn.Module, examples: Sequence[QuestionExample], device: torch.device) -> Sequence[Tensor]:
        parts = run_windows(model, examples, device)
        rows = torch.cat([torch.stack([part.start_logits, part.end_logits], 1) for part in parts])  # [pieces, 2]
        split: tuple[Tensor, ...] = rows.split([example.num_pieces for example in examples])
        return split

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[QuestionExample]) -> Tensor:
        windows = [window for example in examples for window in example.sequences[0]]
        rows = torch.cat(list(outputs)).split([len(window.ids) for window in windows])
        padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=float("-inf"))  # [W, T, 2]
        wanted = torch.tensor([span for example in examples for span in example.spans], device=padded.device)
        return F.cross_entropy(padded.transpose(1, 2).flatten(0, 1), wanted.flatten(), reduction="sum") / 2

    def guessing_loss(self, examples: Sequence[QuestionExample]) -> float:
        lengths = [len(window.ids) for example in examples for window in example.sequences[0]]
        return float(np.mean(np.log(lengths)))

    def score(self, example: QuestionExample, output: Array) -> Score:
        """Exact match and F1 of the best span, whether the question is answerable, and the margin of the span."""
        (spans,) = best_spans([example], [output], self.max_answer_pieces, 1)
        text = next((text for text, _, _ in texts_of(example, spans, 1)), "")
        expected = example.row.answer_texts
        return np.array([*answer_scores(text, expected), bool(expected), spans.margin], np.float64)

    def metrics(self, scores: Scores) -> dict[str, float]:
        if self.null_threshold is None:
            return dict(zip(("exact", "f1"), scores[:, :2].mean(0).tolist(), strict=True))
        metrics = _with_threshold(scores, self.null_threshold)
        with_zero = _with_threshold(scores, 0.0)
        return metrics | {f"{name}_at_zero": with_zero[name] for name in ("exact", "f1")}

    def tuned(self, scores: Callable[[], Scores], metric: str) -> tuple[Self, str]:
        """Return the task with the null threshold that maximizes F1 on these scores."""
        if self.null_threshold is None:
            return self, ""
        _, f1, is_answerable, margins = scores().T
        order = np.argsort(-margins)
        borders = np.concatenate([[margins.max() + 1], margins[order], [margins.min() - 1]])
        # Gain of answering only the n most confident questions over answering none. Ties stay together.
        gain = np.concatenate([[0.0], np.cumsum((f1 - (1 - is_answerable))[order])])
        num_answered = int(np.where(borders[:-1] > borders[1:], gain, -np.inf).argmax())
        threshold = float(borders[num_answered : num_answered + 2].mean())
        return replace(self, null_threshold=threshold), f"null threshold {threshold:.4g}"

    def baseline(self, examples: Sequence[QuestionExample], metric: str) -> tuple[str, Scores]:
        is_answerable = np.array([bool(example.row.answer_texts) for example in examples])
        right = (~is_answerable).astype(np.float64)
        return "no answer", np.stack([right, right, is_answerable, np.full(len(right), -np.inf)], 1)

    def confidences(self, example: QuestionExample, output: Array) -> Iterator[tuple[float, bool]]:
        (answer,) = self.decode([example], [output])
        yield answer["score"], not self.mistake(example, output, self.score(example, output))[0]

    def mistake(self, example: QuestionExample, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        exact, f1, is_answerable, margin = map(float, score)
        surplus = max(-MAX_SURPLUS, min(MAX_SURPLUS, margin - (self.null_threshold or 0.0)))
        if self.null_threshold is not None and surplus <= 0:
            confidence = is_answerable * math.exp(-surplus)
        else:
            confidence = 0.0 if exact else (1 - f1) * math.exp(surplus)
        return confidence, example.row.answer_texts

    def decode(self, examples: Sequence[QuestionExample], outputs: Sequence[Array]) -> list[Answer]:
        found = best_spans(examples, outputs, self.max_answer_pieces)
        return [self._answer(example, spans) for example, spans in zip(examples, found, strict=True)]

    def _answer(self, example: QuestionExample, spans: Spans) -> Answer:
        may_be_none = self.null_threshold is not None or not len(spans.scores)
        likely = _softmax([*spans.scores.tolist(), *([spans.null] if may_be_none else [])])
        order = list(range(len(spans.scores)))
        if may_be_none:  # first if it is the answer, or else ranked by its probability
            is_none = spans.margin <= (self.null_threshold or 0.0)
            place = 0 if is_none else max(1, sum(each > likely[-1] for each in likely))
            order.insert(place, NO_ANSWER)
        texts = texts_of(example, spans, self.top_k)
        answers: list[Answer] = []
        for number in order[: self.top_k]:
            text, start, end = ("", 0, 0) if number == NO_ANSWER else texts[number]
            answers.append({"answer": text, "start": start, "end": end, "score": likely[number]})
        return answers[0] if self.top_k == 1 else {**answers[0], "answers": answers}

    def show(self, answer: Answer) -> str:
        if not answer["answer"]:
            return f"no answer {answer['score']:.4f}"
        return f"{one_line(answer['answer'])} ({answer['start']}–{answer['end']}) {answer['score']:.4f}"


def _softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    whole = sum(exponentials)
    return [each / whole for each in exponentials]


def _with_threshold(scores: Scores, threshold: float) -> dict[str, float]:
    """Return the metrics over all questions, and over answerable and unanswerable ones if there are any."""
    is_answerable, margins = scores[:, 2] > 0, scores[:, 3]
    is_answered = (margins > threshold)[:, None]
    scores = np.where(is_answered, scores[:, :2], ~is_answerable[:, None])
    return {
        **dict(zip(("exact", "f1"), scores.mean(0).tolist(), strict=True)),
        **({"answerable_f1": float(scores[is_answerable, 1].mean())} if is_answerable.any() else {}),
        **({"unanswerable_accuracy": float(scores[~is_answerable, 1].mean())} if not is_answerable.all() else {}),
    }
