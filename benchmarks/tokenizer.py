"""Bulk tokenisation of 20 MB of English Wikipedia against the `tokenizers` library, all cores on both sides.

Every run of ours starts its worker processes and fills its caches anew: that time is in the figure. `tokenizers`
runs on as many threads as there are cores. Both get the same lines and the same vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.inputs import first_lines
from benchmarks.measure import Row, best_seconds
from bertmill.text.bulk import encode_texts, locate_texts
from bertmill.text.tokenizer import BertTokenizer

NUM_BYTES = 20_000_000


def measure(data: Path, rounds: int) -> Iterator[Row]:
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
            "pieces": lambda: list(locate_texts(ours, lines)),
            "encode_batch": partial(theirs.encode_batch, lines, add_special_tokens=False),
        },
        rounds,
    )
    speed = {side: megabytes / value for side, value in seconds.items()}
    faster = max("encode_batch", "encode_batch_fast", key=speed.__getitem__)
    yield Row("tokenizer", "ids only", "MB/s", speed["ids"], speed[faster], f"tokenizers {faster}", 3)
    yield Row("tokenizer", "with offsets", "MB/s", speed["pieces"], speed["encode_batch"], "tokenizers encode_batch", 1)
