"""What to know about labelled rows before anything is trained: how many, which labels, how long, what is in both parts.

A row's length is the pieces of its texts, and of its longest choice where there are choices, without special pieces.
Labels that are all numbers, and more than twenty different ones, are shown by their range, others by their counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bertmill.tasks.labelled import FEW_LABELS, LabelledRow, are_many_numbers, as_number
from bertmill.tasks.raw_rows import shortened

_NUM_EXAMPLES = 3
_QUANTILES = {"least": 0.0, "50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "most": 1.0}


@dataclass(frozen=True)
class PartLook:
    """One part, for training or for measuring."""

    num_rows: int
    labels: Counter[str]  # a row with several labels counts for each
    lengths: dict[str, int]  # by the names of the quantiles


@dataclass(frozen=True)
class FirstLook:
    """Both parts, what they share, and some rows to look at."""

    parts: dict[str, PartLook]  # train and dev
    num_shared: int  # dev rows whose texts, with their choices, stand in train as well
    examples: tuple[LabelledRow, ...]

    @classmethod
    def at(
        cls,
        train: Sequence[LabelledRow],
        dev: Sequence[LabelledRow],
        count_pieces: Callable[[str], int],
        labels_of: Callable[[LabelledRow], tuple[str, ...]],
    ) -> FirstLook:
        """Look at all rows, of which both parts have some.

        `count_pieces` tells the length of a text, `labels_of` what is counted as a row's labels.
        """
        known = {(row.texts, row.choices) for row in train}
        num_shared = sum((row.texts, row.choices) in known for row in dev)
        parts = {"train": train, "dev": dev}
        looks = {name: _look_at_part(rows, count_pieces, labels_of) for name, rows in parts.items()}
        return cls(looks, num_shared, _examples(train))

    def lines(self) -> list[str]:
        """The look in words."""
        lines = [
            f"{name}: {part.num_rows:,} rows; pieces: {_lengths_in_words(part)}" for name, part in self.parts.items()
        ]
        lines += self._label_lines()
        lines.append(f"rows of dev whose texts stand in train as well: {self.num_shared:,}")
        return lines + [line for row in self.examples for line in _example_lines(row)]

    def _label_lines(self) -> Iterator[str]:
        in_train, in_dev = (part.labels for part in self.parts.values())
        if are_many_numbers(in_train | in_dev):
            yield from (
                f"labels of {name}: {_range_in_words(part.labels)}" for name, part in self.parts.items() if part.labels
            )
            return
        labels = sorted(in_train | in_dev, key=lambda label: (-in_train[label], label))
        for label in labels[:FEW_LABELS]:
            counts = [f"{name} {_count_in_words(label, part)}" for name, part in self.parts.items()]
            yield f"label {shortened(label)}: {', '.join(counts)}"
        if len(labels) > FEW_LABELS:
            yield f"… and {len(labels) - FEW_LABELS:,} more"


def _look_at_part(
    rows: Sequence[LabelledRow],
    count_pieces: Callable[[str], int],
    labels_of: Callable[[LabelledRow], tuple[str, ...]],
) -> PartLook:
    lengths = sorted(sum(map(count_pieces, row.texts)) + max(map(count_pieces, row.choices), default=0) for row in rows)
    # The smallest length that this share of the rows does not exceed.
    quantiles = {name: lengths[max(0, math.ceil(share * len(rows)) - 1)] for name, share in _QUANTILES.items()}
    return PartLook(len(rows), Counter(label for row in rows for label in labels_of(row)), quantiles)


def _examples(rows: Sequence[LabelledRow]) -> tuple[LabelledRow, ...]:
    """From the beginning, the middle and the end, since files are often sorted by label."""
    places = {round(number * (len(rows) - 1) / (_NUM_EXAMPLES - 1)) for number in range(_NUM_EXAMPLES)}
    return tuple(rows[place] for place in sorted(places))


def _range_in_words(labels: Counter[str]) -> str:
    numbers = list(map(as_number, labels.elements()))
    mean = math.fsum(numbers) / len(numbers)
    return f"from {min(numbers):g} to {max(numbers):g}, {mean:.4g} on average"


def _count_in_words(label: str, part: PartLook) -> str:
    return f"{part.labels[label]:,} ({part.labels[label] / part.num_rows:.1%})"


def _lengths_in_words(part: PartLook) -> str:
    return ", ".join(f"{name} {length:,}" for name, length in part.lengths.items())


def _example_lines(row: LabelledRow) -> Iterator[str]:
    label = row.label if not isinstance(row.label, tuple) else ", ".join(row.label) or "none"
    yield row.place if label is None else f"{row.place}, label {shortened(label)}"
    yield from (f"    {shortened(text)}" for text in row.texts)
    yield from (f"    choice: {shortened(choice)}" for choice in row.choices)
