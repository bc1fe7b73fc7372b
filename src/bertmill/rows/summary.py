"""The data summary reported before training: rows, lengths, labels, dev rows that also occur in train, sample rows.

The length of a row is the number of pieces of its texts, without special pieces. Labels that are many different numbers
are summarized by their range, other labels by their counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from bertmill.rows.labels import FEW_LABELS, are_many_numbers, as_number
from bertmill.rows.row import Row
from bertmill.text.printable import counted, escaped, one_line

RowT = TypeVar("RowT", bound=Row)

_NUM_SAMPLES = 3
_QUANTILES = {"min": 0.0, "50%": 0.5, "90%": 0.9, "99%": 0.99, "max": 1.0}


def summarize(
    train: Sequence[RowT],
    dev: Sequence[RowT],
    count_pieces: Callable[[str], int],
    labels: Callable[[RowT], tuple[str, ...]],
) -> Iterator[str]:
    """Yield the summary of training rows and dev rows, if there are any. `labels` returns the labels of a row."""
    parts = {"train": train, "dev": dev} if dev else {"train": train}
    for name, rows in parts.items():
        lengths = quantiles([sum(map(count_pieces, row.all_texts)) for row in rows])
        listed = ", ".join(f"{quantile} {length:,}" for quantile, length in lengths.items())
        yield f"{name}: {counted(len(rows), 'row')}; pieces: {listed}"
    counts = {name: Counter(label for row in rows for label in labels(row)) for name, rows in parts.items()}
    yield from _label_lines(counts, {name: len(rows) for name, rows in parts.items()})
    in_train = {row.all_texts for row in train}
    if dev:
        num_shared = sum(row.all_texts in in_train for row in dev)
        yield f"{counted(num_shared, 'dev row')} also {'occurs' if num_shared == 1 else 'occur'} in train"
    else:
        num_repeated = len(train) - len(in_train)
        yield f"{counted(num_repeated, 'row')} {'repeats' if num_repeated == 1 else 'repeat'} the text of another row"
    # Samples come from the start, the middle and the end, because files are often sorted by label.
    for place in sorted({round(number * (len(train) - 1) / (_NUM_SAMPLES - 1)) for number in range(_NUM_SAMPLES)}):
        row = train[place]
        yield f"{escaped(row.place)}, label {one_line(', '.join(labels(row))) or 'none'}"
        yield from (f"    {one_line(text)}" for text in row.all_texts)


def quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Return quantiles of the lengths by name (`50%`): the smallest length that covers this fraction of the rows."""
    found = np.quantile(lengths, list(_QUANTILES.values()), method="inverted_cdf")
    return dict(zip(_QUANTILES, map(int, found), strict=True))


def _label_lines(counts: dict[str, Counter[str]], num_rows: dict[str, int]) -> Iterator[str]:
    """Yield the range of numeric labels in each set, or the counts of the most frequent training labels."""
    in_train, in_dev = counts["train"], counts.get("dev", Counter())
    if are_many_numbers(in_train | in_dev):
        for name, labels in counts.items():
            if numbers := list(map(as_number, labels.elements())):
                mean = math.fsum(numbers) / len(numbers)
                yield f"labels of {name}: from {min(numbers):g} to {max(numbers):g}, mean {mean:.4g}"
        return
    by_count = sorted(in_train | in_dev, key=lambda label: (-in_train[label], label))
    for label in by_count[:FEW_LABELS]:
        in_sets = (f"{name} {of[label]:,} ({of[label] / num_rows[name]:.1%})" for name, of in counts.items())
        yield f"label {one_line(label)}: {', '.join(in_sets)}"
    if len(by_count) > FEW_LABELS:
        yield f"… and {counted(len(by_count) - FEW_LABELS, 'more label')}"
