"""Text for a terminal: on one line, without control characters, and in the right number."""

from __future__ import annotations


def one_line(text: str, limit: int = 100) -> str:
    """`text` with spaces for characters that cannot be printed, cut to `limit` characters."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= limit else f"{printable[:limit]}…"


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
