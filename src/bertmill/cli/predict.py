"""`bertmill predict`: a fine-tuned model answers for every row of a file, or for one text; rows stream through."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from bertmill.cli.progress import counting
from bertmill.config import PredictSettings
from bertmill.errors import UsageError
from bertmill.inference.answering import TaskModel
from bertmill.runtime import set_threads
from bertmill.storage import new_file
from bertmill.tasks.base import Answer
from bertmill.tasks.datasets import examples_of, labelled_rows
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import SkippedRows


def run(settings: PredictSettings) -> None:
    if (settings.file is None) == (settings.text is None):
        raise UsageError("give a file, or - for standard input, or --text", remedy="one of them")
    set_threads(settings.threads)
    model = TaskModel(settings.model, settings.device, settings)
    skipped = SkippedRows()
    rows = _rows(settings, skipped)
    place = settings.file or "--text"
    answers = model.answers(examples_of(model.task, rows, settings, skipped, place))
    answered = ((example.row, answer) for example, answer in answers)
    shown = answered if settings.quiet else counting(answered, "rows")
    if settings.out is None:
        _write(shown, settings.format, sys.stdout)
    else:
        with new_file(settings.out) as path, path.open("w", encoding="utf-8", newline="") as file:
            _write(shown, settings.format, file)
    if not settings.quiet:
        if skipped:
            print(f"skipped: {skipped}", file=sys.stderr)
        if model.make_windows.remark:
            print(model.make_windows.remark, file=sys.stderr)


def _rows(settings: PredictSettings, skipped: SkippedRows) -> Iterator[LabelledRow]:
    if settings.file is not None:
        return labelled_rows(settings.file, settings, skipped, need_label=False)
    assert settings.text is not None
    texts = (settings.text,) if settings.pair is None else (settings.text, settings.pair)
    return iter([LabelledRow("--text", texts, choices=tuple(settings.choice))])


def _write(answered: Iterable[tuple[LabelledRow, Answer]], how: str, file: TextIO) -> None:
    table = csv.writer(file) if how == "csv" else None
    for number, (row, answer) in enumerate(answered):
        if how == "jsonl":
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            continue
        flat = _flat(answer)
        if table is not None:
            if number == 0:
                table.writerow([*flat, "text"])
            table.writerow([*flat.values(), row.texts[0]])
        else:
            file.write("  ".join([*map(_short, flat.values()), row.texts[0][:80]]) + "\n")


def _flat(answer: Answer) -> dict[str, object]:
    """The columns of an answer: lists and scores of all classes as text of their own."""
    return {
        name: "|".join(value) if isinstance(value, list) and name == "labels" else value
        for name, value in answer.items()
        if name != "scores"
    }


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
