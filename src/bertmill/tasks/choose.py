"""The task choose: multiple choice. Each choice is a sequence `[CLS] text [SEP] pair choice [SEP]`.

The model returns one output per sequence, with a softmax over the choices of an example. Examples may have different
numbers of choices. In the format of the DREAM dataset, each question is a row:
`[[[turn, …], [{"question": …, "choice": [text, …], "answer": text}, …], id], …]`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.batching.windows import Windows
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.formats import json_record, repair_strings
from bertmill.rows.json_files import JsonList, line_of
from bertmill.rows.labels import is_empty
from bertmill.rows.row import Record
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Answer, Array, Example, Score, Scores, TaskOptions, probabilities
from bertmill.tasks.sequence import FIELDS, SequenceTask, TextRow, read_texts
from bertmill.text.printable import one_line

_LETTERS = "ABCDEFGH"


@dataclass(frozen=True)
class ChoiceRow(TextRow):
    """A text or a pair of texts with choices."""

    choices: tuple[str, ...] = ()
    right: int | None = None  # index of the correct choice

    @property
    def all_texts(self) -> tuple[str, ...]:
        return self.texts + self.choices

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"choices": list(self.choices)}


@dataclass(frozen=True)
class Choose(SequenceTask[ChoiceRow]):
    """Choose the continuation that fits a text.

    rows:     {"text": "She sat.", "choices": ["She slept.", "She flew."], "label": 0}, optionally
              with a "pair" text that precedes every choice; .jsonl, .json (also in DREAM's format),
              .parquet, or a .tsv or .csv with one column per choice; the label is the text,
              number (from 0) or letter (from A) of a choice
    columns:  text, pair, label, choices (a column that holds a list, or several columns: a+b+c)
    metrics:  accuracy (default)
    """

    name = "choose"
    head = "BertForMultipleChoice"
    selection_metrics = ("accuracy",)
    fields: ClassVar[tuple[str, ...]] = (*FIELDS, "choices")
    model_inputs: ClassVar[Mapping[str, Any]] = {"num_choices": 1}  # `outputs` groups choices after merging windows

    @staticmethod
    def unfold(content: Any, file: RowFile) -> Iterator[Record] | None:
        """Yield the questions of a file in the format of DREAM. Returns None for other content."""
        is_dream = isinstance(content, JsonList) and any(isinstance(entry, JsonList) for entry in content)
        return _dialogue_records(content, file) if is_dream else None

    @classmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: TaskOptions) -> ChoiceRow:
        choices = _choices(fields)
        right = right_choice(fields["label"], choices) if "label" in fields else None
        return ChoiceRow(place, read_texts(fields), choices, right)

    def labels(self, row: ChoiceRow) -> tuple[str, ...]:
        """The number of the correct choice, because the texts differ from row to row."""
        return () if row.right is None else (f"choice {row.right}",)

    def encode(self, row: ChoiceRow, windows: Windows) -> Example:
        context, *stem = row.texts
        sequences = [(context, " ".join([*stem, choice])) for choice in row.choices]
        return Example(row, windows.cut(sequences), row.right)

    def outputs(self, model: nn.Module, examples: Sequence[Example], device: torch.device) -> Sequence[Tensor]:
        of_sequences = torch.cat(list(super().outputs(model, examples, device)))
        split: tuple[Tensor, ...] = of_sequences.split([len(example.sequences) for example in examples])
        return split

    def guessing_loss(self, examples: Sequence[Example]) -> float:
        return float(np.mean([np.log(len(example.sequences)) for example in examples]))

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
        rows = nn.utils.rnn.pad_sequence(list(outputs), batch_first=True, padding_value=float("-inf"))
        targets = torch.tensor([example.target for example in examples], device=rows.device)
        return F.cross_entropy(rows, targets, reduction="sum")

    def decode(self, examples: Sequence[Example], outputs: Sequence[Array]) -> list[Answer]:
        answers: list[Answer] = []
        for example, output in zip(examples, outputs, strict=True):
            scores = probabilities(output).tolist()
            best = int(np.argmax(scores))
            answer = example.row.choices[best]
            answers.append({"choice": best, "answer": answer, "score": scores[best], "scores": scores})
        return answers

    def show(self, answer: Answer) -> str:
        return f"choice {answer['choice']} {answer['score']:.4f} {one_line(answer['answer'])}"

    def score(self, example: Example, output: Array) -> Score:
        """Whether the choice is correct."""
        return np.array([output.argmax() == example.target])

    def metrics(self, scores: Scores) -> dict[str, float]:
        return {"accuracy": float(scores.mean())}

    def baseline(self, examples: Sequence[Example], metric: str) -> tuple[str, Scores]:
        targets = np.array([example.target for example in examples])
        majority = int(np.bincount(targets).argmax())
        return f"always choice {majority}", (targets == majority)[:, None]

    def confidences(self, example: Example, output: Array) -> Iterator[tuple[float, bool]]:
        yield float(probabilities(output).max()), int(output.argmax()) == example.target

    def mistake(self, example: Example, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        return float(output.max() - output[example.target]), (example.row.choices[example.target],)


def _choices(fields: Mapping[str, Any]) -> tuple[str, ...]:
    choices = fields.get("choices")
    if choices is None:
        raise BadRowError("no choices", "the field 'choices' is missing", "provide at least two choices")
    if not isinstance(choices, list | tuple) or not all(isinstance(choice, str) for choice in choices):
        raise BadRowError("wrong type", "the field 'choices' must be a list of strings")
    if len(choices) < 2 or not all(choice.strip() for choice in choices):
        raise BadRowError("empty choice", "the field 'choices' needs at least two texts, and none may be empty")
    return tuple(choices)


def right_choice(label: Any, choices: Sequence[str]) -> int:
    """Return the index of the choice that `label` names by its text, its number (from 0) or its letter (from A).

    Raises BadRowError if the label matches no choice, or several identical ones.
    """
    if is_empty(label):
        raise BadRowError("empty label", "the label is empty")
    text = str(label).strip()
    if label in choices:
        number = choices.index(label)
    elif text.isdecimal():
        number = int(text)
    else:
        number = _LETTERS.find(text) if len(text) == 1 else -1
    if not 0 <= number < len(choices):
        remedy = f"use the text of a choice, a number from 0 to {len(choices) - 1}, or a letter (A, B, …)"
        what = f"the label {label!r} matches none of the {len(choices)} choices"
        raise BadRowError("label is not a choice", what, remedy)
    if choices.count(choices[number]) > 1:
        raise BadRowError("equal choices", f"the label {label!r} matches several identical choices")
    return number


def _dialogue_records(dialogues: JsonList, file: RowFile) -> Iterator[Record]:
    repairs = file.counts.repairs
    for number, dialogue in enumerate(dialogues, start=1):
        place = f"{file.path}:{line_of(dialogue, dialogues)}, dialogue {number}"
        match dialogue:
            case [[*turns], JsonList() as questions, str() | int()] if all(isinstance(turn, str) for turn in turns):
                context = repair_strings("\n".join(turns), repairs)
                yield from _question_records(context, questions, f"dialogue {dialogue[2]}", file)
            case _:
                problem = BadRowError("not a dialogue", "expected a dialogue: [[turn, …], [question, …], id]")
                yield Record(place, {}, problem=problem)


def _question_records(context: str, questions: JsonList, dialogue: str, file: RowFile) -> Iterator[Record]:
    names = {"question": "question", "choice": "choices", "answer": "answer"}
    for number, question in enumerate(questions, start=1):
        place = f"{file.path}:{line_of(question, questions)}, {dialogue}, question {number}"
        record = json_record(place, question, file.counts.repairs)
        fields = {names[name]: value for name, value in record.fields.items() if name in names}
        yield record._replace(fields={"context": context, **fields}, id=None)
