"""`bertmill predict`: a fine-tuned model answers for every row of a file, or for one text; rows stream through."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import tee
from typing import TextIO

from bertmill.cli.progress import counting
from bertmill.config import PredictSettings
from bertmill.inference.answering import TaskModel
from bertmill.runtime import set_threads
from bertmill.storage import new_file
from bertmill.tasks.base import Answer
from bertmill.tasks.datasets import examples_of, labelled_rows
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import SkippedRows
from bertmill.text.repair import Repairs, repair_text


def run(settings: PredictSettings) -> None:
    set_threads(settings.threads)
    model = TaskModel(settings.model, settings.device, settings)
    skipped, repairs = SkippedRows(), Repairs()
    rows = _rows(settings, skipped, repairs)
    place = settings.file or "--text"
    pairs, again = tee(examples_of(model.task, rows, settings, skipped, place))
    answers = model.answers(example for _, example in pairs)
    answered = zip((row for row, _ in again), answers, strict=True)
    shown = answered if settings.quiet else counting(answered, "rows")
    if settings.out is None:
        _write(shown, settings.format, sys.stdout)
    else:
        with new_file(settings.out) as path, path.open("w", encoding="utf-8", newline="") as file:
            _write(shown, settings.format, file)
    if not settings.quiet:
        if skipped:
            print(f"skipped: {skipped}", file=sys.stderr)
        if repairs:
            print(f"repaired: {repairs}", file=sys.stderr)
        if model.make_windows.num_truncated:
            print(f"cut: {model.make_windows.num_truncated:,} texts", file=sys.stderr)


def _rows(settings: PredictSettings, skipped: SkippedRows, repairs: Repairs) -> Iterator[LabelledRow]:
    if settings.file is not None:
        return labelled_rows(settings.file, settings, skipped, repairs, with_label=False)
    texts = tuple(repair_text(text, repairs) for text in (settings.text, settings.pair) if text is not None)
    choices = tuple(repair_text(choice, repairs) for choice in settings.choice)
    return iter([LabelledRow("--text", texts, choices=choices)])


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
