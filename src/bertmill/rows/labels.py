"""Label values from files: text, numbers and missing values."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection
from typing import Any

from bertmill.rows.bad_rows import BadRowError
from bertmill.text.printable import one_line

_ADJACENT_STRINGS = re.compile(r"""['"]\s+['"]""")  # without a comma, as numpy prints lists
FEW_LABELS = 20  # up to this many are listed one by one


def as_number(label: str) -> float:
    """Parse `label` as a number; NaN if it is not one."""
    try:
        return math.nan if "_" in label else float(label)  # Python reads 1_000 as a number; data files do not
    except ValueError:
        return math.nan


def are_many_numbers(labels: Collection[str]) -> bool:
    """Whether labels look like values rather than classes: all are numbers, and there are many different ones."""
    return len(labels) > FEW_LABELS and all(math.isfinite(as_number(label)) for label in labels)


def require_printable(label: str) -> str:
    """Return `label`. Raises BadRowError for unprintable characters, which can make two classes look the same."""
    if not label.isprintable():
        raise BadRowError("unprintable label", f"the label {label!r} contains unprintable characters", "remove them")
    return label


def label_text(value: Any) -> str:
    """Return a single label as stripped text. Raises BadRowError if it is empty or not a string, number or boolean."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_empty(value):
        raise BadRowError("empty label", "the label is empty")
    if not isinstance(value, str | int | float):
        raise BadRowError("wrong type", f"the label must be a string or a number, not {type(value).__name__}")
    return require_printable(str(value).strip())


def is_empty(value: Any) -> bool:
    """Whether a value is missing: None, whitespace, or NaN (the missing value of tables)."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def printed_list(text: str) -> list[str | int]:
    """Parse a list that Python wrote as text, as in a .csv file of pandas. Raises BadRowError if it is not one."""
    try:
        found = None if _ADJACENT_STRINGS.search(text) else ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str | int) for each in found):
        what = f"the label {one_line(text, 40)!r} is not a list of strings or integers"
        raise BadRowError("malformed list", what, "separate the labels with |, or write a list such as ['a', 'b']")
    return found
