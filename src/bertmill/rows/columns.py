"""Map columns to the fields `text`, `pair`, `label` and `choices`.

The setting `columns` is a list such as `text=premise,pair=hypothesis,label=gold`. Only `text` is required.

- Values are header names, or keys of records. If all values are numbers, the table has no header and columns are
  numbered from 1: `text=4,label=2`.
- Choices in several columns are joined with plus signs: `choices=a+b+c`. A single column of choices holds a list.

The setting `preset` selects the columns of a known dataset. Without either setting, common column names are looked up
in the header or in the keys of the first record, ignoring case and surrounding spaces:

- A pair of names takes precedence over a single name.
- An ambiguous match (`text` and `review`, `label` and `score`) is not used.
- If there are two columns and one is a known label, the other one is the text.
- A table with one column holds texts. Its first row is a header if the cell is a common name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from bertmill.config.commands import RowSettings
from bertmill.config.reading import unknown_name
from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import ROWS_BEFORE_STOPPING, BadRowError
from bertmill.rows.formats import TABLES, Cells, Unfold, read_records, read_table
from bertmill.rows.row import Record, record_id
from bertmill.rows.source import FORMATS, RowFile
from bertmill.text.printable import counted, one_line

_KEYS = ("text", "pair", "label", "choices")

# Common column names of datasets, in lower case.
_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "pair"),
    ("text", "text_pair"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
    ("sent1", "sent2"),
    ("context", "question"),
    ("passage", "question"),
    ("article", "question"),
)
_TEXTS = (
    *("text", "sentence", "sms", "review", "content", "comment", "message", "tweet", "utterance", "document", "body"),
    *("sentence1", "premise", "question", "context"),
)
_LABELS = (
    *("label", "labels", "gold_label", "gold", "class", "category", "sentiment", "intent", "target"),
    *("score", "similarity", "quality", "is_duplicate", "answer"),
)
_LISTS_OF_CHOICES = ("choices", "options", "endings", "candidates")
_ONE_CHOICE = re.compile(r"(choice|option|ending)[ _-]?([0-9]|[a-h])")
_KNOWN = {name for pair in _PAIRS for name in pair} | set(_TEXTS) | set(_LABELS) | set(_LISTS_OF_CHOICES)


@dataclass(frozen=True)
class Columns:
    """The column of each field, by name, or by number ("1", "2", …) in a table without a header."""

    text: str
    pair: str | None = None
    label: str | None = None
    choices: tuple[str, ...] = ()  # one column that holds a list, or one column per choice
    has_header: bool = True

    @property
    def names(self) -> list[str]:
        """The names of all columns in use."""
        return [name for name in (self.text, self.pair, self.label, *self.choices) if name is not None]


PRESETS = {
    "sst2": Columns("sentence", label="label"),
    "cola": Columns("4", label="2", has_header=False),
    "mrpc": Columns("#1 String", "#2 String", "Quality"),
    "rte": Columns("sentence1", "sentence2", "label"),
    "wnli": Columns("sentence1", "sentence2", "label"),
    "stsb": Columns("sentence1", "sentence2", "score"),
    "qnli": Columns("question", "sentence", "label"),
    "mnli": Columns("sentence1", "sentence2", "gold_label"),
    "qqp": Columns("question1", "question2", "is_duplicate"),
    "swag": Columns("sent1", "sent2", "label", ("ending0", "ending1", "ending2", "ending3")),
}
PRESET_METRICS = {"cola": "matthews"}  # where the usual metric is not the task's default


def read_fields(
    file: RowFile,
    *,
    labelled: bool,
    optional_label: bool = False,
    unfold: Unfold = lambda _content, _file: None,
) -> Iterator[Record]:
    """Read the records of a file and rename their fields to text, pair, label and choices. Absent fields are omitted.

    If `labelled` is false, labels in the file are ignored. With `optional_label`, the label of records without the key
    is None, unless all records lack it. `unfold` is passed to `read_records`.
    """
    file.require_format(*FORMATS)
    given = given_columns(file.settings)
    if labelled and given is not None and given.label is None:
        raise UsageError("columns does not name a label", remedy="add label=COLUMN")
    if file.format in TABLES:
        records, columns = _named_rows(read_table(file), given, labelled)
    else:
        file.require_default("separator", "quotes")
        read = read_records(file, unfold)
        records, columns = _columns_of_records(read, given, labelled, optional_label)
        if labelled and optional_label and columns.label is not None:
            records = _with_optional(columns.label, records, file.path)
    columns = _without_label(columns, labelled)
    return (record if record.problem else _renamed(record, columns) for record in records)


def given_columns(settings: RowSettings) -> Columns | None:
    """Return the columns selected by the `columns` or `preset` setting, or None."""
    if settings.preset is None:
        return None if settings.columns is None else parse_columns(settings.columns)
    if settings.columns is not None:
        raise UsageError("columns and preset cannot be used together")
    if settings.preset not in PRESETS:
        raise unknown_name("preset", settings.preset, list(PRESETS))
    return PRESETS[settings.preset]


def parse_columns(text: str) -> Columns:
    """Parse a setting such as `text=premise,pair=hypothesis,label=gold`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or key not in _KEYS or key in found or not name:
            what = f"columns {text!r} is invalid at {part.strip()!r}"
            raise UsageError(what, remedy=f"write KEY=COLUMN,… with each of {', '.join(_KEYS)} at most once")
        found[key] = name
    if "text" not in found:
        raise UsageError(f"columns {text!r} does not name a text", remedy="add text=COLUMN")
    choices = tuple(name.strip() for name in found["choices"].split("+")) if "choices" in found else ()
    columns = Columns(found["text"], found.get("pair"), found.get("label"), choices)
    if len(set(columns.names)) < len(columns.names) or "" in columns.names:
        raise UsageError(f"columns {text!r} repeats a column or has an empty name", remedy="name each column once")
    are_numbers = all(name.isdecimal() for name in columns.names)
    if are_numbers and "0" in columns.names:
        raise UsageError(f"columns {text!r} is invalid: column numbers start at 1")
    return replace(columns, has_header=not are_numbers)


def _without_label(columns: Columns, labelled: bool) -> Columns:
    return columns if labelled else replace(columns, label=None)


def _named_rows(rows: Iterator[Cells], given: Columns | None, labelled: bool) -> tuple[Iterable[Record], Columns]:
    """Return the rows of a table as records, with header names or numbers as keys, and the columns to use."""
    first = next(rows, None)
    if first is None:
        return (), given or Columns("text")
    header = [cell.strip() for cell in first.values]
    columns = given or recognise_columns(header, labelled=labelled)
    if columns is None and len(header) == 1 and not labelled:
        columns = Columns("1", has_header=False)
    if columns is None:
        raise _unrecognized(first.place, dict(enumerate(first.values, start=1)), labelled)
    if not columns.has_header:
        _refuse_header(columns, first)
        rows = chain([first], rows)
        header = [str(number) for number in range(1, len(first.values) + 1)]
    _require_columns(_without_label(columns, labelled), header, first)
    return (_table_record(row, header) for row in rows), columns


def _table_record(row: Cells, names: Sequence[str]) -> Record:
    fields = dict(zip(names, row.values, strict=False))
    if len(row.values) == len(names):
        return Record(row.place, fields, record_id(fields))
    many = "many" if len(row.values) > len(names) else "few"
    what = f"this row has {counted(len(row.values), 'column')}, but the first row has {len(names)}"
    problem = BadRowError(f"too {many} columns", what, "correct it, or check separator and quotes")
    return Record(row.place, fields, problem=problem)


def _columns_of_records(
    records: Iterator[Record], given: Columns | None, labelled: bool, optional_label: bool
) -> tuple[Iterable[Record], Columns]:
    """Return the records and the columns to use: the given ones, or those recognized in the first good record.

    With `optional_label`, they are those recognized in the first good record with a label.
    """
    if given is not None:
        return records, given
    first: Record | None = None
    head: list[Record] = []
    columns = None
    for record in islice(records, ROWS_BEFORE_STOPPING):
        head.append(record)
        if record.problem is not None:
            continue
        first = first or record
        lists = [name for name, value in record.fields.items() if isinstance(value, list)]
        columns = recognise_columns(list(record.fields), lists, labelled)
        if columns is not None or not optional_label:
            break
    if first is None:
        what = f"its columns are unknown, because the first {len(head):,} rows are bad"
        problem = BadRowError("unknown columns", what, "set columns")
        rest = (record._replace(problem=record.problem or problem) for record in records)
        return chain(head, rest), Columns("text")
    if columns is None:
        raise _unrecognized(first.place, first.fields, labelled)
    records = chain(head, records)
    return (_refuse_new_pairs(records) if columns.pair is None else records), columns


def _with_optional(label: str, records: Iterable[Record], path: str) -> Iterator[Record]:
    """Set a missing label to None. Raises DataError at the end if no record has one."""
    is_missing = True
    for record in records:
        if label in record.fields:
            is_missing = False
        elif record.problem is None:
            record = record._replace(fields={**record.fields, label: None})
        yield record
    if is_missing:
        raise DataError(f"no row has the column {label!r}", where=path, remedy="set columns to match the file")


def _refuse_new_pairs(records: Iterable[Record]) -> Iterator[Record]:
    """Mark records with a pair as bad. The first record has no pair, so their second text would be ignored."""
    without_pair: set[tuple[str, ...]] = set()
    for record in records:
        names = tuple(record.fields)
        if names not in without_pair:
            columns = recognise_columns(names)
            if columns is None or columns.pair is None:
                without_pair.add(names)
            else:
                what = f"this row has a second text in {columns.pair!r}, but the first row has only one text"
                remedy = "give every row the same columns, or set columns"
                record = record._replace(problem=BadRowError("pair only in some rows", what, remedy))
        yield record


def recognise_columns(names: Sequence[str], lists: Collection[str] = (), labelled: bool = False) -> Columns | None:
    """Find the columns by their common names. Returns None if the text, or a required label, cannot be recognized.

    `lists` are the columns that hold lists of values.
    """

    def only_one(known: Collection[str], among: Sequence[str] = names) -> str | None:
        found = [name for name in among if _plain(name) in known]
        return found[0] if len(found) == 1 else None

    pairs = [pair for pair in _PAIRS if set(map(_plain, names)) >= set(pair)]
    text, pair = map(only_one, zip(pairs[0])) if len(pairs) == 1 else (None, None)
    text = text if pairs else only_one(_TEXTS)
    label = only_one(_LABELS)
    if text is None and label is not None and len(names) == 2:
        text = names[1 - names.index(label)]
    if text is None or (labelled and label is None):
        return None
    choices = only_one(_LISTS_OF_CHOICES, [name for name in names if name in lists])
    several = tuple(name for name in names if _ONE_CHOICE.fullmatch(_plain(name)))  # in their order in the file
    return Columns(text, pair, label, (choices,) if choices is not None else several if len(several) > 1 else ())


def _plain(name: str) -> str:
    return name.strip().casefold()


def _renamed(record: Record, columns: Columns) -> Record:
    fields: dict[str, Any] = {}
    for field, name in (("text", columns.text), ("pair", columns.pair), ("label", columns.label)):
        if name is not None and name in record.fields:
            fields[field] = record.fields[name]
        elif name is not None:
            return record._replace(problem=BadRowError("missing column", f"this row has no column {name!r}"))
    if len(columns.choices) == 1:
        fields["choices"] = record.fields.get(columns.choices[0])
    elif columns.choices:
        fields["choices"] = [record.fields.get(name) for name in columns.choices]
    return record._replace(fields=fields)


def _require_columns(columns: Columns, names: Sequence[str], first: Cells) -> None:
    for name in columns.names:
        if names.count(name) != 1:
            found = "is no column" if name not in names else "is more than one column"
            what = f"there {found} {name!r}; the first row is {_listed(dict(zip(names, first.values, strict=True)))}"
            raise DataError(what, where=first.place, remedy="set columns to match the file")


def _refuse_header(columns: Columns, first: Cells) -> None:
    """Raise DataError if the first row of a table without a header looks like a header."""
    numbers = [int(name) for name in columns.names]
    cells = [first.values[number - 1] for number in numbers if number <= len(first.values)]
    if len(cells) > 1 and all(_plain(cell) in _KNOWN for cell in cells):
        what = f"the first row looks like a header: {', '.join(cells)}"
        raise DataError(what, where=first.place, remedy="use names instead of numbers in columns")


def _unrecognized(place: str, fields: Mapping[Any, Any], labelled: bool) -> DataError:
    wanted, more = ("the text and the label", ",label=COLUMN") if labelled else ("the text", "")
    remedy = f"set columns to text=COLUMN{more}, with header names, or with numbers if there is no header"
    if len(fields) == 1 and labelled:
        remedy = "separate columns with commas in a .csv file and with tabs in other files, or set separator"
    return DataError(f"cannot tell which columns hold {wanted}: {_listed(fields)}", where=place, remedy=remedy)


def _listed(fields: Mapping[Any, Any]) -> str:
    return ", ".join(f"{name} = {one_line(str(value), 30)!r}" for name, value in fields.items())
