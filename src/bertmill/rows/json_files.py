"""JSON files read as a whole; objects and lists record the line on which they start, for error messages.

A JSON file cannot be read in parts, so its size is limited.
"""

from __future__ import annotations

import io
import json
from array import array
from bisect import bisect_left
from functools import partial
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from bertmill.errors import DataError
from bertmill.text.files import read_file
from bertmill.text.repair import Repairs

_MAX_CHARACTERS = 1 << 28


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


def read_whole_json(file: str, repairs: Repairs) -> Any:
    """Return the content of a `.json` file, with JsonObject and JsonList as containers. Strings are not repaired."""
    text, line_ends, numbers = io.StringIO(), array("I"), array("I", [1])  # of all lines that are not blank
    for line in read_file(file, repairs=repairs, max_line_characters=_MAX_CHARACTERS):
        if not line.text or line.text.isspace():
            continue
        numbers[-1] = line.number
        text.write(line.text + "\n")
        line_ends.append(text.tell())
        numbers.append(line.number + 1)
        if text.tell() > _MAX_CHARACTERS:
            what = f"the file has more than {_MAX_CHARACTERS:,} characters"
            raise DataError(what, where=file, remedy="convert it to .jsonl, which is read line by line")
    try:
        return _Decoder(line_ends, numbers).decode(text.getvalue())
    except json.JSONDecodeError as error:
        is_lines = error.msg == "Extra data"
        remedy = "rename it to .jsonl if every line is a record" if is_lines else "write the complete file again"
        what = f"invalid JSON: {error.msg} (character {error.colno})" if line_ends else "the file is empty"
        raise DataError(what, where=f"{file}:{numbers[error.lineno - 1]}", remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"invalid JSON: {error}", where=file) from None


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
