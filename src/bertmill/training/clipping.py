"""Clips JSON values to what a report shows, without importing torch."""

from __future__ import annotations

import math
from typing import Any

MAX_CHARACTERS = 2000  # per text
MAX_ITEMS = 2000  # per list, such as the words of a text
SIGNIFICANT_DIGITS = 7  # as precise as float32


def clipped(value: Any) -> Any:
    """The same JSON value with long texts cut off, floats rounded, and None for non-finite numbers."""
    match value:
        case str() if len(value) > MAX_CHARACTERS:
            return f"{value[:MAX_CHARACTERS]} … ({len(value):,} characters)"
        case float():
            return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
        case dict():
            return {clipped(name): clipped(each) for name, each in value.items()}
        case list() | tuple():
            return [clipped(each) for each in value[:MAX_ITEMS]]
    return value
