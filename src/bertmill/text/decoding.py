"""Pieces → readable text, as Hugging Face's decoder writes it."""

from __future__ import annotations

from collections.abc import Sequence

from bertmill.text.wordpiece import CONTINUATION

# In this order.
_CLEAN_UPS = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
]


def join_pieces(pieces: Sequence[str]) -> str:
    """Pieces as text: `##` glued on, spaces before punctuation and in contractions removed."""
    words = [pieces[0], *map(_with_space, pieces[1:])] if pieces else []
    return "".join(map(_clean_up, words))


def _with_space(piece: str) -> str:
    return piece.removeprefix(CONTINUATION) if piece.startswith(CONTINUATION) else " " + piece


def _clean_up(word: str) -> str:
    for old, new in _CLEAN_UPS:
        word = word.replace(old, new)
    return word
