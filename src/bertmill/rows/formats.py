"""File formats of labeled data: tables of cells, and records of named fields.

    .csv       comma-separated, with quotes as in RFC 4180: a field that contains quotes is quoted; a quoted field may
               contain separators and newlines, and quotes inside it are doubled; if the first line has no comma but
               semicolons or tabs, they are the separators; a first line sep=; names the separator, as in Excel
    .jsonl     one JSON object per line
    .json      the same, or one list or object (see json_files.py), or a task-specific structure (see `read_records`)
    .parquet   requires pyarrow
    other      tab-separated, one row per line, quotes are literal characters; also standard input
The suffix may be followed by .gz, .xz or .zst. Empty lines are skipped, except inside quotes. All formats except .json
with one list or object are streamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.json_files import (
    at_key,
    begins_one_list,
    has_one_record_per_line,
    listed_rows,
    parse_whole,
    type_of,
)
from bertmill.rows.row import Record, record_id
from bertmill.rows.source import RowFile
from bertmill.text.files import Line, first_lines, parse_record
from bertmill.text.printable import one_line
from bertmill.text.repair import Repairs, replace_surrogates

TABLES = ("tsv", "csv")
RECORDS = ("jsonl", "json", "parquet")
_MAX_ROW_CHARACTERS = 1 << 24  # bounds memory if a quote is never closed
_MAX_PARTS = 1 << 16  # of a field, before they are joined to save memory
_NAMED_SEPARATOR = re.compile('"?sep=([^"])"?')
_PARQUET_ROWS = 1024  # read at a time
_QUOTES_REMEDY = (
    "quote the field and double the quotes inside it, or set `quotes='literal'` if they are plain characters"
)

# Reads a .json file in a task-specific structure. Returns None if the content has another structure.
Unfold = Callable[[Any, RowFile], Iterator[Record] | None]


class Cells(NamedTuple):
    """The cells of one table row and its location (file and line)."""

    place: str
    values: list[str]


def read_table(file: RowFile, lines: Iterator[Line] | None = None) -> Iterator[Cells]:
    """Read the rows of a .tsv or .csv file, including the header. Raises DataError if quotes are malformed.

    Pass `lines` if the file is already open.
    """
    is_csv = file.format == "csv"
    first, lines = first_lines(lines or file.lines(), 1)
    has_quotes = (file.settings.quotes or ("standard" if is_csv else "literal")) == "standard"
    separator = file.settings.separator or ("," if is_csv else "\t")
    named = _NAMED_SEPARATOR.fullmatch(first[0].text) if is_csv and first else None
    if named:
        next(lines)
    if is_csv and first and file.settings.separator is None:
        found = named[1] if named else _separator_in(first[0].text, has_quotes)
        separator = found or file.trained_separator or ","
        if separator != ",":
            file.separator = separator
            name = {";": "semicolons", "\t": "tabs"}.get(separator, repr(separator))
            why = "" if found else ", as in training"
            file.counts.notices.append(f"{file.path}: the columns are separated by {name}{why}")
    if has_quotes:
        return _split_quoted(lines, separator)
    cells = (Cells(line.place, line.text.split(separator)) for line in lines if line.text)
    return cells if file.settings.quotes else _with_warning(cells, file)


def read_records(file: RowFile, unfold: Unfold = lambda _content, _file: None) -> Iterator[Record]:
    """Read the records of a .jsonl, .json or .parquet file.

    `unfold` lets a task read a .json file in its own structure. It returns None for any other structure.
    """
    if file.format == "parquet":
        return _parquet_records(file.path)
    first, lines = first_lines((line for line in file.lines() if line.text.strip()), 2)
    texts = [line.text for line in first]
    if file.format == "json" and not has_one_record_per_line(texts):
        content = at_key(parse_whole(lines, file.path), file.path, file.key)
        unfolded = unfold(content, file)
        return _listed_records(content, file) if unfolded is None else unfolded
    if file.key is not None:
        raise UsageError(f"the file has one record per line, not a key {file.key!r}", where=file.path, remedy="omit it")
    if file.format == "jsonl" and begins_one_list(texts):
        what = "the file is one JSON array, not one record per line"
        raise DataError(what, where=file.path, remedy="rename it to end in .json, or set `format='json'`")
    return (_line_record(line, file.counts.repairs) for line in lines)


def json_record(place: str, value: Any, repairs: Repairs) -> Record:
    """Turn a JSON value into a record, which has a problem if the value is not an object."""
    if not isinstance(value, dict):
        problem = BadRowError("not a JSON object", f"expected a JSON object, found a {type_of(value)}")
        return Record(place, {}, problem=problem)
    fields = repair_strings(value, repairs)
    return Record(place, fields, record_id(fields))


def repair_strings(value: Any, repairs: Repairs) -> Any:
    """Replace lone surrogates in all strings of a JSON value, including nested ones. Offsets do not change."""
    if isinstance(value, list):
        return [repair_strings(item, repairs) for item in value]
    if isinstance(value, dict):
        return {name: repair_strings(item, repairs) for name, item in value.items()}
    return replace_surrogates(value, repairs) if isinstance(value, str) else value


def _separator_in(line: str, has_quotes: bool) -> str | None:
    """The separator of a .csv file with this first line; None if it has only one column."""
    outside = re.sub('"[^"]*"', "", line) if has_quotes else line
    found = "," if "," in outside else max(";\t", key=outside.count)
    return found if found in outside else None


def _with_warning(rows: Iterable[Cells], file: RowFile) -> Iterator[Cells]:
    """Yield the rows unchanged. The first cell that looks CSV-quoted adds a notice to the file's counts."""
    has_warned = False
    for row in rows:
        if not has_warned and any(map(_looks_quoted, row.values)):
            has_warned = True
            advice = "set `quotes='standard'` if quotes wrap fields"
            file.counts.notices.append(f"{row.place}: a cell looks CSV-quoted, but quotes are literal here; {advice}")
        yield row


def _looks_quoted(cell: str) -> bool:
    """Whether a cell looks like CSV: it is quoted and contains doubled quotes."""
    return '""' in cell[1:-1] and _is_quoted(cell)


def _split_quoted(lines: Iterable[Line], separator: str) -> Iterator[Cells]:
    """Yield rows with standard quotes, each with the place where it starts.

    A separator or newline is inside a quoted field if an odd number of quotes precedes it.
    """
    start: Line | None = None  # first line of an unfinished row
    fields: list[str] = []
    parts: list[str] = []  # parts of an unfinished field, including the separators and newlines between them
    num_characters = 0
    for line in lines:
        if start is None:
            if not line.text:
                continue
            if '"' not in line.text:
                yield Cells(line.place, line.text.split(separator))
                continue
            start, fields, num_characters = line, [], 0
        elif (num_characters := num_characters + len(line.text) + 1) > _MAX_ROW_CHARACTERS:
            break
        _add_fields(fields, parts, line.text, separator, start.place)
        if not parts:
            yield Cells(start.place, fields)
            start = None
    if start is not None:
        raise DataError("a quote in this row is never closed", where=start.place, remedy=_QUOTES_REMEDY)


def _add_fields(fields: list[str], parts: list[str], line: str, separator: str, place: str) -> None:
    """Add the fields of one line of a row. `parts` holds a field that continues on the next line."""
    between = "\n" if parts else ""
    for text in line.split(separator):
        if not parts and not text.startswith('"'):
            fields.append(_unquote(text, place) if '"' in text else text)
            continue
        # The first and the last part of a field have an odd number of quotes, the parts in between an even number.
        is_end = (text.count('"') % 2 == 1) == bool(parts)
        parts += [between, text] if parts else [text]
        if is_end:
            fields.append(_unquote("".join(parts), place))
            parts.clear()
        between = separator
    if len(parts) > _MAX_PARTS:
        parts[:] = ["".join(parts)]


def _unquote(field: str, place: str) -> str:
    if not _is_quoted(field):
        raise DataError(f"malformed quotes in {one_line(field, 40)}", where=place, remedy=_QUOTES_REMEDY)
    return field[1:-1].replace('""', '"')


def _is_quoted(field: str) -> bool:
    return field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', "")


def _line_record(line: Line, repairs: Repairs) -> Record:
    try:
        fields = parse_record(line)
    except DataError as error:
        return Record(line.place, {}, problem=BadRowError("not a JSON object", error.what))
    if "\\" in line.text:  # the line is already repaired, but an escape can encode a lone surrogate
        fields = repair_strings(fields, repairs)
    return Record(line.place, fields, record_id(fields))


def _listed_records(content: Any, file: RowFile) -> Iterator[Record]:
    for place, item in listed_rows(content, file.path):
        yield json_record(place, item, file.counts.repairs)


def _parquet_records(path: str) -> Iterator[Record]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        remedy = "install it with `pip install pyarrow`"
        raise UsageError("reading .parquet files requires pyarrow", where=path, remedy=remedy) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=_PARQUET_ROWS):
                for fields in batch.to_pylist():
                    number += 1
                    yield Record(f"{path}: row {number}", fields, record_id(fields))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=path) from None
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"not a complete .parquet file: {error}", where=path, remedy="copy it again") from None
