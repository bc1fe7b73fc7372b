"""Detect table rows that look like headers; raise an error or add a notice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bertmill.config.notation import setting
from bertmill.errors import DataError
from bertmill.rows.columns import Columns, is_known
from bertmill.rows.formats import Cells
from bertmill.rows.row import Record
from bertmill.rows.source import RowFile
from bertmill.rows.suggestions import RENAME_REMEDY, Sample, is_name
from bertmill.text.printable import one_line


def check_for_header(file: RowFile, columns: Columns, first: Cells, sample: Sample) -> None:
    """Raise DataError if the first row of a table without a header has common names; report other likely headers."""
    cells = cells_by_number(first)
    used = [cells[name] for name in columns.names if name in cells]
    what = f"the first row looks like a header ({', '.join(map(one_line, used))})"
    if len(used) > 1 and all(map(is_known, used)):
        raise DataError(what, where=first.place, remedy=_by_name(columns, cells))
    if sample.has_header:
        advice = f"but is read as a row; if it is a header, {_by_name(columns, cells)}"
        file.counts.notices.append(f"{first.place}: {what}, {advice}")


def with_header_notice(
    file: RowFile, records: Iterable[Record], columns: Columns, cells: Mapping[str, str]
) -> Iterator[Record]:
    """Yield the records, and report rows that seem to be a header, because of their label.

    These are rows that repeat the header, a single row whose label is the name of the column, and without a header, the
    first row if no other row has its label.
    """
    label, text = columns.label or "", columns.text
    name = label if columns.has_header else cells[label]
    place, num_rows, num_same, num_repeated = "", 0, 0, 0
    for record in records:
        num_rows += 1
        if record.problem is None and record.fields[label].strip() == name:
            place = place or record.place
            num_same += 1
            num_repeated += columns.has_header and record.fields[text].strip() == text
        yield record
    if num_repeated and num_repeated == num_same:
        file.counts.notices.append(f"{place}: the header occurs again as a row ({num_repeated:,} ×); remove it")
    elif num_same == 1 < num_rows and is_name(name):
        remedy = "remove it" if columns.has_header else _by_name(columns, cells)
        what = f"only this row has the label {one_line(name)!r}; if it is a header, {remedy}"
        file.counts.notices.append(f"{place}: {what}")


def cells_by_number(row: Cells) -> dict[str, str]:
    """The cells of a row by their number, without surrounding spaces."""
    return {str(number): cell.strip() for number, cell in enumerate(row.values, start=1)}


def _by_name(columns: Columns, cells: Mapping[str, str]) -> str:
    """How to set columns that are given by number in a table that has a header with these cells."""
    text, pair, label = (cells.get(name or "", name) for name in (columns.text, columns.pair, columns.label))
    choices = tuple(cells.get(name, name) for name in columns.choices)
    named = Columns(text or "", pair, label, choices)
    return RENAME_REMEDY if all(map(str.isdecimal, named.names)) else f"set {setting('columns', named.setting)}"
