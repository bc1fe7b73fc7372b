"""Labels as files write them: as text, as numbers, or missing."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from bertmill.rows.bad_rows import BadRowError

FEW_LABELS = 20  # a person reads that many one by one


def as_number(label: str) -> float:
    """The number that `label` spells, or NaN."""
    try:
        return math.nan if "_" in label else float(label)  # Python reads 1_000 as a number; data files do not
    except ValueError:
        return math.nan


def are_many_numbers(labels: Collection[str]) -> bool:
    """Whether labels look like values rather than classes: all numbers, and many different ones."""
    return len(labels) > FEW_LABELS and all(math.isfinite(as_number(label)) for label in labels)


def require_printable(label: str) -> str:
    """`label` itself; BadRowError if it holds invisible characters, which would make two classes look alike."""
    if not label.isprintable():
        raise BadRowError("unprintable label", f"the label {label!r} has unprintable characters", "remove them")
    return label


def label_text(value: Any) -> str:
    """One label as text without blanks around it; BadRowError if there is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_empty(value):
        raise BadRowError("empty label", "the label is empty")
    if not isinstance(value, str | int | float):
        raise BadRowError("wrong type", f"the label should be a text or a number, not {type(value).__name__}")
    return require_printable(str(value).strip())


def is_empty(value: Any) -> bool:
    """Nothing, white space, or the NaN by which tables mark a missing value."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))
