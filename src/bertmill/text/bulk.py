"""Encode many texts on all cores: an iterable of texts in, their pieces out, in the same order.

Texts go to worker processes in chunks. A chunk comes back as a few flat arrays, which are cheap to send, and is cut
into views, one per text. Special strings in the texts are treated as text.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bertmill.machine import available_cores
from bertmill.parallel.pool import map_in_processes
from bertmill.text.wordpiece import Pieces, WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_CHARACTERS = 1 << 18

Chunk = tuple[list[int], bytes]  # pieces of each text; the columns of all texts, one after the other
UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


def encode_texts(
    wordpiece: WordPiece, texts: Iterable[str], *, workers: int | None = None
) -> Iterator[NDArray[np.uint32]]:
    """The ids of each text. `workers` is the number of processes (default: one per core; 1: none but this one)."""
    for (ids,) in _columns(_encode_chunk, 1, wordpiece, texts, workers):
        yield ids


def locate_texts(wordpiece: WordPiece, texts: Iterable[str], *, workers: int | None = None) -> Iterator[Pieces]:
    """The pieces of each text with offsets and words."""
    for columns in _columns(_locate_chunk, 4, wordpiece, texts, workers):
        yield Pieces(*columns)


def _encode_chunk(wordpiece: WordPiece, texts: list[str]) -> Chunk:
    ids = [wordpiece.ids(text, split_special=True) for text in texts]
    return [len(row) for row in ids], b"".join(ids)


def _locate_chunk(wordpiece: WordPiece, texts: list[str]) -> Chunk:
    pieces = [wordpiece.pieces(text, split_special=True) for text in texts]
    columns = zip(*pieces, strict=True)
    return [len(row.ids) for row in pieces], b"".join(array.tobytes() for column in columns for array in column)


def _columns(
    function: Callable[[WordPiece, list[str]], Chunk],
    num_columns: int,
    wordpiece: WordPiece,
    texts: Iterable[str],
    workers: int | None,
) -> Iterator[tuple[NDArray[np.uint32], ...]]:
    """What `function` gives for chunks of `texts`, cut into the columns of each text."""
    import numpy as np

    for lengths, content in map_with_wordpiece(function, wordpiece, _chunks(texts), workers):
        ends = np.cumsum(lengths)
        columns = list(np.frombuffer(content, np.uint32).reshape(num_columns, -1))
        for length, end in zip(lengths, ends.tolist(), strict=True):
            yield tuple(column[end - length : end] for column in columns)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def map_with_wordpiece(
    function: Callable[[WordPiece, UnitT], ResultT],
    wordpiece: WordPiece,
    units: Iterable[UnitT],
    workers: int | None,
) -> Iterator[ResultT]:
    """Yield `function(wordpiece, unit)` for each unit, in order, from `workers` processes (1: from this one)."""
    num_workers = workers or available_cores()
    if num_workers == 1:
        yield from (function(wordpiece, unit) for unit in units)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # the vocabulary is too large for an argument
        json.dump(wordpiece.settings(), file)
        file.flush()
        yield from map_in_processes(function, units, num_workers, partial(_read_wordpiece, file.name))


def _read_wordpiece(path: str) -> WordPiece:
    return WordPiece(**json.loads(Path(path).read_bytes()))
