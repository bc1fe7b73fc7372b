"""Format text for a terminal: one line, no control characters, singular or plural."""

from __future__ import annotations


def one_line(text: str, limit: int = 100) -> str:
    """Replace unprintable characters with spaces, and cut the text to `limit` characters."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable if len(printable) <= limit else f"{printable[:limit]}…"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
