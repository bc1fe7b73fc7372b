"""Format text for a terminal: one line, no control characters, singular or plural."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

# C0 and C1, marks that change the direction of text, line and paragraph separators, and lone surrogates, which stand
# for invalid bytes in file names.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str, limit: int = 100) -> str:
    """Replace unprintable characters with spaces, and cut the text to `limit` characters."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= limit else f"{printable[:limit]}…"


def escaped(text: str, *, keep: str = "") -> str:
    """Replace control characters, which a terminal may execute, with escapes such as \\x1b, except those in `keep`."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def json_line(value: Any) -> str:
    """One line of JSON: readable, and without control characters."""
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], json.dumps(value, ensure_ascii=False))


def listed(parts: Sequence[str], limit: int = 10) -> str:
    """The first parts, separated by commas: `a, b …`."""
    return ", ".join(parts[:limit]) + " …" * (len(parts) > limit)


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
