"""What every file of labelled rows becomes, whatever its format: texts, choices and a label as it is written."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

FEW_LABELS = 20  # which a person reads one by one


@dataclass(frozen=True)
class LabelledRow:
    """One row of a data file, its columns by what they are for."""

    place: str  # file:line, for messages
    texts: tuple[str, ...]  # a text, or a pair of texts: a question and its passage
    # As written; several for several labels per text; one of `choices` where there are choices; None: not known.
    label: str | tuple[str, ...] | None = None
    choices: tuple[str, ...] = ()  # the possible continuations of the last text, where one of them is to be chosen
    # Characters of the last text: each word where the label is a tag for each, or each answer where it is answers.
    spans: tuple[tuple[int, int], ...] = ()
    # What finds the row again beside its answer: its own id, or its number in the file; None where there is no file.
    id: str | int | None = field(default=None, compare=False)


def as_number(label: str) -> float:
    """The number that a label is; NaN if it is none."""
    try:
        return math.nan if "_" in label else float(label)  # Python's own 1_000 is nobody's number
    except ValueError:
        return math.nan


def are_many_numbers(labels: Collection[str]) -> bool:
    """Whether labels are rather values than names: numbers, and more different ones than classes would be."""
    return len(labels) > FEW_LABELS and all(math.isfinite(as_number(label)) for label in labels)
