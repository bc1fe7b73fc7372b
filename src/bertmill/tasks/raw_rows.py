"""A row as its file has it, with nothing said yet about what a column means, and what a bad one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertmill.errors import DataError
from bertmill.text.repair import Repairs, replace_surrogates

IDS = ("id", "ID", "idx", "index", "guid")  # names of the column that says which row it is, the first one counts


class BadRowError(DataError):
    """Why a row cannot be used: a reason to count by, what is wrong with this row, and the remedy."""

    def __init__(self, reason: str, what: str, remedy: str | None = None, *, where: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


def unknown_label(what: str, label: str, known: Sequence[str], place: str) -> BadRowError:
    """The error for a label (a tag) that is none of the `known` ones."""
    shown = ", ".join(known[:10]) + " …" * (len(known) > 10)
    remedy = "correct it, or train with data that has it"
    return BadRowError(f"unknown {what}", f"the {what} {label!r} is not one of {shown}", remedy, where=place)


def require_printable(label: str) -> str:
    """The label, unless it has characters that nobody sees, such as U+200B: what looks alike would be two classes."""
    if not label.isprintable():
        what = f"has a label with characters that cannot be printed: {label!r}"
        raise BadRowError("label cannot be printed", what, "remove them")
    return label


def shortened(text: str, most: int = 100) -> str:
    """A text on one line, and not a long one, without anything that a terminal would obey."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= most else f"{shown[:most]}…"


class RawRow(NamedTuple):
    """The fields of one row, by name, or by number ("1", "2", …) in a table whose names are not known (yet)."""

    place: str  # file:line, of the first line where a row has several
    fields: Mapping[str, Any]
    is_numbered: bool = False
    problem: BadRowError | None = None  # the fields are of no use then


def repair_strings(value: Any, repairs: Repairs) -> Any:
    """A value out of JSON with every string repaired, also those in lists and objects; no character moves."""
    if isinstance(value, list):
        return [repair_strings(item, repairs) for item in value]
    if isinstance(value, dict):
        return {name: repair_strings(item, repairs) for name, item in value.items()}
    return replace_surrogates(value, repairs) if isinstance(value, str) else value
