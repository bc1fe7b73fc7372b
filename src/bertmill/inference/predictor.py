"""`bertmill.load(MODEL)`: a model and its tokenizer, ready for inference.

- `fill` predicts masked pieces. Its results have the keys of Hugging Face's fill-mask pipeline.
- `predict` returns the predictions of a fine-tuned model.
- `tag` and `answer` are shortcuts for two tasks. `answer` has the signature of Hugging Face's question-answering
  pipeline.
"""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertmill.checkpoint.names import find_model, read_metadata
from bertmill.errors import UsageError
from bertmill.inference.evaluation import NUM_ERRORS, Evaluation, evaluate
from bertmill.inference.fill import Guess, MaskFiller
from bertmill.inference.runner import Runner, load_with_head
from bertmill.machine import choose_device
from bertmill.model.bert import BertForMaskedLM
from bertmill.rows.in_memory import is_missing, to_json_lines
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Answer, encode_rows
from bertmill.text.printable import counted
from bertmill.text.tokenizer import BertTokenizer

Input = str | tuple[str, ...] | Mapping[str, Any]


class Predictor:
    """Runs the model of a folder. Heads are loaded on first use."""

    def __init__(self, name_or_folder: str | Path, device: str = "auto") -> None:
        self.folder = find_model(name_or_folder)
        self.device = choose_device(device)
        self.tokenizer = BertTokenizer.from_pretrained(self.folder)
        self._loading = threading.Lock()
        self._filler: MaskFiller | None = None
        self._runner: Runner | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the dev rows, or from cross-validation; empty if the model was not fine-tuned by bertmill."""
        return dict(read_metadata(self.folder).get("dev", {}))

    @property
    def method(self) -> str | None:
        """How the model was fine-tuned: "probe" or "full"; None if that is not recorded."""
        recorded = read_metadata(self.folder).get("method", {}).get("name")
        return None if recorded is None else str(recorded)

    def __repr__(self) -> str:
        metadata = read_metadata(self.folder)
        facts = [str(metadata.get("task", "pre-trained model")), str(self.folder)]
        if self.method is not None:
            facts.append(f"method={self.method}")
        facts += [f"{name}={value:.4f}" for name, value in self.metrics.items() if name == metadata.get("metric")]
        return f"<bertmill.Predictor {' '.join(facts)}>"

    def evaluate(self, rows: Any) -> Evaluation:
        """Evaluate a fine-tuned model on labeled rows, as `bertmill evaluate` does.

        `rows` is the path of a file, a list of dicts, a dict of columns, or a data frame. The result has `metrics`,
        `intervals`, `baseline`, `classes` and `errors`.
        """
        runner = self._task_runner()
        with tempfile.TemporaryDirectory() as folder:
            path = str(rows)
            if not isinstance(rows, str | Path):
                path = str(Path(folder) / "rows.jsonl")
                Path(path).write_bytes(to_json_lines(rows))
            file = RowFile(path)
            examples = list(encode_rows(runner.task, runner.read(file, labeled=True), runner.windows, file))
        return evaluate(runner.task, runner.model, examples, runner.device, NUM_ERRORS, runner.metric)

    def predict(self, inputs: Sequence[Input], *, top_k: int | None = None) -> list[Any]:
        """Return the prediction for each input, which is a text, a tuple of texts, or a dict of fields.

        The fields depend on the task. The values of a tuple have the same order.

        - classify, regress: `text` and optionally `pair`
        - choose: `text`, optionally `pair`, and `choices`
        - tag: `text` or `words`
        - answer: `question` and `passage`

        Predictions have the same keys as in `bertmill predict`. The prediction for an input is None if the input, or a
        value of its tuple or dict, is missing (None, or NaN as in a data frame). `top_k` has the effect of `--top-k`.
        """
        if isinstance(inputs, str):
            raise UsageError("predict expects a list of inputs", remedy="put the text in a list")
        if hasattr(inputs, "columns"):
            remedy = "pass one column, or a list of dicts with the fields of each row"
            raise UsageError("predict expects a list of inputs, not a data frame", remedy=remedy)
        listed = _listed(inputs)
        given = [each for each in listed if not _is_missing(each)]
        if num_missing := len(listed) - len(given):
            verb, whose = ("is", "its prediction is") if num_missing == 1 else ("are", "their prediction is")
            text = f"{num_missing:,} of {counted(len(listed), 'input')} {verb} missing (None or NaN); {whose} None"
            warnings.warn(text, stacklevel=2)
        runner = self._task_runner()
        if top_k is not None:
            if "top_k" not in runner.task.PredictOptions.model_fields:
                raise UsageError(f"top_k does not apply to the task {runner.task.name}")
            runner = runner.with_options(top_k=top_k)
        predictions = iter(_predictions(runner, given))
        return [None if _is_missing(each) else next(predictions) for each in listed]

    def tag(self, texts: str | Sequence[str] | Sequence[Sequence[str]]) -> Answer | list[Answer]:
        """Tag every word of one text, or of each text in a list. A text in a list may be a list of words.

        A prediction has `words`, `offsets`, `tags` and `scores`, and `entities` if tags mark spans of words.
        """
        runner = self._task_runner("tag")
        inputs = [each if isinstance(each, str) else {"words": each} for each in _listed(texts)]
        predictions = _predictions(runner, inputs)
        return predictions[0] if isinstance(texts, str) else predictions

    def answer(
        self,
        question: str | Sequence[str],
        context: str | Sequence[str],
        *,
        top_k: int = 1,
        handle_impossible_answer: bool = False,
    ) -> Answer | list[Answer] | list[list[Answer]]:
        """Return the part of `context` that answers `question`: `answer`, `start`, `end` (characters) and `score`.

        A list of questions returns a list; they may share a context. If `top_k` is above 1, each result is a list of
        the best answers. With `handle_impossible_answer`, the answer may be "", decided by the tuned null threshold.
        """
        runner = self._task_runner("answer")
        task: Any = runner.task
        runner = runner.with_options(top_k=top_k, null_threshold=task.threshold(handle_impossible_answer))
        questions = _listed(question)
        contexts = _listed(context) * (len(questions) if isinstance(context, str) else 1)
        if len(contexts) != len(questions):
            what = f"got {counted(len(questions), 'question')} but {counted(len(contexts), 'context')}"
            raise UsageError(what, remedy="pass one context per question, or a single context as a string")
        answers = _predictions(runner, list(zip(questions, contexts, strict=True)))
        best = [each if top_k == 1 else each["answers"] for each in answers]
        return best[0] if isinstance(question, str) else best

    def fill(self, text: str, top_k: int = 5) -> list[Guess] | list[list[Guess]]:
        """Return the `top_k` most likely pieces for the [MASK] in `text`, or one list per [MASK] if there are several.

        A prediction has `score` (its probability), `token` (its id), `token_str` and `sequence` (the completed text).
        """
        with self._loading:
            if self._filler is None:
                model = load_with_head(
                    BertForMaskedLM, self.folder, "masked language modeling", "use a pre-trained model"
                )
                self._filler = MaskFiller(model.to(self.device), self.tokenizer)
        guesses = self._filler.fill(text, top_k)
        return guesses[0] if len(guesses) == 1 else guesses

    def _task_runner(self, task: str | None = None) -> Runner:
        """Return the runner, loaded on first use. Raises UsageError if the model is not fine-tuned for `task`."""
        with self._loading:
            if self._runner is None:
                self._runner = Runner(self.folder, str(self.device), tokenizer=self.tokenizer)
        actual = self._runner.task.name
        if task not in (None, actual):
            raise UsageError(f"the model is fine-tuned for the task {actual}, not {task}", where=self.folder)
        return self._runner


def _predictions(runner: Runner, inputs: Sequence[Any]) -> list[Answer]:
    return runner.answer([_fields(each, runner.task.fields) for each in inputs])


def _is_missing(given: Any) -> bool:
    values = given.values() if isinstance(given, Mapping) else given if isinstance(given, tuple) else (given,)
    return any(map(is_missing, values))


def _fields(given: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Convert an input to named fields."""
    if isinstance(given, Mapping):
        return given
    values = given if isinstance(given, tuple) else (given,)
    if len(values) > len(names):
        raise UsageError(f"an input has {len(values)} values, but the task takes only {', '.join(names)}")
    return dict(zip(names, values, strict=False))


def _listed(given: Any) -> list[Any]:
    """Return a list of texts, from one text or several."""
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise UsageError(f"expected a text or a list of texts, not {type(given).__name__}")
    return [given] if isinstance(given, str) else list(given)


def load(name_or_folder: str | Path, device: str = "auto") -> Predictor:
    """Load a model for inference from a folder, or an installed model by name."""
    return Predictor(name_or_folder, device)
