"""Cut the text of a corpus into the texts of its shards, and find where documents end.

The text of a shard is UTF-8 lines; the only blank ones are those that end a document. It is cut at the end of a
document or, inside a document much larger than a shard, before a line that certainly gives pieces: otherwise the end
of the document could fall into a shard with none of its sentences. Where a text is cut depends on the text alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from bertmill.text.files import Line, is_jsonl

DocumentMode = Literal["blank-line", "file", "record"]
SHARD_CHARACTERS = 1 << 20  # small enough that all workers of a small corpus have something to do


class ShardText(NamedTuple):
    """The text of one shard."""

    number: int
    text: bytes


def cut_shard_texts(lines: Iterable[Line], document: DocumentMode | None) -> Iterator[ShardText]:
    """The texts of the shards, in order."""
    number = size = 0
    rows: list[str] = []
    for row in _rows(lines, document):
        if size >= SHARD_CHARACTERS and (rows[-1] == "\n" or (size >= 2 * SHARD_CHARACTERS and _gives_pieces(row))):
            yield ShardText(number, "".join(rows).encode())
            number += 1
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield ShardText(number, "".join(rows).encode())


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
