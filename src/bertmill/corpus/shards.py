"""The corpus on disk: a few files per shard, memory-mapped, addressed as if they were one long row of pieces.

    shard-00000.pieces      the id of each piece: uint16, or uint32 if the vocabulary is larger than that
    shard-00000.words       one bit per piece, the lowest of a byte first: 1 if the piece begins a word
    shard-00000.sentences   uint32: where each sentence ends, in pieces from the beginning of the shard
    shard-00000.documents   uint32: where each document ends, in sentences from the beginning of the shard
All numbers are little-endian. A shard ends with a sentence. A document that is larger than a shard goes on in the
next one and its end stands where its last sentence is; only the last shard must end with a document.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import MANIFEST, read_json, verify_manifest

KINDS = ("pieces", "words", "sentences", "documents")
_BIT_ORDER: Final = "little"
_END: np.dtype[Any] = np.dtype("<u4")


@dataclass(frozen=True)
class Shard:
    """The arrays of one shard."""

    pieces: NDArray[Any]
    words: NDArray[np.uint8]
    sentence_ends: NDArray[np.uint32]
    document_ends: NDArray[np.uint32]

    @property
    def num_pieces(self) -> int:
        return len(self.pieces)

    def begins_word(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether each of the pieces from `start` to `stop` begins a word."""
        first_byte = start // 8
        bits = np.unpackbits(self.words[first_byte : -(-stop // 8)], bitorder=_BIT_ORDER)
        return bits[start - 8 * first_byte : stop - 8 * first_byte].astype(np.bool_)


def piece_type(vocabulary_size: int) -> np.dtype[Any]:
    """The numbers that pieces of a vocabulary are stored as."""
    return np.dtype("<u2") if vocabulary_size <= 1 << 16 else np.dtype("<u4")


def shard_file(number: int, kind: str) -> str:
    return f"shard-{number:05d}.{kind}"


def pack_words(begins_word: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The content of a `.words` file."""
    return np.packbits(begins_word, bitorder=_BIT_ORDER)


def open_shard(folder: Path, number: int, vocabulary_size: int) -> Shard:
    """The shard, mapped into memory; IntegrityError unless its files fit together."""
    number_types = (piece_type(vocabulary_size), np.dtype(np.uint8), _END, _END)
    paths = [folder / shard_file(number, kind) for kind in KINDS]
    shard = Shard(*map(_map, paths, number_types))
    _refuse_misfits(shard, paths[0], vocabulary_size)
    return shard


def _map(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    try:
        size = path.stat().st_size
        if size % kind.itemsize:
            raise IntegrityError("is cut short", where=path, remedy="build the corpus again")
        return np.memmap(path, kind, "r") if size else np.empty(0, kind)  # an empty file cannot be mapped
    except OSError as error:
        raise IntegrityError(f"cannot be read: {error.strerror}", where=path, remedy="build the corpus again") from None


def _refuse_misfits(shard: Shard, path: Path, vocabulary_size: int) -> None:
    """Whatever passes here can be read without an index out of range."""
    problem = None
    if shard.num_pieces and int(shard.pieces.max()) >= vocabulary_size:
        problem = f"holds the piece {int(shard.pieces.max())}, but the vocabulary has {vocabulary_size:,}"
    elif len(shard.words) != -(-shard.num_pieces // 8):
        problem = "has another number of pieces than the file of word beginnings"
    elif not _is_rising_to(shard.sentence_ends, shard.num_pieces):
        problem = "does not fit the file of sentence ends"
    elif len(shard.document_ends) and not _is_rising_to(shard.document_ends, len(shard.sentence_ends), at_most=True):
        problem = "does not fit the file of document ends"
    if problem:
        raise IntegrityError(problem, where=path, remedy="build the corpus again")


def _is_rising_to(ends: NDArray[np.uint32], last: int, *, at_most: bool = False) -> bool:
    if not len(ends):
        return last == 0
    is_rising = ends[0] > 0 and bool((ends[1:] > ends[:-1]).all())
    return is_rising and (int(ends[-1]) <= last if at_most else int(ends[-1]) == last)


class Corpus:
    """All shards of a corpus folder as one row of pieces, sentences and documents, numbered from 0."""

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        """Open `folder`; with `verify`, every file is compared with the hash taken when it was written."""
        if not (folder / MANIFEST).is_file():
            raise UsageError(
                "is not a corpus: it has no manifest", where=folder, remedy="make one with `bertmill corpus`"
            )
        self.folder = folder
        self.facts: dict[str, Any] = read_json(folder / MANIFEST).get("corpus", {})
        if "shards" not in self.facts:
            raise UsageError("is not a corpus", where=folder, remedy="make one with `bertmill corpus`")
        if verify:
            verify_manifest(folder)
        self.vocabulary_size: int = self.facts["vocabulary_size"]
        self.shards = [open_shard(folder, number, self.vocabulary_size) for number in range(self.facts["shards"])]
        self.piece_offsets = _offsets([shard.num_pieces for shard in self.shards])
        self.sentence_offsets = _offsets([len(shard.sentence_ends) for shard in self.shards])
        self.document_offsets = _offsets([len(shard.document_ends) for shard in self.shards])

    @property
    def num_pieces(self) -> int:
        return int(self.piece_offsets[-1])

    @property
    def num_sentences(self) -> int:
        return int(self.sentence_offsets[-1])

    @property
    def num_documents(self) -> int:
        return int(self.document_offsets[-1])

    @cached_property
    def identity(self) -> str:
        """A hash of the whole corpus: what a run remembers to know it again."""
        return str(self.facts["sha256"])

    def pieces(self, start: int, stop: int) -> NDArray[Any]:
        """The ids of the pieces from `start` to `stop`, which may lie in several shards."""
        return _joined([shard.pieces[first:last] for shard, first, last in self._parts(start, stop)])

    def begins_word(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Whether each of the pieces from `start` to `stop` begins a word."""
        return _joined([shard.begins_word(first, last) for shard, first, last in self._parts(start, stop)])

    def _parts(self, start: int, stop: int) -> list[tuple[Shard, int, int]]:
        """Where the pieces from `start` to `stop` lie: shard, first and last within it."""
        number = int(np.searchsorted(self.piece_offsets, start, side="right")) - 1
        parts = []
        while start < stop:
            begin, end = int(self.piece_offsets[number]), int(self.piece_offsets[number + 1])
            parts.append((self.shards[number], start - begin, min(stop, end) - begin))
            start, number = min(stop, end), number + 1
        return parts


def _offsets(lengths: list[int]) -> NDArray[np.int64]:
    """Where each of several rows begins when they are put one after the other, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
