"""Rows split into training and dev rows; the same split whatever the order of the rows.

Rows about the same subject (a text, a premise, a passage) stay together, so that no subject is on both sides. The place
of a subject in the draw is a hash of the seed and its text, so it does not depend on other rows. A subject with more
rows than are still needed is passed over, unless taking it brings the share nearer. With strata, the subjects of each
stratum (or of the same set of strata, if a subject has rows of several) are drawn separately, and at least one of them
stays in the training rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from bertmill.errors import DataError
from bertmill.randomness import keyed_generator, keyed_seed
from bertmill.text.printable import counted

RowT = TypeVar("RowT")

_PURPOSE = "rows to measure on"


class SplitKey(NamedTuple):
    """What decides the side of a row: its subject, and its stratum if the split is to be stratified."""

    subject: str
    stratum: str = ""


def split_rows(
    rows: Sequence[RowT], share: float, seed: int, key: Callable[[RowT], SplitKey], *, where: str | None = None
) -> tuple[list[RowT], list[RowT]]:
    """Training rows and about `share` of the rows as dev rows, both in the order of `rows`.

    DataError if there are too few rows; `where` is for its message.
    """
    keys = [key(row) for row in rows]
    num_rows_of = Counter(each.subject for each in keys)
    strata_of: dict[str, set[str]] = defaultdict(set)
    for each in keys:
        strata_of[each.subject].add(each.stratum)
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for subject, strata in strata_of.items():
        groups[tuple(sorted(strata))].append(subject)

    dev: set[str] = set()
    start = float(keyed_generator(seed, _PURPOSE).random())
    num_before = 0
    for _, group in sorted(groups.items()):
        # Shares are counted across all groups, so that many small ones contribute too.
        num_after = num_before + sum(num_rows_of[subject] for subject in group)
        num_needed = math.floor(share * num_after + start) - math.floor(share * num_before + start)
        num_before = num_after
        group.sort(key=lambda subject: (keyed_seed(seed, _PURPOSE, subject), subject))
        dev.update(_drawn(group, num_needed, num_rows_of)[: len(group) - 1])
    if not dev:
        available = f"{counted(len(rows), 'row')} with {counted(len(strata_of), 'different text')}"
        what = f"{available} are too few for a dev share of {share:g}"
        raise DataError(what, where=where, remedy="provide more rows, or a dev file")
    train = [row for row, each in zip(rows, keys, strict=True) if each.subject not in dev]
    return train, [row for row, each in zip(rows, keys, strict=True) if each.subject in dev]


def _drawn(subjects: Sequence[str], num_needed: int, num_rows_of: Mapping[str, int]) -> list[str]:
    """The first subjects whose rows add up to about `num_needed`."""
    drawn: list[str] = []
    passed_over: list[str] = []
    for subject in subjects:
        fits = num_rows_of[subject] <= num_needed
        (drawn if fits else passed_over).append(subject)
        num_needed -= num_rows_of[subject] * fits
    return drawn + [subject for subject in passed_over if num_rows_of[subject] <= 2 * num_needed][:1]
