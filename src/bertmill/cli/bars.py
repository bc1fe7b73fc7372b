"""A histogram of lengths as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 40


def histogram(counts: Sequence[int]) -> list[str]:
    """One line per power of two: lengths from 2^i to 2^(i+1) - 1, how many there are, and a bar."""
    labels = [f"{1 << i}" if i == 0 else f"{1 << i}–{(2 << i) - 1}" for i in range(len(counts))]
    width = max(map(len, labels), default=0)
    digits = max((len(f"{count:,}") for count in counts), default=0)
    most = max(counts, default=0)
    first = next((i for i, count in enumerate(counts) if count), 0)
    return [
        f"  {label:>{width}}  {count:>{digits},}  {'█' * -(-WIDTH * count // most)}".rstrip()
        for label, count in list(zip(labels, counts, strict=True))[first:]
    ]
