"""`bertmill.load(MODEL)`: a model and its tokenizer, ready to be asked.

`fill` guesses masked words. Its results have the keys of the fill-mask pipeline of Hugging Face. In a text that is
longer than the model's positions, each [MASK] is guessed from the pieces around it, as many as fit. A left-to-right
model guesses from the pieces before it alone. `predict` gives the answers of a fine-tuned model (answering.py); `tag`
and `answer` are the same for tags and for questions, the latter called like Hugging Face's question-answering pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertmill.checkpoint.names import find_model
from bertmill.errors import DataError, UsageError
from bertmill.inference.answering import TaskModel, load_with_head
from bertmill.machine import choose_device
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.packing import PackedBatch
from bertmill.tasks.answer import AnswerQuestions
from bertmill.tasks.base import Answer, Task
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.spans import NUM_BEST
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import join_words

Guess = dict[str, Any]
Input = str | tuple[str, str] | dict[str, Any]


class Predictor:
    """Answers questions about texts with the model of a folder."""

    def __init__(self, name_or_folder: str | Path, device: str = "auto") -> None:
        self.folder = find_model(name_or_folder)
        self.device = choose_device(device)
        self.tokenizer = BertTokenizer.from_pretrained(self.folder)
        self._words: BertForMaskedLM | None = None
        self._task: TaskModel | None = None

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """What a fine-tuned model answers for each text, or pair (a tuple of two texts).

        Multiple choice asks for `{"text": …, "pair": …, "choices": […]}`, where `pair` may be left out. An answer has
        the keys of `bertmill predict`: label, score and scores; number; choice, answer, score and scores; words,
        offsets, tags, scores and entities; answer, start, end and score, where the pair is (question, passage).
        """
        if isinstance(inputs, str):
            raise UsageError("predict takes a list of texts", remedy="put the text into a list")
        return self._answers([_row(each, number) for number, each in enumerate(_listed(inputs))])

    def tag(self, texts: str | Sequence[str] | Sequence[Sequence[str]]) -> Answer | list[Answer]:
        """A tag for every word of a text, or of each of several; words may be given as lists of words.

        An answer has `words`, `offsets`, `tags` and `scores`, and `entities` where tags mean spans of words.
        """
        self._require("tag")
        rows = [_tag_row(each, number) for number, each in enumerate(_listed(texts))]
        answers = self._answers(rows)
        return answers[0] if isinstance(texts, str) else answers

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int = 1,
        handle_impossible_answer: bool = False,
    ) -> Answer | list[Answer] | list[list[Answer]]:
        """The part of `context` that answers `question`: `answer`, `start`, `end` (characters) and `score`.

        Lists of both give a list; one context may serve several questions. With `top_k` above 1 each result is a list
        of the best. With `handle_impossible_answer` it is "" where the model finds no answer, by its tuned threshold.
        """
        task = self._require("answer").task
        assert isinstance(task, AnswerQuestions)
        if not isinstance(top_k, int) or not 1 <= top_k <= NUM_BEST:
            raise UsageError(f"top_k must be between 1 and {NUM_BEST}, not {top_k}")
        questions = _listed(question)
        contexts = _listed(context) * (len(questions) if isinstance(context, str) else 1)
        if len(contexts) != len(questions) or not all(isinstance(text, str) for text in (*questions, *contexts)):
            raise UsageError("question and context should be two texts, or two lists of as many texts")
        if not all(text.strip() for text in (*questions, *contexts)):
            raise UsageError("a question or a context is empty")
        rows = [
            LabelledRow(f"input {number}", texts) for number, texts in enumerate(zip(questions, contexts, strict=True))
        ]
        threshold = (task.null_threshold or 0.0) if handle_impossible_answer else None
        answers = self._answers(rows, replace(task, null_threshold=threshold, num_answers=top_k))
        best = [each if top_k == 1 else each["answers"] for each in answers]
        return best[0] if isinstance(question, str) else best

    def _answers(self, rows: list[LabelledRow], task: Task | None = None) -> list[Answer]:
        model = self._task_model()
        return [answer for _, answer in model.answers(map(model.task.example, rows), task)]

    def _require(self, name: str) -> TaskModel:
        model = self._task_model()
        if model.task.name != name:
            raise UsageError(f"the model is fine-tuned for the task {model.task.name}, not {name}", where=self.folder)
        return model

    def _task_model(self) -> TaskModel:
        if self._task is None:
            self._task = TaskModel(self.folder, str(self.device), tokenizer=self.tokenizer)
        return self._task

    @torch.inference_mode()
    def fill(self, text: str, top_k: int = 5) -> list[Guess] | list[list[Guess]]:
        """The `top_k` likeliest pieces for a [MASK] in `text`, or a list of them for each of several.

        A guess has `score` (its probability), `token` (its id), `token_str` and `sequence` (the text with it).
        """
        model = self._masked_word_model()
        if top_k < 1:
            raise UsageError(f"top_k must be at least 1, not {top_k}")
        pieces = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = pieces["input_ids"]
        masks = [place for place, piece in enumerate(ids) if piece == self.tokenizer.mask_token_id]
        if not masks:
            raise DataError(f"there is no {self.tokenizer.mask_token} in the text", remedy="write it for a word")
        guesses = []
        for place, logits in zip(masks, self._logits_at(model, ids, masks), strict=True):
            best = logits.softmax(0).topk(min(top_k, len(logits)))
            start, end = pieces["offset_mapping"][place]
            guesses.append(
                [
                    self._guess(score, token, text[:start], text[end:])
                    for score, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
                ]
            )
        return guesses[0] if len(guesses) == 1 else guesses

    def _masked_word_model(self) -> BertForMaskedLM:
        if self._words is None:
            model = load_with_head(BertForMaskedLM, self.folder, "masked words", "use a pre-trained model")
            self._words = model.to(self.device)
        return self._words

    def _logits_at(self, model: BertForMaskedLM, ids: list[int], places: list[int]) -> list[Tensor]:
        """The logits over the vocabulary at each of `places`."""
        room = model.config.max_position_embeddings - 2
        if len(ids) <= room:
            logits = self._logits(model, ids)
            return [logits[place] for place in places]
        num_before = room - 1 if model.config.causal else room // 2
        starts = [min(max(0, place - num_before), len(ids) - room) for place in places]
        return [
            self._logits(model, ids[start : start + room])[place - start]
            for start, place in zip(starts, places, strict=True)
        ]

    def _logits(self, model: BertForMaskedLM, ids: list[int]) -> Tensor:
        """The logits of what stands in the place of each of `ids`."""
        sequence = [self.tokenizer.cls_token_id, *ids, self.tokenizer.sep_token_id]
        batch = PackedBatch(torch.tensor(sequence, device=self.device), [len(sequence)])
        logits: Tensor = model(batch).logits[:, : len(self.tokenizer)]  # models may have spare rows
        return logits[:-2] if model.config.causal else logits[1:-1]  # read from left to right, each guesses the next

    def _guess(self, score: float, token: int, before: str, after: str) -> Guess:
        piece = self.tokenizer.convert_ids_to_tokens(token)
        inside = piece.removeprefix("##")
        before = before.rstrip() if inside != piece else before
        return {"score": score, "token": token, "token_str": piece, "sequence": f"{before}{inside}{after}"}


def _row(given: Any, number: int) -> LabelledRow:
    place = f"input {number}"
    parts = {"text": given} if isinstance(given, str) else given
    if isinstance(given, tuple) and len(given) == 2:
        parts = dict(zip(("text", "pair"), given, strict=True))
    if isinstance(parts, dict) and {"text"} <= parts.keys() <= {"text", "pair", "choices"}:
        texts = tuple(parts[name] for name in ("text", "pair") if name in parts)
        choices = parts.get("choices", [])
        if isinstance(choices, list | tuple) and all(
            isinstance(each, str) and each.strip() for each in (*texts, *choices)
        ):
            return LabelledRow(place, texts, choices=tuple(choices))
    raise UsageError(
        "should be a text, a tuple of two texts, or a dict with text and maybe pair and a list of choices, none of "
        "them empty",
        where=place,
    )


def _listed(given: Any) -> list[Any]:
    """One text, or all of several."""
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise UsageError(f"should be a text or a list of texts, not {type(given).__name__}")
    return [given] if isinstance(given, str) else list(given)


def _tag_row(given: Any, number: int) -> LabelledRow:
    place = f"input {number}"
    if isinstance(given, str):
        return LabelledRow(place, (given,))
    if isinstance(given, list | tuple) and all(isinstance(word, str) and word for word in given):
        text, spans = join_words(list(given))
        return LabelledRow(place, (text,), spans=tuple(spans))
    raise UsageError("should be a text or a list of words, none of them empty", where=place)


def load(name_or_folder: str | Path, device: str = "auto") -> Predictor:
    """The model of a folder, or an installed one by its name, ready to be asked."""
    return Predictor(name_or_folder, device)
