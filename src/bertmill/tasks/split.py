"""Rows → a part to train with and a part to measure on, the same ones whatever the order of the rows.

A row's place in the draw is a hash of the seed and its text, so it depends on no other row. Rows with the same text go
together: it does not stand on both sides. Of a pair the first text counts, which is what others are asked about (a
premise, a dialogue); of a question the passage. A text with more rows than are still wanted is passed over, unless it
brings their number nearer. Where labels are kept in proportion, the texts of each label (or of the same few labels,
where a text has been labelled in several ways) are drawn apart, and at least one of them stays in the training part.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from bertmill.errors import DataError
from bertmill.randomness import keyed_generator, keyed_seed
from bertmill.tasks.labelled import LabelledRow

_PURPOSE = "rows to measure on"


def split_rows(
    rows: Sequence[LabelledRow],
    share: float,
    seed: int,
    *,
    subject: Callable[[LabelledRow], str] = lambda row: row.texts[0],
    stratify: bool = True,
    file: str | None = None,
) -> tuple[list[LabelledRow], list[LabelledRow]]:
    """(training rows, about the `share` of the rows that is kept back), both in the order of `rows`.

    `stratify=False` draws whatever the labels are, for numbers and for several labels per text. `file` is for messages.
    """
    labels_of_text: dict[str, set[str]] = defaultdict(set)
    num_rows_of = Counter(map(subject, rows))
    for row in rows:
        labels_of_text[subject(row)].add(repr(row.label) if stratify else "")
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text, labels in labels_of_text.items():
        groups[tuple(sorted(labels))].append(text)

    kept_back: set[str] = set()
    start = float(keyed_generator(seed, _PURPOSE).random())
    num_before = 0
    for _, group in sorted(groups.items()):
        # Shares are counted through all groups, so that many small ones give their part too.
        num_after = num_before + sum(num_rows_of[text] for text in group)
        wanted = math.floor(share * num_after + start) - math.floor(share * num_before + start)
        num_before = num_after
        group.sort(key=lambda text: (keyed_seed(seed, _PURPOSE, text), text))
        kept_back.update(_drawn(group, wanted, num_rows_of)[: len(group) - 1])
    if not kept_back:
        counted = f"{len(rows):,} rows with {len(labels_of_text):,} different texts"
        raise DataError(
            f"{counted}: too few{' of one label' if stratify else ''} to keep {share:g} back",
            where=file,
            remedy="give more rows, or a file of its own",
        )
    train = [row for row in rows if subject(row) not in kept_back]
    return train, [row for row in rows if subject(row) in kept_back]


def _drawn(texts: Sequence[str], num_wanted: int, num_rows_of: Mapping[str, int]) -> list[str]:
    """The first of the texts that have as many rows together as are wanted, or nearly."""
    drawn: list[str] = []
    passed_over: list[str] = []
    for text in texts:
        fits = num_rows_of[text] <= num_wanted
        (drawn if fits else passed_over).append(text)
        num_wanted -= num_rows_of[text] * fits
    return drawn + [text for text in passed_over if num_rows_of[text] <= 2 * num_wanted][:1]
