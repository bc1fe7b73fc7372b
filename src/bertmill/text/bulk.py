"""Encode many texts on all cores: an iterable of texts in, their pieces out, in the same order.

Worker processes encode the texts in chunks. The ids of a chunk come back as one flat array, which is cheap to send, and
are split into one view per text. Special strings in the texts are treated as ordinary text.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bertmill.machine import available_cores
from bertmill.parallel.pool import cut_into_units, map_in_processes
from bertmill.storage import disk_errors
from bertmill.text.wordpiece import WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_CHARACTERS = 1 << 18

UnitT = TypeVar("UnitT")
ResultT = TypeVar("ResultT")


def encode_texts(
    wordpiece: WordPiece, texts: Iterable[str], *, workers: int | None = None
) -> Iterator[NDArray[np.uint32]]:
    """Yield the ids of each text. `workers` is the number of processes (default: one per core; 1: this process)."""
    import numpy as np

    chunks = cut_into_units(texts, CHUNK_CHARACTERS, len)
    for lengths, content in map_with_wordpiece(_encode_chunk, wordpiece, chunks, workers):
        ids = np.frombuffer(content, np.uint32)
        yield from np.split(ids, np.cumsum(lengths)[:-1])


def _encode_chunk(wordpiece: WordPiece, texts: list[str]) -> tuple[list[int], bytes]:
    """The number of pieces in each text, and the ids of all texts, concatenated."""
    ids = [wordpiece.ids(text, split_special=True) for text in texts]
    return [len(row) for row in ids], b"".join(ids)


class ReadingProgress:
    """Tracks how many bytes had been read from the files at the end of each unit of work in flight."""

    def __init__(self) -> None:
        self._bytes_read = 0
        self._at_end: deque[int] = deque()

    def count(self, num_bytes: int) -> None:
        """Add bytes that were read from the files."""
        self._bytes_read += num_bytes

    def track(self, units: Iterable[UnitT]) -> Iterator[UnitT]:
        """Yield the units, recording the number of bytes read so far with each."""
        for unit in units:
            self._at_end.append(self._bytes_read)
            yield unit

    def finish_unit(self) -> int:
        """Mark the oldest unit as done; return the number of bytes that had been read at its end."""
        return self._at_end.popleft()


def map_with_wordpiece(
    function: Callable[[WordPiece, UnitT], ResultT], wordpiece: WordPiece, units: Iterable[UnitT], workers: int | None
) -> Iterator[ResultT]:
    """Yield `function(wordpiece, unit)` for each unit, in order, using `workers` processes (1: this process)."""
    num_workers = workers or available_cores()
    if num_workers == 1:
        yield from (function(wordpiece, unit) for unit in units)
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # too large for an initializer's argument
        with disk_errors(Path(file.name)):
            json.dump(wordpiece.settings(), file)
            file.flush()
        yield from map_in_processes(function, units, num_workers, partial(_read_wordpiece, file.name))


def _read_wordpiece(path: str) -> WordPiece:
    return WordPiece(**json.loads(Path(path).read_bytes()))
