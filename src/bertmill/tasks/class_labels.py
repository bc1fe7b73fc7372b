"""The labels of classify as files have them: one or several, their counts, and their weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.labels import as_number, is_empty, label_text, printed_list
from bertmill.text.printable import listed

LABEL_SEPARATORS = "|;,"  # the first one that occurs in the labels of a file separates them

Label = str | tuple[str, ...]  # unparsed: one string, or a list of labels


def parse_label(value: Any, multi_label: bool) -> Label:
    """Convert a label from a file: numbers and booleans to text, a list to several labels."""
    if multi_label and isinstance(value, str) and value.strip()[:1] == "[" and value.strip()[-1:] == "]":
        value = printed_list(value.strip())
    if isinstance(value, list):
        return tuple(map(label_text, value))
    if not is_empty(value):
        return label_text(value)
    if not multi_label:
        remedy = "correct it, or set `multi_label=True` if a row may have any number of labels"
        raise BadRowError("empty label", "the label is empty", remedy)
    return ()


def label_separator(labels: Iterable[Iterable[str]]) -> str:
    """Return the character that separates several labels in one field: the first of LABEL_SEPARATORS that occurs."""
    characters = set(chain.from_iterable(labels))
    return next((each for each in LABEL_SEPARATORS if each in characters), LABEL_SEPARATORS[0])


def split_label(label: Label, separator: str | None) -> tuple[str, ...]:
    """Split a label at the separator, if there is one."""
    if isinstance(label, tuple):
        return label
    if separator is None:
        return (label,)
    return tuple(part.strip() for part in label.split(separator) if part.strip())


def count_labels(labels: Iterable[Label | None], multi_label: bool, where: str) -> Counter[str]:
    """Count each label, in the order of the model's outputs: numbers by value, then other labels by name.

    Raises DataError if there are fewer than two different labels.
    """
    known = [label for label in labels if label is not None]
    separator = label_separator(label for label in known if isinstance(label, str)) if multi_label else None
    counts: Counter[str] = Counter()
    for label in known:
        given = split_label(label, separator)
        if multi_label or len(given) == 1:  # other rows are bad rows, which `encode` reports
            counts.update(given)
    if len(counts) < 2:
        what = f"all rows have the same label {next(iter(counts))!r}" if counts else "no row has a label"
        remedy = "classify needs at least two different labels; set `multi_label=True` if labels are lists"
        raise DataError(what, where=where, remedy=remedy)
    return Counter({label: counts[label] for label in sorted(counts, key=_by_value)})


def _by_value(label: str) -> tuple[bool, float, str]:
    number = as_number(label)
    return (False, number, label) if math.isfinite(number) else (True, 0.0, label)


def parse_class_weights(text: str, counts: Counter[str]) -> tuple[float, ...]:
    """Parse `balanced` (inverse frequency) or `ham=1,spam=5`. Labels that are not named have the weight 1."""
    if text == "balanced":
        mean = sum(counts.values()) / len(counts)
        return tuple(mean / count for count in counts.values())
    weights: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = (word.strip() for word in part.rpartition("="))
        if "=" not in part or not 0 < as_number(weight) < math.inf:
            what = f"`class_weights`: expected LABEL=NUMBER with a positive number, got {part!r}"
            raise UsageError(what, remedy="correct it, or use balanced")
        if label not in counts or label in weights:
            remedy = f"the labels are {listed(list(counts))}"
            raise UsageError(f"`class_weights`: {part!r} names an unknown or repeated label", remedy=remedy)
        weights[label] = as_number(weight)
    return tuple(weights.get(label, 1.0) for label in counts)
