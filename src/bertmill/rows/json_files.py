"""JSON files read as a whole; objects and lists record the line on which they start, for error messages.

A JSON file cannot be read in parts, so its size is limited.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import partial
from itertools import accumulate
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
    lines: list[str] = []
    num_characters = 0
    for line in read_file(file, repairs=repairs):
        lines.append(line.text)
        num_characters += len(line.text)
        if num_characters > _MAX_CHARACTERS:
            what = f"the file has more than {_MAX_CHARACTERS:,} characters"
            raise DataError(what, where=file, remedy="convert it to .jsonl, which is read line by line")
    try:
        return _Decoder(lines).decode("\n".join(lines))
    except json.JSONDecodeError as error:
        is_lines = error.msg == "Extra data"
        remedy = "rename it to .jsonl if every line is a record" if is_lines else "write the complete file again"
        what = f"invalid JSON: {error.msg} (character {error.colno})" if any(lines) else "the file is empty"
        raise DataError(what, where=f"{file}:{error.lineno}", remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"invalid JSON: {error}", where=file) from None


class _Decoder(json.JSONDecoder):
    """The pure Python decoder of the standard library, extended to record where objects and lists start."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._line_ends = list(accumulate(len(line) + 1 for line in lines))  # newlines included
        self.parse_object = partial(self._with_line, JSONObject, JsonObject)
        self.parse_array = partial(self._with_line, JSONArray, JsonList)
        self.scan_once = py_make_scanner(self)

    def _with_line(self, parse: Any, kind: Any, text_and_place: tuple[str, int], *others: Any) -> tuple[Any, int]:
        members, end = parse(text_and_place, *others)
        found = kind(members)
        found.line = 1 + bisect_left(self._line_ends, text_and_place[1])  # the place is after the bracket
        return found, end
