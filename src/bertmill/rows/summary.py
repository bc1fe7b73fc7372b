"""The data summary, reported before training: rows, lengths, labels, dev rows that also occur in train, sample rows.

A row's length is the number of pieces of its texts, without special pieces. Labels that are many different numbers are
summarised by their range, others by their counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bertmill.rows.labels import FEW_LABELS, are_many_numbers, as_number
from bertmill.rows.row import Row
from bertmill.text.printable import one_line

RowT = TypeVar("RowT", bound=Row)

_NUM_SAMPLES = 3
_QUANTILES = {"min": 0.0, "50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "max": 1.0}


@dataclass(frozen=True)
class PartSummary:
    """The training rows or the dev rows."""

    num_rows: int
    labels: Counter[str]  # a row with several labels counts for each
    lengths: dict[str, int]  # by the names of the quantiles


@dataclass(frozen=True)
class DataSummary:
    """Both parts, what they share, and sample rows with their labels."""

    parts: dict[str, PartSummary]  # train and dev
    num_shared: int  # dev rows whose texts also occur in train
    samples: tuple[tuple[Row, tuple[str, ...]], ...]

    @classmethod
    def of(
        cls,
        train: Sequence[RowT],
        dev: Sequence[RowT],
        count_pieces: Callable[[str], int],
        labels: Callable[[RowT], tuple[str, ...]],
    ) -> DataSummary:
        """The summary of two non-empty parts; `labels` gives the labels that a row counts for."""
        in_train = {row.all_texts for row in train}
        parts = {"train": train, "dev": dev}
        # From the start, the middle and the end, since files are often sorted by label.
        places = sorted({round(number * (len(train) - 1) / (_NUM_SAMPLES - 1)) for number in range(_NUM_SAMPLES)})
        return cls(
            {name: _summarise(rows, count_pieces, labels) for name, rows in parts.items()},
            sum(row.all_texts in in_train for row in dev),
            tuple((train[place], labels(train[place])) for place in places),
        )

    def lines(self) -> list[str]:
        """The summary as lines of text."""
        lines = [
            f"{name}: {part.num_rows:,} rows; pieces: {_listed(part.lengths)}" for name, part in self.parts.items()
        ]
        lines += self._label_lines()
        lines.append(f"{self.num_shared:,} dev rows also occur in train")
        for row, labels in self.samples:
            lines.append(f"{row.place}, label {one_line(', '.join(labels)) or 'none'}")
            lines += (f"    {one_line(text)}" for text in row.all_texts)
        return lines

    def _label_lines(self) -> Iterator[str]:
        in_train, in_dev = (part.labels for part in self.parts.values())
        if are_many_numbers(in_train | in_dev):
            yield from (f"labels of {name}: {_range(part.labels)}" for name, part in self.parts.items() if part.labels)
            return
        labels = sorted(in_train | in_dev, key=lambda label: (-in_train[label], label))
        for label in labels[:FEW_LABELS]:
            counts = [
                f"{name} {part.labels[label]:,} ({part.labels[label] / part.num_rows:.1%})"
                for name, part in self.parts.items()
            ]
            yield f"label {one_line(label)}: {', '.join(counts)}"
        if len(labels) > FEW_LABELS:
            yield f"… and {len(labels) - FEW_LABELS:,} more labels"


def _summarise(
    rows: Sequence[RowT], count_pieces: Callable[[str], int], labels: Callable[[RowT], tuple[str, ...]]
) -> PartSummary:
    lengths = sorted(sum(map(count_pieces, row.all_texts)) for row in rows)
    # The smallest length that this share of the rows does not exceed.
    quantiles = {name: lengths[max(0, math.ceil(share * len(rows)) - 1)] for name, share in _QUANTILES.items()}
    return PartSummary(len(rows), Counter(label for row in rows for label in labels(row)), quantiles)


def _range(labels: Counter[str]) -> str:
    numbers = list(map(as_number, labels.elements()))
    mean = math.fsum(numbers) / len(numbers)
    return f"from {min(numbers):g} to {max(numbers):g}, mean {mean:.4g}"


def _listed(lengths: dict[str, int]) -> str:
    return ", ".join(f"{name} {length:,}" for name, length in lengths.items())
