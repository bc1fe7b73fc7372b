"""Cut the text of a corpus into the texts of its shards, and find where documents end.

The text of a shard consists of UTF-8 lines, and a blank line ends a document. Text is cut at the end of a document or,
inside a document much larger than a shard, before a line that is certain to yield pieces. Otherwise, the end of a
document could be in a shard without any of its sentences. Cuts depend only on the text. So that memory is bounded,
there must be such a line in every MAX_WITHOUT_PIECES characters of a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from bertmill.errors import DataError
from bertmill.text.files import Line, is_jsonl

DocumentMode = Literal["blank-line", "file", "record"]
SHARD_CHARACTERS = 1 << 20  # small enough to give work to all workers even for a small corpus
MAX_WITHOUT_PIECES = 1 << 22


class ShardText(NamedTuple):
    """The text of one shard."""

    number: int
    text: bytes


def cut_shard_texts(lines: Iterable[Line], document: DocumentMode | None) -> Iterator[ShardText]:
    """Yield the texts of the shards, in order."""
    number = size = 0
    text = bytearray()  # much smaller than a list of short rows
    for row in _rows(lines, document):
        is_whole = text.endswith(b"\n\n")
        if size >= SHARD_CHARACTERS and (is_whole or (size >= 2 * SHARD_CHARACTERS and _gives_pieces(row))):
            yield ShardText(number, bytes(text))
            number += 1
            text, size = bytearray(), 0
        text += row.encode()
        size += len(row)
    if text:
        yield ShardText(number, bytes(text))


def _gives_pieces(row: str) -> bool:
    """Whether a line is certain to yield pieces: letters and digits always do, even if only [UNK]."""
    return any(map(str.isalnum, row))


def _rows(lines: Iterable[Line], document: DocumentMode | None) -> Iterator[str]:
    """Yield each line with a line feed, and a single line feed at the end of each document."""
    is_open = False  # whether the current document has lines
    num_without_pieces = 0  # characters of the last lines of the current document
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
                num_without_pieces = 0 if _gives_pieces(text) or not is_open else num_without_pieces + len(text) + 1
                if num_without_pieces > MAX_WITHOUT_PIECES:
                    what = f"more than {MAX_WITHOUT_PIECES:,} characters of a document have no letter or digit"
                    raise DataError(what, where=line.place, remedy="remove these lines")
                yield text + "\n"
                is_open = True
            elif is_open and mode == "blank-line":
                yield "\n"
                is_open = False
        file, last_number, _ = line
    if is_open:
        yield "\n"
