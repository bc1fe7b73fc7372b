"""A file of labelled data, of whatever format → labelled rows; what is wrong with a row is told or counted.

Raw rows (`rows.py`) get their meaning from the columns (`columns.py`). Texts keep every character; a text is empty if
it has only white space. Labels stay as they are written, without blanks around them: JSON's numbers as text, true and
false as such words, a list as several labels; of several choices, the label is the text of the right one. A bad row
stops the reading, or is skipped and counted; more than 5 % bad rows stop it all the same, at the end or once a thousand
rows were read. Wrong quotes always stop it, since nobody knows then where the next row begins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.tasks.columns import Columns, choose_columns, told_columns
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.question_files import asked, read_question_rows
from bertmill.tasks.raw_rows import IDS, BadRowError, RawRow, require_printable
from bertmill.tasks.rows import read_rows
from bertmill.tasks.tag_files import read_tag_rows, tagged
from bertmill.text.repair import Repairs

_DEFAULTS: Final = RowSettings()
_MAX_BAD_SHARE = 0.05
_ROWS_BEFORE_GIVING_UP = 1000
_LETTERS = "ABCDEFGH"  # of choices


@dataclass
class RowCounts:
    """Of one file: how many rows were read, how many were skipped for which reason, what was mended and repaired."""

    num_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    repairs: Repairs = field(default_factory=Repairs)  # of the text of the file
    first_skipped: str | None = None  # its place
    remark: str | None = None  # what was decided about the columns

    @property
    def num_skipped(self) -> int:
        return self.skipped.total()

    def skip_or_stop(self, problem: BadRowError, place: str, settings: RowSettings, file: str) -> None:
        """What becomes of a bad row, whoever found that it is one: it is counted, or DataError."""
        if settings.on_bad_row == "stop":
            remedy = f"{problem.remedy or 'mend it'}, or skip such rows with --on-bad-row skip"
            raise DataError(problem.what, where=place, remedy=remedy) from None
        self.skipped[problem.reason] += 1
        self.first_skipped = self.first_skipped or place
        if self.num_rows >= _ROWS_BEFORE_GIVING_UP:
            self.refuse_many(file)

    def refuse_many(self, file: str) -> None:
        """Stop if more than 5 % of the rows were skipped."""
        if self.num_skipped > _MAX_BAD_SHARE * self.num_rows:
            raise DataError(
                f"too many rows are bad, more than {_MAX_BAD_SHARE:.0%}: {self._skipped_in_words}",
                where=file,
                remedy=f"look at {self.first_skipped}: is the file read as it is meant?",
            )

    def remarks(self, where: str = "") -> Iterator[str]:
        """What a person should know after all rows were read; `where` tells one of several files."""
        if self.remark:
            yield self.remark
        for what, in_words in (
            ("mended", _in_words(self.mended)),
            ("skipped", self._skipped_in_words if self.skipped else ""),
            ("repaired", str(self.repairs) if self.repairs else ""),
        ):
            if in_words:
                yield f"{what}{where}: {in_words}"

    @property
    def _skipped_in_words(self) -> str:
        return f"{self.num_skipped:,} of {self.num_rows:,} rows ({_in_words(self.skipped)})"


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.most_common() if count)


def read_labelled(
    file: str,
    settings: RowSettings = _DEFAULTS,
    counts: RowCounts | None = None,
    *,
    task: str | None = None,
    with_label: bool = True,
    may_have_no_label: bool = False,
) -> Iterator[LabelledRow]:
    """The rows of `file`, read as `settings` say.

    Rows for the tasks `tag` and `answer` have forms of their own; all others are rows of columns. With
    `with_label=False` labels are not looked at; with `may_have_no_label` an empty one says that none is right.
    """
    counts = RowCounts() if counts is None else counts
    columns, preset, quotes, repairs = settings.columns, settings.preset, settings.quotes, counts.repairs
    if task in ("tag", "answer") and (preset is not None or quotes != "auto"):
        raise UsageError(f"--preset and --quotes are not for the task {task}", remedy="leave them away")
    if task == "tag":
        raw_rows, meaning = read_tag_rows(file, columns, with_label, repairs), tagged
    elif task == "answer":
        if columns is not None:
            raise UsageError("--columns is not for questions", remedy="name them question, passage and answer")
        raw_rows = read_question_rows(file, repairs)
        meaning = partial(asked, with_label=with_label, mended=counts.mended)
    else:
        raw_rows = read_rows(file, quotes=quotes, repairs=repairs)
        found, raw_rows = choose_columns(raw_rows, told_columns(columns, preset), need_label=with_label)
        if found.not_read is not None:
            counts.remark = f"column {found.not_read} is not read: it looks like labels (--columns says otherwise)"
        meaning = partial(_labelled, columns=found, may_have_no_label=may_have_no_label)
    for raw in raw_rows:
        counts.num_rows += 1
        try:
            if raw.problem is not None:
                raise raw.problem
            yield replace(meaning(raw), id=_id(raw.fields, counts.num_rows))
        except BadRowError as problem:
            counts.skip_or_stop(problem, raw.place, settings, file)
    if not counts.num_rows:
        raise DataError("there are no rows in it", where=file)
    counts.refuse_many(file)


def _id(fields: Mapping[str, Any], number: int) -> str | int:
    """The row's own id, or its number in the file."""
    return next(
        (fields[name] for name in IDS if isinstance(fields.get(name), str | int) and fields[name] != ""), number
    )


def _labelled(raw: RawRow, columns: Columns, may_have_no_label: bool) -> LabelledRow:
    text = _text(raw.fields, columns.text)
    texts = (text,) if columns.pair is None else (text, _text(raw.fields, columns.pair))
    choices = _choices(raw.fields, columns.choices) if columns.choices else ()
    if columns.label is None:
        return LabelledRow(raw.place, texts, None, choices)
    label = raw.fields.get(columns.label)
    if _is_empty(label):
        if may_have_no_label and columns.label in raw.fields:
            return LabelledRow(raw.place, texts, (), choices)
        raise _nothing_in(raw.fields, columns.label, "label")
    return LabelledRow(
        raw.place, texts, right_choice(label, choices) if choices else _label(label, columns.label), choices
    )


def right_choice(label: Any, choices: Sequence[str]) -> str:
    """The choice that `label` means: by its text, by its number from 0 on, or by its letter from A on."""
    number = -1
    if isinstance(label, str) and label in choices:
        number = choices.index(label)
    elif isinstance(label, str) and label.strip().isdecimal():
        number = int(label)
    elif isinstance(label, str):
        number = _LETTERS.find(label.strip()) if len(label.strip()) == 1 else -1
    elif isinstance(label, int) and not isinstance(label, bool):
        number = label
    if not 0 <= number < len(choices):
        raise BadRowError(
            "label is none of the choices",
            f"has the label {label!r}, which is none of its {len(choices)} choices",
            f"write the text of a choice, a number from 0 to {len(choices) - 1}, or a letter from A on",
        )
    if choices.count(choices[number]) > 1:
        raise BadRowError("same choices", f"has the label {label!r}, and several choices are the same")
    return choices[number]


def _is_empty(value: Any) -> bool:
    """Nothing, white space, or a number that is none, as tables of numbers mark a missing value."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _nothing_in(fields: Mapping[str, Any], column: str, what: str) -> BadRowError:
    if column in fields:
        return BadRowError(f"empty {what}", f"has an empty {what} in the column {column!r}")
    return BadRowError("missing column", f"has no column {column!r}")


def _wrong_type(value: Any, column: str, what: str) -> BadRowError:
    what_is_there = f"has a value of type {type(value).__name__} in the column {column!r}"
    return BadRowError("wrong type", f"{what_is_there}, where {what} should be")


def _text(fields: Mapping[str, Any], column: str) -> str:
    text = fields.get(column)
    if _is_empty(text):
        raise _nothing_in(fields, column, "text")
    if not isinstance(text, str):
        raise _wrong_type(text, column, "a text")
    return text


def _choices(fields: Mapping[str, Any], columns: tuple[str, ...]) -> tuple[str, ...]:
    if len(columns) > 1:
        return tuple(_text(fields, column) for column in columns)
    column = columns[0]
    choices = fields.get(column)
    if _is_empty(choices):
        raise _nothing_in(fields, column, "list of choices")
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise _wrong_type(choices, column, "a list of texts")
    if len(choices) < 2 or not all(choice.strip() for choice in choices):
        raise BadRowError("empty choice", f"has fewer than two choices, or an empty one, in the column {column!r}")
    return tuple(choices)


def _label(label: Any, column: str) -> str | tuple[str, ...]:
    words = [_label_word(item, column) for item in (label if isinstance(label, list) else [label])]
    return tuple(words) if isinstance(label, list) else words[0]


def _label_word(label: Any, column: str) -> str:
    if isinstance(label, bool):
        return "true" if label else "false"
    if _is_empty(label) or not isinstance(label, str | int | float):
        raise _wrong_type(label, column, "a label or a list of labels")
    return require_printable(str(label).strip())
