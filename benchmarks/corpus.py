"""Building a corpus from English Wikipedia, against the `tokenizers` library on the same lines; and peak memory.

bertmill reads the file, splits sentences, encodes them, writes shards and computes statistics, and starts its worker
processes in every round. `tokenizers` runs `encode_batch` alone, on lines in memory. Memory is the peak of the largest
worker while the installed program runs, for 20 MB and for all of Wikipedia and books (126 MB).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.inputs import write_beginning
from benchmarks.measure import Row, best_seconds
from bertmill.corpus.build import build_corpus
from bertmill.text.tokenizer import BertTokenizer

NUM_BYTES = 20_000_000
LIMIT_GB = 1.0
_POLL_S = 0.02


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the throughput of both tools, then the peak memory of our workers with limits."""
    import tokenizers

    enwiki = data / "text/enwiki.txt.xz"
    vocabulary = data / "vocab/bert-base-uncased-vocab.txt"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_beginning(enwiki, folder / "text.txt", NUM_BYTES)
        lines = [line for line in text.read_text(encoding="utf-8").split("\n") if line]
        ours = BertTokenizer.from_pretrained(vocabulary)
        theirs = tokenizers.BertWordPieceTokenizer(str(vocabulary), lowercase=True)._tokenizer
        theirs.encode_special_tokens = True
        outs = (folder / f"corpus-{number}" for number in count())
        seconds = best_seconds(
            {
                "ours": lambda: build_corpus([str(text)], ours, next(outs)),
                "theirs": partial(theirs.encode_batch, lines, add_special_tokens=False),
            },
            rounds,
        )
        megabytes = text.stat().st_size / 1e6
        speed = {side: megabytes / value for side, value in seconds.items()}
        yield Row("corpus", "20 MB", "MB/s", speed["ours"], speed["theirs"], "tokenizers encode_batch", 1.5)
        small = _peak_gigabytes([text], vocabulary, next(outs))
        yield Row("corpus", "20 MB: largest worker", "1/GB", 1 / small, 1 / LIMIT_GB, "the limit of 1 GB", 1)
        large = _peak_gigabytes([enwiki, data / "text/books.txt.xz"], vocabulary, next(outs))
        yield Row("corpus", "126 MB: largest worker", "1/GB", 1 / large, 1 / small, "that of 20 MB", 0.9)


def _peak_gigabytes(files: Sequence[Path], vocabulary: Path, out: Path) -> float:
    """Return the peak memory of the largest worker of `bertmill corpus`; its parent only reads and decompresses."""
    words = [sys.executable, "-m", "bertmill", "corpus", *files, "--vocab", vocabulary, "--out", out, "--quiet"]
    peak = 0
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, start_new_session=True) as process:
        while process.poll() is None:
            peak = max([peak, *map(_peak_kilobytes, _workers_of(process.pid))])
            time.sleep(_POLL_S)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return peak / 1e6


def _workers_of(parent: int) -> list[Path]:
    """Return the /proc folders of all processes in the group of `parent` except `parent` itself."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # the process has just ended
            continue
        if int(fields[2]) == parent and status.parent.name != str(parent):
            found.append(status.parent)
    return found


def _peak_kilobytes(process: Path) -> int:
    try:
        status = (process / "status").read_text()
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) if "VmHWM:" in status else 0
