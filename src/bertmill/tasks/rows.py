"""The rows of one file of labelled data, with nothing said yet about what a column means.

The suffix tells the format (.gz, .xz and .zst may follow): `.jsonl` has a JSON object per line, `.json` is one of the
forms of json_rows.py, `.csv` is separated by commas, anything else by tabs; `.parquet` (not compressed) needs pyarrow;
standard input has JSON lines where its first line begins with `{`, else tabs. Lines without a character are no rows,
unless they stand inside quotes. Quotes are

    literal    every quote is a character, as in the files of GLUE; a line is a row
    standard   RFC 4180: a field that begins with a quote ends with one; it may hold separators and newlines, and a
               quote inside it is written twice
    auto       the first MiB is split both ways. Wrong quotes rule `standard` out, unless the rows before them tell it
               (`_are_standard`); else the way wins in which fewer rows differ in width from the first; where both are
               equal, it is `standard` in a .csv and where a quote is written twice inside a quoted field, else
               `literal`, as it always is on standard input.

Reading streams, but for `.json`: memory holds the head, then one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from bertmill.config.fields import Quotes
from bertmill.errors import DataError, UsageError
from bertmill.tasks.json_rows import read_json_rows
from bertmill.tasks.raw_rows import BadRowError, RawRow, repair_strings, shortened
from bertmill.text.files import STANDARD_INPUT, Line, format_suffix, parse_record, read_file
from bertmill.text.repair import Repairs

RECORDS = (".jsonl", ".json", ".parquet")  # formats whose fields have names
_HEAD_CHARACTERS = 1 << 20
_MAX_ROW_CHARACTERS = 1 << 24  # a quote that is never closed must not fill the memory
_PARQUET_ROWS = 1024  # read at a time
_REMEDY_FOR_QUOTES = "write quotes inside a quoted field twice, or say --quotes literal if quotes are characters here"


def read_rows(file: str, *, quotes: Quotes = "auto", repairs: Repairs | None = None) -> Iterator[RawRow]:
    """All rows of `file`; those of tables are numbered, the first one, which may be a header, included."""
    suffix = format_suffix(file)
    if suffix == ".parquet":
        yield from _parquet_rows(file)
        return
    counts = Repairs() if repairs is None else repairs
    if suffix == ".json":
        yield from read_json_rows(file, counts)
        return
    lines = read_file(file, repairs=counts)
    if file == STANDARD_INPUT:
        are_records, lines = recognise_records(lines)
        suffix = ".jsonl" if are_records else ""
    if suffix == ".jsonl":
        yield from record_rows(lines, counts)
        return
    separator = "," if suffix == ".csv" else "\t"
    if quotes == "auto":
        quotes, lines = ("literal", lines) if file == STANDARD_INPUT else _recognise_quotes(lines, separator)
    split = _split_literally if quotes == "literal" else _split_standard
    yield from _table_rows(split(lines, separator))


def name_columns(rows: Iterator[RawRow]) -> Iterator[RawRow]:
    """Numbered rows by the names that the first of them holds."""
    header = next(rows, None)
    names = [] if header is None else header_names(header)
    for row in rows:
        yield row._replace(fields=dict(zip(names, row.fields.values(), strict=False)), is_numbered=False)


def header_names(header: RawRow) -> list[str]:
    """The cells of a table's first row as names."""
    return [str(cell).strip() for cell in header.fields.values()]


def recognise_records(lines: Iterator[Line]) -> tuple[bool, Iterator[Line]]:
    """Whether lines whose format no suffix tells are records, by the first that has text; and all lines."""
    head: list[Line] = []
    for line in lines:
        head.append(line)
        if line.text.strip():
            break
    return bool(head) and head[-1].text.startswith("{"), chain(head, lines)


def record_rows(lines: Iterable[Line], repairs: Repairs) -> Iterator[RawRow]:
    """The fields of each line of JSON."""
    return (_record_row(line, repairs) for line in lines if line.text.strip())


def _record_row(line: Line, repairs: Repairs) -> RawRow:
    try:
        record = parse_record(line)
    except DataError as error:
        return RawRow(line.place, {}, problem=BadRowError("not a JSON object", error.what))
    if "\\" in line.text:  # the line is repaired already, but an escape may stand for anything
        record = repair_strings(record, repairs)
    return RawRow(line.place, record)


def _table_rows(rows: Iterable[tuple[Line, list[str]]]) -> Iterator[RawRow]:
    numbers: list[str] = []
    for line, values in rows:
        numbers = numbers or [str(number + 1) for number in range(len(values))]
        yield RawRow(
            line.place,
            dict(zip(numbers, values, strict=False)),
            is_numbered=True,
            problem=None if len(values) == len(numbers) else _wrong_width(len(values), len(numbers)),
        )


def _wrong_width(num_columns: int, expected: int) -> BadRowError:
    many = "many" if num_columns > expected else "few"
    what = f"has {num_columns} column{'s' * (num_columns != 1)}, where the first row has {expected}"
    return BadRowError(f"too {many} columns", what, "mend it, or say with --quotes what quotes mean in this file")


def _recognise_quotes(lines: Iterator[Line], separator: str) -> tuple[Quotes, Iterator[Line]]:
    """What quotes mean, by the rule above, and the lines with those that were looked at."""
    head: list[Line] = []
    num_characters = 0
    for line in lines:
        head.append(line)
        num_characters += len(line.text) + 1
        if num_characters >= _HEAD_CHARACTERS:
            break
    is_whole = num_characters < _HEAD_CHARACTERS
    return _quotes_of_head(head, separator, is_whole), chain(head, lines)


def _quotes_of_head(head: list[Line], separator: str, is_whole: bool) -> Quotes:
    usual: Quotes = "standard" if separator == "," else "literal"
    if not any('"' in line.text for line in head):
        return usual
    widths: list[int] = []
    try:
        for _, values in _split_standard(head, separator):
            widths.append(len(values))
    except DataError as error:
        if is_whole or not widths or not isinstance(error, _UnclosedQuoteError):
            wrong = error.where
            before = list(takewhile(lambda line: line.place != wrong, head))
            return "standard" if _are_standard(before, separator, _num_other_widths(widths)) else "literal"
    num_literal = _num_other_widths([len(values) for _, values in _split_literally(head, separator)])
    num_standard = _num_other_widths(widths)
    if num_literal != num_standard:
        return "literal" if num_literal < num_standard else "standard"
    return "standard" if _has_doubled_quotes(head, separator) else usual


def _are_standard(lines: list[Line], separator: str, num_standard: int) -> bool:
    """Whether lines that can be read as standard, with `num_standard` odd widths, should be.

    They should if more would differ in width, if quotes are written twice, or if several rows of a .csv are all quoted.
    """
    rows = [values for _, values in _split_literally(lines, separator)]
    all_are_quoted = len(rows) > 3 and all(any(map(_is_quoted, values)) for values in rows[1:])
    return (
        _num_other_widths(list(map(len, rows))) > num_standard
        or _has_doubled_quotes(lines, separator)
        or (separator == "," and all_are_quoted)
    )


def _is_quoted(field: str) -> bool:
    return len(field) > 1 and field[0] == field[-1] == '"'


def _num_other_widths(widths: list[int]) -> int:
    return sum(width != widths[0] for width in widths)


def _has_doubled_quotes(head: list[Line], separator: str) -> bool:
    return any(_is_quoted(field) and '""' in field[1:-1] for line in head for field in line.text.split(separator))


def _split_literally(lines: Iterable[Line], separator: str) -> Iterator[tuple[Line, list[str]]]:
    return ((line, line.text.split(separator)) for line in lines if line.text)


class _UnclosedQuoteError(DataError):
    """A quote opens a field and no quote ends it."""


def _split_standard(lines: Iterable[Line], separator: str) -> Iterator[tuple[Line, list[str]]]:
    """Rows with the line on which each begins.

    A separator or a newline is inside a quoted field where the quotes up to it are odd in number. Wrong quotes stop
    everything: nobody knows then where the next row begins.
    """
    start: Line | None = None  # of the row that is not at its end
    fields: list[str] = []
    parts: list[str] = []  # of the field that is not at its end, with the separators and newlines between
    num_characters = 0
    for line in lines:
        if start is None:
            if not line.text:
                continue
            if '"' not in line.text:
                yield line, line.text.split(separator)
                continue
            start, fields, num_characters = line, [], 0
        elif (num_characters := num_characters + len(line.text)) > _MAX_ROW_CHARACTERS:
            break
        _add_fields(fields, parts, line.text, separator, start.place)
        if not parts:
            yield start, fields
            start = None
    if start is not None:
        raise _UnclosedQuoteError("a quote that opens here is not closed", where=start.place, remedy=_REMEDY_FOR_QUOTES)


def _add_fields(fields: list[str], parts: list[str], line: str, separator: str, place: str) -> None:
    """Take the fields of `line`, of a row at `place`; what is left in `parts` goes on in the next line."""
    between = "\n" if parts else ""
    for text in line.split(separator):
        if not parts and not text.startswith('"'):
            fields.append(text)
            continue
        # The first part and the last one of a field have an odd number of quotes, those between an even one.
        is_end = (text.count('"') % 2 == 1) == bool(parts)
        parts += [between, text] if parts else [text]
        if is_end:
            fields.append(_unquote("".join(parts), place))
            parts.clear()
        between = separator


def _unquote(field: str, place: str) -> str:
    inside = field[1:-1]
    if field[-1] != '"' or '"' in inside.replace('""', ""):
        raise DataError(f"has quotes that do not fit: {shortened(field, 40)}", where=place, remedy=_REMEDY_FOR_QUOTES)
    return inside.replace('""', '"')


def _parquet_rows(file: str) -> Iterator[RawRow]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UsageError("reading .parquet needs pyarrow", where=file, remedy="pip install pyarrow") from None
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=_PARQUET_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield RawRow(f"{file}: row {number}", record)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=file) from None
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"is not a whole .parquet file: {error}", where=file, remedy="copy it again") from None
