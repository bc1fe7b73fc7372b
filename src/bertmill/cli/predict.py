"""`bertmill predict`: makes predictions for the rows of a file, as a stream, or for a single request."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from bertmill.cli.progress import RowCounter, print_row_remarks
from bertmill.cli.streams import is_pipe, say
from bertmill.config.commands import PredictSettings
from bertmill.config.reading import unknown_name
from bertmill.errors import UsageError
from bertmill.inference.runner import Runner
from bertmill.machine import set_threads
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.formats import repair_strings
from bertmill.rows.row import Row
from bertmill.rows.source import RowFile, split_key_off
from bertmill.storage import new_file
from bertmill.tasks.base import Answer, AnyTask, encode_rows
from bertmill.text.printable import counted, escaped, json_line, one_line
from bertmill.text.repair import Repairs

Answers = Iterable[tuple[Row, Answer]]
Writer = Callable[[Answers, AnyTask, TextIO], None]

_FORMULA = re.compile(r"[=+\-@](?!(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\Z)")  # not before a plain number
_MARK = "'"  # a spreadsheet shows the text after it
_HARMLESS = "\t\n"


def run(settings: PredictSettings) -> None:
    """Print the predictions, or write them to a file."""
    _refuse_overwriting(settings)
    set_threads(settings.threads)
    runner = Runner(settings.model, settings.device, settings)
    runner = runner.with_options(**settings.model_dump(include=set(runner.task.PredictOptions.model_fields)))
    task = runner.task
    write = partial(_write_csv, is_safe=True) if settings.safe_csv else _writer(settings.chosen_format, task)
    file = RowFile(settings.file or "--text", settings)
    rows = [_request(settings, task)] if settings.file is None else runner.read(file, labeled=False)
    with RowCounter(quiet=settings.quiet, may_rewrite=settings.out is not None or not is_pipe(sys.stdout)) as counter:
        answers = runner.answers(encode_rows(task, rows, runner.windows, file), counter.add)
        answers = ((row, rounded(answer)) for row, answer in counter.printed(answers))
        if settings.out is None:
            write(answers, task, sys.stdout)
            sys.stdout.flush()
        else:
            with new_file(settings.out) as path, path.open("w", encoding="utf-8", newline="") as out:
                write(answers, task, out)
    if not settings.quiet:
        print_row_remarks(file.counts, runner.windows)
        if settings.file or settings.out:
            name = "" if settings.out is None else f" → {escaped(str(settings.out))}"
            say(counted(counter.num_printed, "row") + name)


def _refuse_overwriting(settings: PredictSettings) -> None:
    file, out = Path(split_key_off(settings.file or "")[0]), settings.out
    if settings.file is not None and out is not None and file.exists() and out.exists() and out.samefile(file):
        raise UsageError("is also the input file", where=out, remedy="choose another --out")


def _request(settings: PredictSettings, task: AnyTask) -> Row:
    """The row given by flags."""
    given: dict[str, Any] = {name: getattr(settings, name) for name in ("text", "pair", "question")}
    given["choices"] = settings.choice or None
    fields = {name: value for name, value in given.items() if value is not None}
    try:
        row: Row = task.request(repair_strings(fields, Repairs()), "--text")
    except BadRowError as problem:
        raise UsageError(problem.what, remedy=problem.remedy) from None
    return row


def _writer(name: str, task: AnyTask) -> Writer:
    writers: Mapping[str, Writer] = {"jsonl": _write_jsonl, "csv": _write_csv, "table": _write_table}
    if name in writers:
        return writers[name]
    if name not in task.output_formats:
        raise unknown_name("output format", name, [*writers, *task.output_formats])
    render = task.output_formats[name]
    return lambda answers, _task, out: out.writelines(render(answer) for _, answer in answers)


def _write_jsonl(answers: Answers, task: AnyTask, out: TextIO) -> None:
    for row, answer in answers:
        out.write(json_line(_id(row) | answer) + "\n")


def _write_table(answers: Answers, task: AnyTask, out: TextIO) -> None:
    for row, answer in answers:
        out.write("  ".join([task.show(answer), *map(one_line, row.texts)]) + "\n")


def _write_csv(answers: Answers, task: AnyTask, out: TextIO, *, is_safe: bool = False) -> None:
    """Write the id, the prediction and the fields of each row; the first row decides the columns."""
    table = csv.writer(out, lineterminator="\n")
    header: list[str] = []
    for row, answer in answers:
        columns = _id(row) | answer_columns(answer) | row.fields()
        if not header:
            header = list(columns)
            table.writerow(_cell(name, is_safe) for name in header)
        table.writerow(_cell(columns.get(name), is_safe) for name in header)


def _cell(value: Any, is_safe: bool) -> Any:
    """A cell of a CSV file; with `is_safe`, text that a spreadsheet would execute begins with an apostrophe."""
    if isinstance(value, list):
        return json_line(value)
    if not isinstance(value, str):
        return value
    return f"{_MARK * (is_safe and bool(_FORMULA.match(value)))}{escaped(value, keep=_HARMLESS)}"


def rounded(value: Any, name: str = "") -> Any:
    """A prediction with shorter numbers: 4 decimals for probabilities (`score` and `scores`), else 7 digits."""
    match value:
        case dict():
            return {key: rounded(each, name if name == "scores" else key) for key, each in value.items()}
        case list():
            return [rounded(each, name) for each in value]
        case float() if name in ("score", "scores"):
            return round(value, 4)
        case float():
            return float(f"{value:.7g}")  # as precise as float32
    return value


def answer_columns(answer: Answer) -> dict[str, Any]:
    """A prediction as columns of a table: one column per label score, labels joined by |, other lists unchanged."""
    columns: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict):
            columns |= {f"{name.removesuffix('s')}:{label}": score for label, score in value.items()}
        else:
            columns[name] = "|".join(value) if name == "labels" else value
    return columns


def _id(row: Row) -> dict[str, Any]:
    """The row's id, if it comes from a file."""
    return {} if row.id is None else {"id": row.id}
