"""Rows given in Python instead of a file: written as .jsonl, so that a run can read them again.

- Records: an iterable of dicts.
- A table: a dict of columns, or an object with column names, such as a DataFrame of pandas or polars, an Arrow table or
  a Hugging Face dataset. None of these libraries is imported: values are converted by the methods they have in common.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bertmill.errors import UsageError
from bertmill.text.printable import counted

_MISSING = {"nan", "NaN", "NaT", "<NA>"}  # as the missing values of numpy, pandas and decimal are printed


def to_json_lines(rows: Any) -> bytes:
    """One line of JSON per row. Missing values become null; UsageError if these are not rows."""
    lines = [json.dumps(_plain(record), ensure_ascii=False) + "\n" for record in _records(rows)]
    return "".join(lines).encode(errors="backslashreplace")  # a lone surrogate becomes its JSON escape


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or one of the missing values of pandas."""
    if value is None:
        return True
    return not isinstance(value, str | bytes | Mapping | list | tuple) and str(value) in _MISSING


def _records(rows: Any) -> Iterator[Mapping[str, Any]]:
    names = rows if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is not None:
        yield from _table_records({name: list(rows[name]) for name in names})
    elif isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        what = f"rows must be a list of dicts, a table of columns or a path, not {type(rows).__name__}"
        raise UsageError(what)
    else:
        for number, record in enumerate(rows, start=1):
            if not isinstance(record, Mapping):
                what = f"row {number} is not a dict, but {type(record).__name__}"
                raise UsageError(what, remedy="name its fields, as in {'text': …, 'label': …}")
            yield record


def _table_records(columns: Mapping[Any, list[Any]]) -> Iterator[dict[Any, Any]]:
    lengths = {str(name): len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name} has {counted(length, 'row')}" for name, length in lengths.items())
        raise UsageError(f"the columns differ in length: {described}")
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _plain(value: Any) -> Any:
    """The same value in the types of JSON; values of any other type become text."""
    for method in ("tolist", "as_py"):  # of numpy arrays and scalars, and of Arrow scalars
        if hasattr(value, method):
            value = getattr(value, method)()
    if is_missing(value):
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | bool | int | float) else str(value)
