"""Whole files of JSON, whose objects and lists know the line on which they begin, so that a bad one can be found.

JSON cannot be read in part, so these files are limited in size.
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
    """An object of a file."""

    line: int


class JsonList(list[Any]):
    """A list of a file."""

    line: int


def line_of(value: Any, container: JsonObject | JsonList) -> int:
    """Where `value` begins; of a string or number, where what it stands in begins."""
    return value.line if isinstance(value, JsonObject | JsonList) else container.line


def type_of(value: Any) -> str:
    """What kind of value it is, for messages."""
    names = {JsonObject: "object", JsonList: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def read_whole_json(file: str, repairs: Repairs) -> Any:
    """What a `.json` file holds, as JsonObject and JsonList; strings are not repaired yet."""
    lines: list[str] = []
    num_characters = 0
    for line in read_file(file, repairs=repairs):
        lines.append(line.text)
        num_characters += len(line.text)
        if num_characters > _MAX_CHARACTERS:
            what = f"has more than {_MAX_CHARACTERS:,} characters"
            raise DataError(what, where=file, remedy="write a .jsonl, which is read in parts")
    try:
        return _Decoder(lines).decode("\n".join(lines))
    except json.JSONDecodeError as error:
        remedy = "name it .jsonl if every line is a record" if error.msg == "Extra data" else "write it again, whole"
        what = f"is not JSON: {error.msg} (character {error.colno})" if any(lines) else "there is nothing in it"
        raise DataError(what, where=f"{file}:{error.lineno}", remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", where=file) from None


class _Decoder(json.JSONDecoder):
    """The decoder of Python's library, in the form written in Python, which sees where objects and lists begin."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._line_ends = list(accumulate(len(line) + 1 for line in lines))  # newlines included
        self.parse_object = partial(self._with_line, JSONObject, JsonObject)
        self.parse_array = partial(self._with_line, JSONArray, JsonList)
        self.scan_once = py_make_scanner(self)

    def _with_line(self, parse: Any, kind: Any, text_and_place: tuple[str, int], *others: Any) -> tuple[Any, int]:
        members, end = parse(text_and_place, *others)
        found = kind(members)
        found.line = 1 + bisect_left(self._line_ends, text_and_place[1])  # the place is behind the bracket
        return found, end
