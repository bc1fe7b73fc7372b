"""Bulk tokenization of 20 MB of English Wikipedia against the `tokenizers` library, all cores for both tools.

Our time includes starting the worker processes and filling their caches in every round. `tokenizers` runs one thread
per core. Both tools get the same lines and the same vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.inputs import first_lines
from benchmarks.measure import Row, best_seconds
from bertmill.parallel.pool import cut_into_units
from bertmill.text.bulk import CHUNK_CHARACTERS, encode_texts, map_with_wordpiece
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.wordpiece import Pieces, WordPiece

NUM_BYTES = 20_000_000


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the throughput of both tools for ids only and with offsets."""
    import tokenizers

    lines = [line for line in first_lines(data / "text/enwiki.txt.xz", NUM_BYTES) if line]
    megabytes = sum(len(line.encode()) for line in lines) / 1e6
    vocabulary = data / "vocab/bert-base-uncased-vocab.txt"
    ours = BertTokenizer.from_pretrained(vocabulary).wordpiece
    theirs = tokenizers.BertWordPieceTokenizer(str(vocabulary), lowercase=True)._tokenizer
    theirs.encode_special_tokens = True
    seconds = best_seconds(
        {
            "ids": lambda: list(encode_texts(ours, lines)),
            "encode_batch_fast": partial(theirs.encode_batch_fast, lines, add_special_tokens=False),
            "pieces": lambda: list(_locate_texts(ours, lines)),
            "encode_batch": partial(theirs.encode_batch, lines, add_special_tokens=False),
        },
        rounds,
    )
    speed = {side: megabytes / value for side, value in seconds.items()}
    faster = max("encode_batch", "encode_batch_fast", key=speed.__getitem__)
    yield Row("tokenizer", "ids only", "MB/s", speed["ids"], speed[faster], f"tokenizers {faster}", 3)
    yield Row("tokenizer", "with offsets", "MB/s", speed["pieces"], speed["encode_batch"], "tokenizers encode_batch", 1)


def _locate_texts(wordpiece: WordPiece, texts: list[str]) -> Iterator[Pieces]:
    """Yield the pieces of each text with offsets and word numbers, computed on all cores."""
    chunks = cut_into_units(texts, CHUNK_CHARACTERS, len)
    for lengths, content in map_with_wordpiece(_locate_chunk, wordpiece, chunks, None):
        columns = np.frombuffer(content, np.uint32).reshape(4, -1)
        for length, end in zip(lengths, np.cumsum(lengths).tolist(), strict=True):
            yield Pieces(*(column[end - length : end] for column in columns))


def _locate_chunk(wordpiece: WordPiece, texts: list[str]) -> tuple[list[int], bytes]:
    pieces = [wordpiece.pieces(text, split_special=True) for text in texts]
    columns = zip(*pieces, strict=True)
    return [len(row.ids) for row in pieces], b"".join(array.tobytes() for column in columns for array in column)
