"""The text of a corpus in blocks, each of which becomes a shard: where documents end, and where blocks are cut.

A block is UTF-8 text of lines, none of them blank but those that end a document. It is cut where a document ends, or
inside one that is much larger than a block, at a line that certainly gives pieces: else the end of the document could
stand in a shard that has none of its sentences. Where a text is cut depends on the text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from bertmill.text.files import Line, is_jsonl

DocumentMode = Literal["blank-line", "file", "record"]
BLOCK_CHARACTERS = 1 << 20  # small enough that all workers of a small corpus have something to do


class Block(NamedTuple):
    """The text of one shard."""

    number: int
    text: bytes


def cut_blocks(lines: Iterable[Line], document: DocumentMode | None) -> Iterator[Block]:
    """The blocks of a text."""
    number = size = 0
    rows: list[str] = []
    for row in _rows(lines, document):
        if size >= BLOCK_CHARACTERS and (_ends_document(rows) or (size >= 2 * BLOCK_CHARACTERS and _gives_pieces(row))):
            yield Block(number, "".join(rows).encode())
            number += 1
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield Block(number, "".join(rows).encode())


def _ends_document(rows: Sequence[str]) -> bool:
    return rows[-1] == "\n"


def _gives_pieces(row: str) -> bool:
    """Letters and digits are never cleaned away: they are pieces, or unknown."""
    return any(map(str.isalnum, row))


def _rows(lines: Iterable[Line], document: DocumentMode | None) -> Iterator[str]:
    """Each line with a line feed; a line feed alone where a document ends, once."""
    is_open = False  # whether there is a row since the last document ended
    file, last_number, mode = "", 0, document
    for line in lines:
        is_new_file = line.file != file or line.number <= last_number
        if is_new_file:
            mode = document or ("record" if is_jsonl(line.file) else "blank-line")
        if is_open and (is_new_file or mode == "record"):
            yield "\n"
            is_open = False
        for text in line.text.split("\n") if "\n" in line.text else (line.text,):  # a record may have many lines
            if text and not text.isspace():
                yield text + "\n"
                is_open = True
            elif is_open and mode == "blank-line":
                yield "\n"
                is_open = False
        file, last_number, _ = line
    if is_open:
        yield "\n"
