"""JSON files: one record per line, or a list or an object that is read as a whole.

    {"text": …, "label": …}                             one record per line, or a single record
    [{"text": …, "label": …}, …]                        a list of records
    [[text, label], …]                                  a list of texts with their labels
    {"train": [[text, intent], …], "val": […], …}       several lists, of which a key selects one (CLINC)
    {"text": {"0": …, "1": …}, "label": {"0": …}}       columns by row number (pandas)
    {"text": [text, …], "label": [label, …]}            columns as lists of equal length
    {"columns": [name, …], "index": …, "data": [row, …]}    rows of values (pandas: orient="split")
A list or an object cannot be read in parts, so the size of the file is limited. Objects and lists record the line on
which they start, for error messages.
"""

from __future__ import annotations

import io
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from bertmill.errors import DataError, UsageError
from bertmill.rows.columns import TEXT_NAMES
from bertmill.text.files import Line
from bertmill.text.printable import listed

MAX_JSON_CHARACTERS = 1 << 28  # of a whole file
_WORD_NAMES = ("words", "tokens")  # keys of a single row that may be a list of strings


class JsonObject(dict[str, Any]):
    """A JSON object and the line on which it starts."""

    line: int


class JsonList(list[Any]):
    """A JSON list and the line on which it starts."""

    line: int


def line_of(value: Any, container: JsonObject | JsonList) -> int:
    """Return the line on which `value` starts. For strings and numbers, that of the container."""
    return value.line if isinstance(value, JsonObject | JsonList) else container.line


def type_of(value: Any) -> str:
    """Return the JSON name of a value's type, for messages."""
    names = {JsonObject: "object", JsonList: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def has_one_record_per_line(first: Sequence[str]) -> bool:
    """Whether a .json file has a JSON object on each line. `first` are its first two lines that are not empty."""
    return len(first) > 1 and isinstance(_parsed(first[0]), dict)


def begins_one_list(first: Sequence[str]) -> bool:
    """Whether a .jsonl file is one list. `first` are its first two lines that are not empty."""
    return bool(first) and first[0].lstrip().startswith("[") and (len(first) == 1 or _parsed(first[0]) is None)


def _parsed(line: str) -> Any:
    """The value on a line, None if it is not complete."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def parse_whole(lines: Iterable[Line], file: str) -> Any:
    """Return the content of a `.json` file, with JsonObject and JsonList as containers. Strings are not repaired."""
    text, line_ends, numbers = io.StringIO(), array("I"), array("I", [1])  # of all lines that are not blank
    for line in lines:
        if not line.text or line.text.isspace():
            continue
        numbers[-1] = line.number
        text.write(line.text + "\n")
        line_ends.append(text.tell())
        numbers.append(line.number + 1)
        if text.tell() > MAX_JSON_CHARACTERS:
            what = f"the file has more than {MAX_JSON_CHARACTERS:,} characters"
            raise DataError(what, where=file, remedy="convert it to .jsonl, which is read line by line")
    try:
        return _Decoder(line_ends, numbers).decode(text.getvalue())
    except json.JSONDecodeError as error:
        what = f"invalid JSON: {error.msg} (character {error.colno})" if line_ends else "the file is empty"
        remedy = "write one list of records, or one record per line"
        raise DataError(what, where=f"{file}:{numbers[error.lineno - 1]}", remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"invalid JSON: {error}", where=file) from None


def at_key(content: Any, file: str, key: str | None) -> Any:
    """Return the value of `key` in an object, or the whole content if `key` is None."""
    if key is None:
        return content
    if not isinstance(content, JsonObject):
        raise UsageError(f"the file is not an object with a key {key!r}", where=file, remedy="omit it")
    if key not in content:
        raise UsageError(f"the file has no key {key!r}", where=file, remedy=f"its keys are {listed(list(content))}")
    return content[key]


def listed_rows(content: Any, file: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each row in the content of a .json file. Raises DataError if there are none."""
    if isinstance(content, JsonObject):
        content = _split_table(content) or _rows_in(content, file)
    if not isinstance(content, JsonList):
        what = f"expected a list of records (found: {type_of(content)})"
        raise DataError(what, where=file, remedy="write a list, or one record per line")
    for number, item in enumerate(content, start=1):
        yield f"{file}:{line_of(item, content)}, record {number}", _record(item)


def _rows_in(content: JsonObject, file: str) -> JsonList:
    """The only list of rows in an object, or else its columns as rows, or the object as the only row."""
    if _are_columns(content) and not content.keys().isdisjoint((*TEXT_NAMES, *_WORD_NAMES)):
        return _transposed(content)  # lists of two choices or words only look like rows
    lists = {key: value for key, value in content.items() if _is_list_of_rows(value)}
    if len(lists) > 1:
        keys = listed([f"{key} ({len(rows):,})" for key, rows in lists.items()])
        remedy = f"name one of them, as in {file}#{next(iter(lists))}"
        raise UsageError(f"the file has several lists of rows: {keys}", where=file, remedy=remedy)
    return next(iter(lists.values())) if lists else _transposed(content)


def _is_list_of_rows(value: Any) -> bool:
    are_rows = isinstance(value, JsonList) and all(isinstance(item, JsonObject) or _is_pair(item) for item in value)
    return are_rows and bool(value)


def _is_pair(item: Any) -> bool:
    """Whether an item is `[text, label]`, as in CLINC."""
    return isinstance(item, JsonList) and len(item) == 2 and all(isinstance(part, str) for part in item)


def _record(item: Any) -> Any:
    return JsonObject(text=item[0], label=item[1]) if _is_pair(item) else item


def _split_table(content: JsonObject) -> JsonList | None:
    """The rows of a table that pandas wrote with orient="split"; None for any other object."""
    names, rows = content.get("columns"), content.get("data")
    if not content.keys() <= {"columns", "index", "data"} or not isinstance(names, JsonList):
        return None
    if not isinstance(rows, JsonList) or not all(isinstance(row, JsonList) and len(row) == len(names) for row in rows):
        return None
    return _listed([JsonObject(zip(map(str, names), row, strict=True)) for row in rows], rows)


def _transposed(content: JsonObject) -> JsonList:
    """The rows of an object: of columns by row number (pandas) or as lists, or else the object itself."""
    columns = list(content.values())
    names = columns[0].keys() if columns and isinstance(columns[0], JsonObject) else ()
    if names and all(isinstance(column, JsonObject) and column.keys() == names for column in columns):
        rows = [JsonObject((name, column[row]) for name, column in content.items()) for row in names]
    elif _are_columns(content):
        rows = [JsonObject(zip(content, values, strict=True)) for values in zip(*columns, strict=True)]
    else:
        rows = [content]
    return _listed(rows, content)


def _are_columns(content: JsonObject) -> bool:
    """Whether an object has lists of equal length, and is not a single row with a list of words."""
    columns = list(content.values())
    if not all(isinstance(column, JsonList) and column and len(column) == len(columns[0]) for column in columns):
        return False
    has_words = any(all(isinstance(word, str) for word in content.get(name, [0])) for name in _WORD_NAMES)
    return bool(columns) and not has_words


def _listed(rows: list[JsonObject], source: JsonObject | JsonList) -> JsonList:
    """The rows as a list that starts on the same line as their source, like each of them."""
    found = JsonList(rows)
    found.line = source.line
    for row in rows:
        row.line = source.line
    return found


class _Decoder(json.JSONDecoder):
    """The pure Python decoder of the standard library, extended to record where objects and lists start."""

    def __init__(self, line_ends: array[int], numbers: array[int]) -> None:
        super().__init__()
        self._line_ends = line_ends
        self._numbers = numbers
        self.parse_object = partial(self._with_line, JSONObject, JsonObject)
        self.parse_array = partial(self._with_line, JSONArray, JsonList)
        self.scan_once = py_make_scanner(self)

    def _with_line(self, parse: Any, kind: Any, text_and_place: tuple[str, int], *others: Any) -> tuple[Any, int]:
        members, end = parse(text_and_place, *others)
        found = kind(members)
        # The place is after the bracket.
        found.line = self._numbers[bisect_left(self._line_ends, text_and_place[1])]
        return found, end
