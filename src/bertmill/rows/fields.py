"""Read the records of a file, with their fields renamed to text, pair, label and choices.

The columns are the first of these:

- those of the setting `columns` or `preset`
- those that the model was trained with, if the file has them
- those recognized by common names (columns.py)
- for prediction, the only column of a table

Otherwise, an error lists the columns and suggests a setting (suggestions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

from bertmill.config.notation import setting
from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import ROWS_BEFORE_STOPPING, BadRowError
from bertmill.rows.columns import Columns, given_columns, recognize_columns
from bertmill.rows.formats import RECORDS, TABLES, Cells, Unfold, read_records, read_table
from bertmill.rows.headers import cells_by_number, check_for_header, with_header_notice
from bertmill.rows.labeled_texts import LABEL_PREFIX, read_class_folder, read_fasttext
from bertmill.rows.row import Record, record_id
from bertmill.rows.source import FOLDER, FORMATS, RowFile
from bertmill.rows.suggestions import RequiredFields, Sample, looks_like_header
from bertmill.text.files import Line, first_lines
from bertmill.text.printable import counted, one_line

ItemT = TypeVar("ItemT")

_SAMPLE_ROWS = ROWS_BEFORE_STOPPING  # if all of them are bad, reading stops anyway
_SAMPLE_CHARACTERS = 1 << 20
_TABLE_SETTINGS = ("columns", "preset", "separator", "quotes")


def read_fields(
    file: RowFile,
    *,
    labeled: bool,
    optional_label: bool = False,
    choices: bool = False,
    unfold: Unfold = lambda _content, _file: None,
) -> Iterator[Record]:
    """Read the records of a file and rename their fields to text, pair, label and choices. Absent fields are omitted.

    If `labeled` is false, labels in the file are ignored. With `optional_label`, the label of records without the key
    is None, unless all records lack it. If `choices` is true, choices are required. `unfold` is passed to
    `read_records`.
    """
    file.require_format(*((*TABLES, *RECORDS) if choices else (*FORMATS, FOLDER)))
    given = given_columns(file.settings)
    if labeled and given is not None and given.label is None:
        raise UsageError("`columns` does not name a label", remedy="add label=COLUMN")
    required = RequiredFields(labeled, choices)
    if file.format in RECORDS:
        file.require_default("separator", "quotes")
        records, columns = _named_records(file, read_records(file, unfold), required, optional_label)
        if labeled and optional_label and columns.label is not None:
            records = _with_optional(columns.label, records, file.path)
    elif file.format == FOLDER:
        records, columns = _labeled_texts(file, read_class_folder(file, labeled=labeled))
    else:
        first, lines = first_lines(file.lines(), 1)
        if not choices and _is_fasttext(file, first):
            records, columns = _labeled_texts(file, read_fasttext(lines))
        else:
            records, columns = _table_records(file, read_table(file, lines), required)
    columns = columns.for_rows(labeled=labeled)
    return (record if record.problem else _renamed(record, columns) for record in records)


def _is_fasttext(file: RowFile, first: Sequence[Line]) -> bool:
    is_open = file.settings.format is None and all(getattr(file.settings, name) is None for name in _TABLE_SETTINGS)
    return file.format == "fasttext" or (is_open and bool(first) and first[0].text.startswith(LABEL_PREFIX))


def _labeled_texts(file: RowFile, records: Iterable[Record]) -> tuple[Iterable[Record], Columns]:
    file.require_default(*_TABLE_SETTINGS)
    return records, Columns("text", label="label")


def _table_records(file: RowFile, rows: Iterator[Cells], required: RequiredFields) -> tuple[Iterable[Record], Columns]:
    """Return the rows of a table as records, with header names or numbers as keys, and the columns to use."""
    first = next(rows, None)
    if first is None:
        return (), Columns("text")
    head = _head(rows, lambda row: row.values)
    names = [cell.strip() for cell in first.values]
    others = [row.values for row in head]
    sample = Sample.of_table(first.values, others, has_header=_has_header(file, names, others, required))
    columns = file.columns = _choose_columns(file, names, required, sample, first.place)
    rows = chain(head, rows)
    if not columns.has_header:
        check_for_header(file, columns, first, sample)
        rows = chain([first], rows)
        names = list(cells_by_number(first))
    for name in columns.for_rows(labeled=required.label).names:
        if names.count(name) != 1:
            found = "no column" if name not in names else "more than one column"
            raise _wrong_columns(f"there is {found} {name!r}", sample, required, first.place)
    records = (_table_record(row, names) for row in rows)
    if required.label and (columns.has_header or not sample.has_header):
        return with_header_notice(file, records, columns, cells_by_number(first)), columns
    return records, columns


def _has_header(file: RowFile, names: Sequence[str], others: Sequence[Sequence[str]], required: RequiredFields) -> bool:
    """Whether the first row of a table, which has these `names`, is a header."""
    recognized = recognize_columns(names, labeled=required.label)
    known = [each for each in (given_columns(file.settings), file.trained_columns, recognized) if each is not None]
    has_known_name = any(each.has_header and not set(each.names).isdisjoint(names) for each in known)
    return has_known_name or looks_like_header(names, others)


def _table_record(row: Cells, names: Sequence[str]) -> Record:
    fields = dict(zip(names, row.values, strict=False))
    if len(row.values) == len(names):
        return Record(row.place, fields, record_id(fields))
    many = "many" if len(row.values) > len(names) else "few"
    what = f"this row has {counted(len(row.values), 'column')}, but the first row has {len(names)}"
    problem = BadRowError(f"too {many} columns", what, "correct it, or check `separator` and `quotes`")
    return Record(row.place, fields, problem=problem)


def _named_records(
    file: RowFile, records: Iterator[Record], required: RequiredFields, optional_label: bool
) -> tuple[Iterable[Record], Columns]:
    """Return the records and the columns to use: the given ones, or those recognized in the first good record.

    With `optional_label`, they are those recognized in the first good record with a label.
    """
    head = _head(records, lambda record: record.fields.values())
    good = [record for record in head if record.problem is None]
    if not good:
        what = f"its columns are unknown, because the first {len(head):,} rows are bad"
        problem = BadRowError("unknown columns", what, "set `columns`")
        rest = (record._replace(problem=record.problem or problem) for record in records)
        return chain(head, rest), given_columns(file.settings) or Columns("text")
    records = chain(head, records)
    sample = Sample.of_records([record.fields for record in good])
    first = good[0]
    if optional_label:
        first = next((record for record in good if recognize_columns(list(record.fields), labeled=True)), first)
    names = list(first.fields)
    lists = [name for name, value in first.fields.items() if isinstance(value, list)]
    columns = file.columns = _choose_columns(file, names, required, sample, first.place, lists)
    is_recognized = given_columns(file.settings) is None and columns == recognize_columns(names, lists)
    return _refuse_new_pairs(records) if is_recognized and columns.pair is None else records, columns


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
        raise DataError(f"no row has the column {label!r}", where=path, remedy="set `columns` to match the file")


def _head(items: Iterator[ItemT], values: Callable[[ItemT], Iterable[Any]]) -> list[ItemT]:
    """Return the first items, for a sample of bounded size."""
    head: list[ItemT] = []
    num_characters = 0
    for item in items:
        head.append(item)
        num_characters += sum(len(value) for value in values(item) if isinstance(value, str))
        if len(head) == _SAMPLE_ROWS or num_characters > _SAMPLE_CHARACTERS:
            break
    return head


def _choose_columns(
    file: RowFile,
    names: Sequence[str],
    required: RequiredFields,
    sample: Sample,
    place: str,
    lists: Collection[str] = (),
) -> Columns:
    """Return the columns of a file with these header names or keys. Raises DataError if they cannot be determined."""
    columns = given_columns(file.settings)
    if columns is not None and file.trained_columns is not None and not columns.has_fields_of(file.trained_columns):
        trained = setting("columns", file.trained_columns.setting)
        file.counts.notices.append(f"{file.path}: predictions are unreliable, because training used {trained}")
    if columns is None:
        columns = recognize_columns(names, lists, required.label)
        is_list = len(names) == 1 and file.format in TABLES and not _may_hold_columns(names[0], file.trained_columns)
        if columns is None and is_list and not required.label:
            columns = Columns("1", has_header=False)
        if file.trained_columns is not None:
            columns = _like_trained(file, file.trained_columns, columns, names, sample, required)
        elif columns is not None and required == RequiredFields(label=True) and not columns.pair:
            _report_unread_texts(file, columns, sample, place)
        if columns is None:
            raise _unrecognized(file, sample, required, place)
    if required.choices and not columns.choices:
        what = f"no column is known to hold the choices; the columns are {sample}"
        raise DataError(what, where=place, remedy=sample.remedy(required, columns))
    return columns


def _may_hold_columns(line: str, trained: Columns | None) -> bool:
    """Whether a line is a header with all columns of the training rows, but with other separators."""
    if trained is None or not trained.has_header:
        return False
    cells = ({cell.strip(' "') for cell in line.split(separator)} for separator in ",;\t|")
    return any(len(each) > 1 and each >= set(trained.for_rows(labeled=False).names) for each in cells)


def _like_trained(
    file: RowFile,
    trained: Columns,
    found: Columns | None,
    names: Sequence[str],
    sample: Sample,
    required: RequiredFields,
) -> Columns | None:
    """Return the columns that the model was trained with, or else those found in the file if they have the same fields.

    None if the file has neither.
    """
    used = trained.for_rows(labeled=required.label)
    if trained.has_header:
        is_there = all(names.count(name) == 1 for name in used.names)
    else:
        has_header = sample.has_header or (found is not None and found.has_header)
        is_there = file.format in TABLES and not has_header and all(int(name) <= len(names) for name in used.names)
    if not is_there:
        return found if found is not None and found.has_fields_of(trained) else None
    if found is None or found.for_rows(labeled=required.label) != used:
        file.counts.notices.append(f"{file.path}: columns as in training: {setting('columns', used.setting)}")
    return trained


def _report_unread_texts(file: RowFile, columns: Columns, sample: Sample, place: str) -> None:
    unread = sample.unread_texts(columns)
    if unread:
        remedy = sample.remedy(RequiredFields(label=True), is_pair=True)
        what = f"the texts in {' and '.join(map(one_line, unread))} are not read"
        file.counts.notices.append(f"{place}: {what}; to read pairs of texts, {remedy}")


def _unrecognized(file: RowFile, sample: Sample, required: RequiredFields, place: str) -> DataError:
    fields = "the text and the label" if required.label else "the text"
    what = f"cannot tell which columns hold {fields}: {sample}"
    if file.trained_columns is not None:
        trained = file.trained_columns.for_rows(labeled=required.label)
        what = f"the file does not have the columns of the training rows, {trained.setting}: {sample}"
        if file.trained_columns.has_header and set(trained.names) - sample.values.keys() == {trained.label}:
            what = f"the file has no column {trained.label!r}, which held the labels of the training rows"
            return DataError(what, where=place, remedy="use predict for rows without labels, or set `columns`")
    first_cells = [*sample.values, *(str(values[0]) for values in sample.values.values() if values)]
    may_be_split = required.label or any(_may_hold_columns(cell, file.trained_columns) for cell in first_cells)
    if len(sample.values) != 1 or sample.repeated or not may_be_split or file.format not in TABLES:
        return DataError(what, where=place, remedy=sample.remedy(required))
    remedy = "set `separator` to the character between the columns"
    if file.format == "tsv" and any(character in str(sample) for character in ",;"):
        remedy = "set `format='csv'` if commas or semicolons separate the columns"
    return DataError(what, where=place, remedy=remedy)


def _wrong_columns(what: str, sample: Sample, required: RequiredFields, place: str) -> DataError:
    return DataError(f"{what}; the columns are {sample}", where=place, remedy=sample.remedy(required))


def _refuse_new_pairs(records: Iterable[Record]) -> Iterator[Record]:
    """Mark records with a pair as bad. The first record has no pair, so their second text would be ignored."""
    without_pair: set[tuple[str, ...]] = set()
    for record in records:
        names = tuple(record.fields)
        if names not in without_pair:
            columns = recognize_columns(names)
            if columns is None or columns.pair is None:
                without_pair.add(names)
            else:
                what = f"this row has a second text in {columns.pair!r}, but the first row has only one text"
                remedy = "give every row the same columns, or set `columns`"
                record = record._replace(problem=BadRowError("pair only in some rows", what, remedy))
        yield record


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
