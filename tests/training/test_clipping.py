"""Tests for clipping what a report shows."""

from __future__ import annotations

import math

from bertmill.training.clipping import MAX_CHARACTERS, clipped


def test_clipping_bounds_texts_lists_and_numbers() -> None:
    value = {
        "text": "x" * 5000,
        "numbers": [1 / 3, math.nan, math.inf, 7, True, None],
        "short": "<b>",
        "long": [1] * 9999,
    }
    result = clipped(value)
    assert result["text"].startswith("x" * MAX_CHARACTERS + " … (5,000 characters)")
    assert result["numbers"] == [0.3333333, None, None, 7, True, None]
    assert result["short"] == "<b>"
    assert len(result["long"]) == 2000
