"""`bertmill predict`: a fine-tuned model answers for every row of a file, or for one text; rows stream through."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from bertmill.cli.progress import counting, tell_about_rows
from bertmill.config.commands import PredictSettings
from bertmill.errors import UsageError
from bertmill.inference.answering import TaskModel
from bertmill.machine import set_threads
from bertmill.storage import new_file
from bertmill.tasks.answer import AnswerQuestions
from bertmill.tasks.base import Answer
from bertmill.tasks.datasets import examples_of
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import shortened
from bertmill.tasks.reading import RowCounts, read_labelled
from bertmill.text.repair import replace_surrogates


def run(settings: PredictSettings) -> None:
    _refuse_overwriting(settings)
    set_threads(settings.threads)
    model = TaskModel(settings.model, settings.device, settings)
    counts = RowCounts()
    _refuse_flags_of_other_tasks(settings, model.task.name)
    rows = _rows(settings, model.task.name, counts)
    place = settings.file or "--text"
    task = model.task
    if isinstance(task, AnswerQuestions):
        task = replace(task, num_answers=settings.top_k)
    answers = model.answers(examples_of(task, rows, settings, counts, place), task)
    answered = ((example.row, answer) for example, answer in answers)
    is_seen_anyway = settings.out is None and sys.stdout.isatty()
    shown = answered if settings.quiet or is_seen_anyway else counting(answered, "rows")
    if settings.out is None:
        _write(shown, settings.format, sys.stdout)
    else:
        with new_file(settings.out) as path, path.open("w", encoding="utf-8", newline="") as file:
            _write(shown, settings.format, file)
    if not settings.quiet:
        tell_about_rows(counts, model.make_windows.remark)


def _refuse_overwriting(settings: PredictSettings) -> None:
    file, out = settings.file, settings.out
    if file is not None and out is not None and Path(file).exists() and out.exists() and out.samefile(file):
        raise UsageError("is the file that is read", where=out, remedy="choose another --out")


def _refuse_flags_of_other_tasks(settings: PredictSettings, task: str) -> None:
    answers = task == "answer"
    if settings.text is not None and answers and settings.question is None:
        raise UsageError("the model answers questions, and there is none", remedy="give --question")
    if settings.text is not None and task == "choose" and not settings.choice:
        raise UsageError("the model chooses, and there is nothing to choose from", remedy="give --choice twice or more")
    for flag, is_given, is_for in (
        ("--question", settings.question is not None, answers),
        ("--top-k", settings.top_k > 1, answers),
        ("--pair", settings.pair is not None, task not in ("tag", "answer")),
        ("--choice", bool(settings.choice), task == "choose"),
        ("--format columns", settings.format == "columns", task == "tag"),
    ):
        if is_given and not is_for:
            raise UsageError(f"{flag} is not for the task {task}", remedy="leave it away")


def _rows(settings: PredictSettings, task: str, counts: RowCounts) -> Iterator[LabelledRow]:
    if settings.file is not None:
        return read_labelled(settings.file, settings, counts, task=task, with_label=False)
    given = (settings.question, settings.text, settings.pair)
    texts = tuple(replace_surrogates(text, counts.repairs) for text in given if text is not None)
    choices = tuple(replace_surrogates(choice, counts.repairs) for choice in settings.choice)
    return iter([LabelledRow("--text", texts, choices=choices)])


def _write(answered: Iterable[tuple[LabelledRow, Answer]], how: str, file: TextIO) -> None:
    table = csv.writer(file, lineterminator="\n")
    for number, (row, answer) in enumerate(answered):
        if how == "jsonl":
            file.write(json.dumps(_id(row) | answer, ensure_ascii=False) + "\n")
        elif how == "columns":
            lines = zip(answer["words"], answer["tags"], strict=True)
            file.write("".join(f"{_one_field(word)}\t{tag}\n" for word, tag in lines) + "\n")
        elif how == "table":
            file.write("  ".join([*_cells(answer), *map(shortened, row.texts)]) + "\n")
        else:
            columns = _columns(row, answer)
            if number == 0:
                table.writerow(columns)
            table.writerow(columns.values())


def _id(row: LabelledRow) -> dict[str, object]:
    """Which row of the file it is, where there is a file."""
    return {} if row.id is None else {"id": row.id}


def _one_field(word: str) -> str:
    """A word that is no line of its own and no two columns."""
    return "".join(" " if character in "\t\n\r" else character for character in word)


def _columns(row: LabelledRow, answer: Answer) -> dict[str, object]:
    """An answer and what it is for, flat: a column for the score of each label, lists as JSON in one column."""
    columns = _id(row)
    for name, value in answer.items():
        if isinstance(value, dict):
            columns |= {f"{name.removesuffix('s')}:{label}": score for label, score in value.items()}
        elif name == "labels":
            columns[name] = "|".join(value)
        else:
            columns[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    is_question = "start" in answer
    columns |= zip(("question", "text") if is_question else ("text", "pair"), row.texts, strict=False)
    return columns | ({"choices": json.dumps(row.choices, ensure_ascii=False)} if row.choices else {})


def _cells(answer: Answer) -> Iterator[str]:
    """The answer itself with its probability, or probabilities where there may be several."""
    if "entities" in answer:
        yield ", ".join(f"{each['type']} {shortened(each['text'])}" for each in answer["entities"]) or "-"
        return
    if "tags" in answer:
        yield shortened(" ".join(answer["tags"]))
        return
    if "labels" in answer:
        yield ", ".join(f"{shortened(label)} {answer['scores'][label]:.4f}" for label in answer["labels"]) or "-"
        return
    for name, value in answer.items():
        if name not in ("scores", "answers"):
            yield f"{value:.4f}" if isinstance(value, float) else shortened(str(value))
