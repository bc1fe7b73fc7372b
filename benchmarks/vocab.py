"""Learning a vocabulary from 20 MB of English Wikipedia against the trainer of the `tokenizers` library.

Both tools read the same uncompressed file and learn 30,522 uncased pieces on all cores. Quality is words per piece on
other articles. Memory is measured for Wikipedia and books together (126 MB): the peak of the parent plus, for each
worker, the peak of the largest worker, which is an upper bound.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path

from benchmarks.inputs import write_beginning
from benchmarks.measure import Row, best_seconds, high_water_kilobytes, reset_high_water
from bertmill.machine import available_cores
from bertmill.text.files import read_lines
from bertmill.text.learning import learn_vocabulary
from bertmill.text.tokenizer import BertTokenizer

NUM_BYTES = 20_000_000
SIZE = 30_522
ALLOWED_GIGABYTES = 2.0


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare speed and quality of both tools, then our peak memory with its limit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_beginning(data / "text/enwiki.txt.xz", folder / "text.txt", NUM_BYTES)
        numbers = count()
        seconds = best_seconds(
            {
                "ours": lambda: learn_vocabulary([str(text)], folder / f"ours-{next(numbers)}", size=SIZE),
                "theirs": lambda: learn_theirs(text, folder / "theirs.txt"),
            },
            rounds,
        )
        ours, theirs = (text.stat().st_size / 1e6 / seconds[side] for side in ("ours", "theirs"))
        yield Row("vocab", "20 MB", "MB/s", ours, theirs, "tokenizers trainer", 0.33)
        held_out = data / "text/enwiki-heldout.txt.xz"
        ours, theirs = (100 / pieces_per_word(folder / name, held_out) for name in ("ours-0", "theirs.txt"))
        yield Row("vocab", "held-out words in 100 pieces", "words", ours, theirs, "tokenizers trainer", 0.99)
        files = [str(data / "text" / name) for name in ("enwiki.txt.xz", "books.txt.xz")]
        # In a new process that is not a daemon, because daemons cannot start workers.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            gigabytes = pool.submit(_peak_gigabytes, files, folder / "peak").result()
        yield Row("vocab", "126 MB: peak memory", "1/GB", 1 / gigabytes, 1 / ALLOWED_GIGABYTES, "2 GB allowed", 1)


def learn_theirs(text: Path, vocabulary: Path, size: int = SIZE) -> None:
    """Learn a vocabulary from `text` with the `tokenizers` library and write it to the file `vocabulary`."""
    import tokenizers

    theirs = tokenizers.BertWordPieceTokenizer(lowercase=True)
    theirs.train([str(text)], vocab_size=size, show_progress=False)
    pieces = sorted(theirs.get_vocab().items(), key=lambda item: item[1])
    vocabulary.write_text("".join(f"{piece}\n" for piece, _ in pieces), encoding="utf-8", newline="\n")


def pieces_per_word(vocabulary: Path, text: Path) -> float:
    """Return the mean number of pieces per word of `text`; `vocabulary` is a folder or file."""
    wordpiece = BertTokenizer.from_pretrained(vocabulary).wordpiece
    num_pieces = num_words = 0
    for line in read_lines([str(text)]):
        if line.text:
            words = wordpiece.pieces(line.text, split_special=True).words
            num_pieces += len(words)
            num_words += int(words[-1]) + 1 if len(words) else 0
    return num_pieces / num_words


def _peak_gigabytes(files: list[str], out: Path) -> float:
    reset_high_water()
    workers = available_cores()
    learn_vocabulary(files, out, size=SIZE, workers=workers)
    of_worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return (high_water_kilobytes() + workers * of_worker) / (1 << 20)
