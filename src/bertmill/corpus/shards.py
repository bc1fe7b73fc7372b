"""The corpus on disk: a few files per shard, addressed as one long sequence of pieces.

    shard-00000.pieces      id of each piece: uint16, or uint32 if the vocabulary has more than 65,536 pieces
    shard-00000.words       one bit per piece, lowest bit of a byte first: 1 if the piece begins a word
    shard-00000.sentences   uint32: where each sentence ends, in pieces from the start of the shard
    shard-00000.documents   uint32: where each document ends, in sentences from the start of the shard
    vocabulary/             files of the tokenizer
    manifest.json           size and sha256 of every file; under "corpus", facts about the whole corpus
All numbers are little-endian. A shard ends with a sentence. A document larger than a shard continues in the next one,
and its end is in the shard with its last sentence. Only the last shard must end with a document.

Pieces and words are read from disk where they are needed. Ends, of which there are few, are in memory for the shards
that are open.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.facts import read_facts
from bertmill.corpus.number_file import NumberFile
from bertmill.errors import IntegrityError
from bertmill.storage import manifest_entries, verify_manifest
from bertmill.text.wordpiece import WordPiece

VOCABULARY_FOLDER = "vocabulary"
MAX_OPEN_SHARDS = 128  # two open files each
KINDS = ("pieces", "words", "sentences", "documents")
_BIT_ORDER: Final = "little"
_BYTE: np.dtype[Any] = np.dtype(np.uint8)
_END: np.dtype[Any] = np.dtype("<u4")
_REMEDY = "build the corpus again"


@dataclass(frozen=True)
class Shard:
    """The columns of one shard. Slices of `pieces` and `words` are arrays; those of a shard on disk are read."""

    pieces: NDArray[Any] | NumberFile
    words: NDArray[np.uint8] | NumberFile
    sentence_ends: NDArray[np.uint32]
    document_ends: NDArray[np.uint32]

    @property
    def num_pieces(self) -> int:
        """Number of pieces in the shard."""
        return len(self.pieces)

    def begins_word(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether each of the pieces from `start` to `stop` begins a word."""
        first_byte = start // 8
        bits = np.unpackbits(self.words[first_byte : -(-stop // 8)], bitorder=_BIT_ORDER)
        return bits[start - 8 * first_byte : stop - 8 * first_byte].astype(np.bool_)


def piece_type(vocabulary_size: int) -> np.dtype[Any]:
    """Return the number type of stored pieces."""
    return np.dtype("<u2") if vocabulary_size <= 1 << 16 else np.dtype("<u4")


def shard_file(number: int, kind: str) -> str:
    """Return the name of a file of a shard; `kind` is one of KINDS, or json."""
    return f"shard-{number:05d}.{kind}"


def pack_words(begins_word: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the content of a `.words` file."""
    return np.packbits(begins_word, bitorder=_BIT_ORDER)


def open_shard(folder: Path, number: int, vocabulary_size: int) -> Shard:
    """Open a shard; raise IntegrityError if its files are inconsistent."""
    shard = _open(folder, number, vocabulary_size)
    _refuse_misfits(shard, folder / shard_file(number, "pieces"), vocabulary_size)
    return shard


def _open(folder: Path, number: int, vocabulary_size: int, entries: Mapping[str, Any] | None = None) -> Shard:
    """Open a shard; raise IntegrityError if a file does not have the size in its entry of the manifest."""
    files = []
    for kind, number_type in zip(KINDS, (piece_type(vocabulary_size), _BYTE, _END, _END), strict=True):
        name = shard_file(number, kind)
        file = NumberFile(folder / name, number_type, remedy=_REMEDY)
        expected = file.num_bytes if entries is None else entries.get(name, {}).get("bytes")
        if file.num_bytes != expected:
            what = f"has {file.num_bytes:,} bytes, not {expected}"
            raise IntegrityError(what, where=folder / name, remedy=_REMEDY)
        files.append(file)
    pieces, words, sentence_ends, document_ends = files
    return Shard(pieces, words, sentence_ends[:], document_ends[:])


def _refuse_misfits(shard: Shard, path: Path, vocabulary_size: int) -> None:
    """Raise IntegrityError unless the shard can be read without an index out of range."""
    problem = None
    largest = int(shard.pieces[:].max(initial=0))
    if largest >= vocabulary_size:
        problem = f"holds the piece {largest}, but the vocabulary has {vocabulary_size:,} pieces"
    elif len(shard.words) != -(-shard.num_pieces // 8):
        problem = "does not have the same number of pieces as the .words file"
    elif not _is_rising_to(shard.sentence_ends, shard.num_pieces):
        problem = "does not match the .sentences file"
    elif len(shard.document_ends) and not _is_rising_to(shard.document_ends, len(shard.sentence_ends), at_most=True):
        problem = "does not match the .documents file"
    if problem:
        raise IntegrityError(problem, where=path, remedy=_REMEDY)


def _is_rising_to(ends: NDArray[np.uint32], last: int, *, at_most: bool = False) -> bool:
    if not len(ends):
        return last == 0
    is_rising = ends[0] > 0 and bool((ends[1:] > ends[:-1]).all())
    return is_rising and (int(ends[-1]) <= last if at_most else int(ends[-1]) == last)


class Shards:
    """The shards of a corpus by number. Only some stay open."""

    def __init__(self, folder: Path, num_shards: int, vocabulary_size: int) -> None:
        self._num_shards = num_shards
        entries = manifest_entries(folder)
        self._open = lru_cache(MAX_OPEN_SHARDS)(lambda number: _open(folder, number, vocabulary_size, entries))

    def __len__(self) -> int:
        return self._num_shards

    def __getitem__(self, number: int) -> Shard:
        return self._open(range(self._num_shards)[number])

    def __iter__(self) -> Iterator[Shard]:
        return map(self._open, range(self._num_shards))


class Corpus:
    """All shards of a corpus folder as one sequence of pieces, sentences and documents, numbered from 0."""

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        """Open `folder`. With `verify`, compare every file with the hash in the manifest.

        `verify=False` is for a process whose parent has verified the folder.
        """
        self.folder = folder
        self.facts = read_facts(folder)
        self.vocabulary_size: int = self.facts["vocabulary_size"]
        if verify:
            verify_manifest(folder)
            for number in range(self.facts["shards"]):
                open_shard(folder, number, self.vocabulary_size)
        self.shards = Shards(folder, self.facts["shards"], self.vocabulary_size)
        counts = [(s.num_pieces, len(s.sentence_ends), len(s.document_ends)) for s in self.shards]
        self.piece_offsets, self.sentence_offsets, self.document_offsets = map(_offsets, zip(*counts, strict=True))
        self._refuse_open_end()

    def _refuse_open_end(self) -> None:
        last = next((shard for shard in reversed(self.shards) if len(shard.sentence_ends)), None)
        if last is None or not len(last.document_ends) or last.document_ends[-1] != len(last.sentence_ends):
            raise IntegrityError("the last document has no end", where=self.folder, remedy=_REMEDY)

    @property
    def num_pieces(self) -> int:
        """Number of pieces in the corpus."""
        return int(self.piece_offsets[-1])

    @property
    def num_sentences(self) -> int:
        """Number of sentences in the corpus."""
        return int(self.sentence_offsets[-1])

    @property
    def num_documents(self) -> int:
        """Number of documents in the corpus."""
        return int(self.document_offsets[-1])

    @property
    def identity(self) -> str:
        """Hash of the whole corpus, by which a run recognizes it."""
        return str(self.facts["sha256"])

    @property
    def vocabulary_folder(self) -> Path:
        """Folder of the tokenizer that the corpus was built with, for `BertTokenizer.from_pretrained`."""
        return self.folder / VOCABULARY_FOLDER

    def require_vocabulary(self, wordpiece: WordPiece, where: str | Path) -> None:
        """Raise IntegrityError unless the tokenizer from `where` is the one that the corpus was built with."""
        ours, theirs = self.facts["vocabulary_sha256"], vocabulary_sha256(wordpiece)
        if ours != theirs:
            what = f"is not the vocabulary of the corpus {self.folder}: its sha256 is {theirs}, not {ours}"
            raise IntegrityError(what, where=where, remedy=f"{_REMEDY} with this vocabulary")

    def pieces(self, start: int, stop: int) -> NDArray[Any]:
        """Return the ids of the pieces from `start` to `stop`, which may be in several shards."""
        parts = [shard.pieces[first:last] for shard, first, last in self._parts(start, stop)]
        return _joined(parts, piece_type(self.vocabulary_size))

    def begins_word(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return whether each of the pieces from `start` to `stop` begins a word."""
        parts = [shard.begins_word(first, last) for shard, first, last in self._parts(start, stop)]
        return _joined(parts, np.dtype(np.bool_))

    def _parts(self, start: int, stop: int) -> list[tuple[Shard, int, int]]:
        """Locate the pieces from `start` to `stop`: each shard, with the first and last index in it."""
        number = int(np.searchsorted(self.piece_offsets, start, side="right")) - 1
        parts = []
        while start < stop:
            begin, end = int(self.piece_offsets[number]), int(self.piece_offsets[number + 1])
            parts.append((self.shards[number], start - begin, min(stop, end) - begin))
            start, number = min(stop, end), number + 1
        return parts


def vocabulary_sha256(wordpiece: WordPiece) -> str:
    """Hash everything that determines how text is tokenized, except special tokens, which are text in a corpus."""
    settings = {name: value for name, value in wordpiece.settings().items() if name != "special_tokens"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _offsets(lengths: Sequence[int]) -> NDArray[np.int64]:
    """Return where each of several concatenated rows begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])


def _joined(parts: list[NDArray[Any]], kind: np.dtype[Any]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, kind), *parts])
