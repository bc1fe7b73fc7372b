"""Read and write `vocab.txt`, and reject vocabularies that would give wrong ids.

`vocab.txt` contains one piece per line; the line number, starting at 0, is the id.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bertmill.errors import BertmillError, IntegrityError, MissingError

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_MAX_BYTES = 256 << 20
_MAX_ID = 1 << 31


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read a `vocab.txt`: piece → id."""
    try:
        if path.exists() and not path.is_file():
            raise MissingError("is not a file", where=path)
        if path.stat().st_size > _MAX_BYTES:
            raise IntegrityError("is too large for a vocabulary", where=path)
        text = path.read_bytes().decode("utf-8")
    except BertmillError:
        raise
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=path) from None
    except UnicodeDecodeError as error:
        raise IntegrityError(f"is not UTF-8 text (byte {error.start})", where=path) from None
    if text.startswith("\ufeff"):
        raise IntegrityError("begins with a byte order mark", where=path, remedy="save it without one")
    # Only a line feed ends a line: U+2028 or U+0085 may be a piece.
    pieces = text.removesuffix("\n").split("\n") if text else []
    pieces = [piece.removesuffix("\r") for piece in pieces]
    _refuse_duplicates(pieces, path)
    return {piece: number for number, piece in enumerate(pieces)}


def check_vocabulary(vocabulary: dict[str, int], special_tokens: tuple[str, ...], where: str | Path) -> None:
    """Raise IntegrityError unless the vocabulary contains all special tokens and its ids are valid and distinct."""
    if not vocabulary:
        raise IntegrityError("the vocabulary is empty", where=where)
    missing = [token for token in special_tokens if token not in vocabulary]
    if missing == list(special_tokens):
        raise _not_a_vocabulary(where)
    if missing:
        what = f"lacks the special tokens {', '.join(missing)}"
        raise IntegrityError(what, where=where, remedy="a BERT vocabulary needs all of them")
    wrong = [piece for piece, number in vocabulary.items() if not isinstance(number, int) or not 0 <= number < _MAX_ID]
    if wrong:
        raise IntegrityError(f"the id of {wrong[0]!r} is not a number from 0 to {_MAX_ID - 1:,}", where=where)
    if len(set(vocabulary.values())) != len(vocabulary):
        raise IntegrityError("two pieces have the same id", where=where)


def vocabulary_text(vocabulary: dict[str, int]) -> str:
    """The content of `vocab.txt`; the ids must be 0, 1, 2, …"""
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise IntegrityError("the ids of the vocabulary have gaps, so it cannot be saved as vocab.txt")
    broken = [piece for piece in pieces if "\n" in piece or piece.endswith("\r")]
    if broken:
        raise IntegrityError(f"the piece {broken[0]!r} contains a line break, so it cannot be saved as vocab.txt")
    return "".join(f"{piece}\n" for piece in pieces)


def _refuse_duplicates(pieces: list[str], path: Path) -> None:
    repeated = [piece for piece, count in Counter(pieces).items() if count > 1]
    if repeated and not set(SPECIAL_TOKENS) & set(pieces):
        raise _not_a_vocabulary(path)
    if repeated:
        lines = [number for number, piece in enumerate(pieces, start=1) if piece == repeated[0]]
        what = f"{repeated[0]!r} occurs {len(lines)} times"
        raise IntegrityError(what, where=f"{path}:{lines[1]}", remedy="each piece must occur once")


def _not_a_vocabulary(where: str | Path) -> IntegrityError:
    """The error for a file without special tokens: most often a text instead of the vocabulary learned from it."""
    what = f"is not a vocabulary: it contains none of {', '.join(SPECIAL_TOKENS)}"
    return IntegrityError(what, where=where, remedy="pass a vocab.txt, or learn a vocabulary with `bertmill vocab`")
