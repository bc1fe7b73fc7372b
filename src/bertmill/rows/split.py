"""Split rows into training and dev rows, independently of their order.

- Rows about the same subject (a text, a premise, a passage) stay together, so no subject is on both sides.
- Subjects are drawn in the order of a hash of the seed and their text, which does not depend on other rows.
- A subject with more rows than are still needed is skipped, unless it brings the dev fraction closer to the target.
- With strata, the subjects of each stratum are drawn separately, and at least one of them stays in the training rows. A
  subject with rows in several strata belongs to the group of subjects with the same set of strata.
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
    """What determines the side of a row: its subject, and its stratum if the split is stratified."""

    subject: str
    stratum: str = ""


def split_rows(
    rows: Sequence[RowT], share: float, seed: int, key: Callable[[RowT], SplitKey], *, where: str | None = None
) -> tuple[list[RowT], list[RowT]]:
    """Return the training rows and the dev rows (about the fraction `share` of all rows), both in the order of `rows`.

    Raises DataError if there are too few rows; its message names `where`.
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
        # The fraction is counted across all groups, so that many small groups contribute too.
        num_after = num_before + sum(num_rows_of[subject] for subject in group)
        num_needed = math.floor(share * num_after + start) - math.floor(share * num_before + start)
        num_before = num_after
        group.sort(key=lambda subject: (keyed_seed(seed, _PURPOSE, subject), subject))
        dev.update(_drawn(group, num_needed, num_rows_of)[: len(group) - 1])
    if not dev:
        if len(groups) > 1 and all(len(group) == 1 for group in groups.values()):
            what = "every label occurs with a single text, so no row can be held out"
            remedy = "check the label column (for numbers, use regress), or provide a dev file"
            raise DataError(what, where=where, remedy=remedy)
        available = f"{counted(len(rows), 'row')} with {counted(len(strata_of), 'different text')}"
        what = f"{available} are too few for a dev fraction of {share:g}"
        raise DataError(what, where=where, remedy="provide more rows, or a dev file")
    train = [row for row, each in zip(rows, keys, strict=True) if each.subject not in dev]
    return train, [row for row, each in zip(rows, keys, strict=True) if each.subject in dev]


def split_into_folds(
    rows: Sequence[RowT], num_folds: int, seed: int, key: Callable[[RowT], SplitKey]
) -> list[list[int]]:
    """Return the indices of the rows of each fold, in ascending order. Empty folds are omitted.

    The subjects of each stratum are dealt in turn to the fold that has the fewest rows of the stratum so far.
    """
    keys = [key(row) for row in rows]
    numbers_of: dict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(keys):
        numbers_of[each.subject].append(number)
    ordered = sorted(numbers_of, key=lambda subject: (keyed_seed(seed, _PURPOSE, subject), subject))
    folds: list[list[int]] = [[] for _ in range(num_folds)]
    num_rows: dict[tuple[int, str], int] = defaultdict(int)  # by fold and stratum
    for subject in ordered:
        numbers = numbers_of[subject]
        stratum = keys[numbers[0]].stratum
        fold = min(range(num_folds), key=lambda each: (num_rows[each, stratum], len(folds[each])))
        folds[fold] += numbers
        num_rows[fold, stratum] += len(numbers)
    return [sorted(fold) for fold in folds if fold]


def _drawn(subjects: Sequence[str], num_needed: int, num_rows_of: Mapping[str, int]) -> list[str]:
    """Return the first subjects whose rows add up to about `num_needed`."""
    drawn: list[str] = []
    skipped: list[str] = []
    for subject in subjects:
        fits = num_rows_of[subject] <= num_needed
        (drawn if fits else skipped).append(subject)
        num_needed -= num_rows_of[subject] * fits
    return drawn + [subject for subject in skipped if num_rows_of[subject] <= 2 * num_needed][:1]
