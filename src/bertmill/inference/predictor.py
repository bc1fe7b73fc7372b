"""`bertmill.load(MODEL)`: a model and its tokenizer, ready to answer.

`fill` predicts masked pieces, with the keys of Hugging Face's fill-mask pipeline. `predict` gives the answers of a
fine-tuned model. `tag` and `answer` are shortcuts for two tasks; `answer` is called like Hugging Face's
question-answering pipeline.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertmill.checkpoint.names import find_model
from bertmill.errors import UsageError
from bertmill.inference.fill import Guess, MaskFiller
from bertmill.inference.runner import Runner, load_with_head
from bertmill.machine import choose_device
from bertmill.model.bert import BertForMaskedLM
from bertmill.tasks.base import Answer
from bertmill.text.tokenizer import BertTokenizer

Input = str | tuple[str, ...] | Mapping[str, Any]


class Predictor:
    """Answers with the model of a folder; heads are loaded when first used."""

    def __init__(self, name_or_folder: str | Path, device: str = "auto") -> None:
        self.folder = find_model(name_or_folder)
        self.device = choose_device(device)
        self.tokenizer = BertTokenizer.from_pretrained(self.folder)
        self._loading = threading.Lock()
        self._filler: MaskFiller | None = None
        self._runner: Runner | None = None

    def predict(self, inputs: Sequence[Input]) -> list[Answer]:
        """The answer for each input: a text, a tuple of texts, or a dict of fields.

        The fields depend on the task: `text` and maybe `pair` (classify, regress), also `choices` (choose), `text` or
        `words` (tag), `question` and `passage` (answer). A tuple gives the fields in this order. An answer has the
        keys of `bertmill predict`.
        """
        if isinstance(inputs, str):
            raise UsageError("predict takes a list of inputs", remedy="put the text into a list")
        return _answers(self._task_runner(), _listed(inputs))

    def tag(self, texts: str | Sequence[str] | Sequence[Sequence[str]]) -> Answer | list[Answer]:
        """A tag for every word of a text, or of each of several; a text may be a list of words.

        An answer has `words`, `offsets`, `tags` and `scores`, and `entities` if tags mark spans of words.
        """
        runner = self._task_runner("tag")
        inputs = [each if isinstance(each, str) else {"words": each} for each in _listed(texts)]
        answers = _answers(runner, inputs)
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

        Lists give a list; one context may serve several questions. With `top_k` above 1 each result is a list of the
        best answers. With `handle_impossible_answer` the answer is "" if the model finds none, by its tuned threshold.
        """
        runner = self._task_runner("answer")
        task: Any = runner.task
        threshold = (task.null_threshold or 0.0) if handle_impossible_answer else None
        runner = runner.with_options(top_k=top_k, null_threshold=threshold)
        questions = _listed(question)
        contexts = _listed(context) * (len(questions) if isinstance(context, str) else 1)
        if len(contexts) != len(questions):
            raise UsageError(f"there are {len(questions)} questions and {len(contexts)} contexts")
        answers = _answers(runner, list(zip(questions, contexts, strict=True)))
        best = [each if top_k == 1 else each["answers"] for each in answers]
        return best[0] if isinstance(question, str) else best

    def fill(self, text: str, top_k: int = 5) -> list[Guess] | list[list[Guess]]:
        """The `top_k` likeliest pieces for the [MASK] in `text`, or a list of them for each of several.

        A guess has `score` (its probability), `token` (its id), `token_str` and `sequence` (the completed text).
        """
        with self._loading:
            if self._filler is None:
                model = load_with_head(BertForMaskedLM, self.folder, "masked words", "use a pre-trained model")
                self._filler = MaskFiller(model.to(self.device), self.tokenizer)
        guesses = self._filler.fill(text, top_k)
        return guesses[0] if len(guesses) == 1 else guesses

    def _task_runner(self, task: str | None = None) -> Runner:
        """The runner; UsageError if the model is not fine-tuned for `task`."""
        with self._loading:
            if self._runner is None:
                self._runner = Runner(self.folder, str(self.device), tokenizer=self.tokenizer)
        actual = self._runner.task.name
        if task not in (None, actual):
            raise UsageError(f"the model is fine-tuned for the task {actual}, not {task}", where=self.folder)
        return self._runner


def _answers(runner: Runner, inputs: Sequence[Any]) -> list[Answer]:
    return runner.answer([_fields(each, runner.task.fields) for each in inputs])


def _fields(given: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """An input as named fields."""
    if isinstance(given, Mapping):
        return given
    values = given if isinstance(given, tuple) else (given,)
    if len(values) > len(names):
        raise UsageError(f"an input has {len(values)} parts, and the task takes {', '.join(names)}")
    return dict(zip(names, values, strict=False))


def _listed(given: Any) -> list[Any]:
    """One text as a list, or several."""
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise UsageError(f"expected a text or a list of texts, not {type(given).__name__}")
    return [given] if isinstance(given, str) else list(given)


def load(name_or_folder: str | Path, device: str = "auto") -> Predictor:
    """The model of a folder, or an installed one by name, ready to answer."""
    return Predictor(name_or_folder, device)
