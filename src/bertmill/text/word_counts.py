"""Count the words of any amount of text, in bounded memory and with any number of processes.

Worker processes count blocks of lines. Each block produces a run: a file sorted by word, with one row
`word TAB count TAB held-out count` per word. Runs are merged as they are read, many at a time, so memory holds one
block per process and one row per run.

Words are those of the tokenizer, except words over 100 characters, which it never matches. One line in a hundred,
chosen by a hash of its text, is held out. The rows do not depend on the order of the lines or on how they are split
into blocks.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from bertmill.parallel.pool import cut_into_units
from bertmill.text.bulk import ReadingProgress, map_with_wordpiece
from bertmill.text.files import read_lines
from bertmill.text.repair import Repairs
from bertmill.text.wordpiece import MAX_WORD_CHARACTERS, WordPiece

BLOCK_CHARACTERS = 1 << 22
MAX_OPEN_RUNS = 64
HELD_OUT_SHARE = 0.01
_HASH_KEY = b"bertmill held out"

Row = tuple[str, int, int]  # word, count, count in held-out lines


def count_words(
    files: Sequence[str],
    wordpiece: WordPiece,
    folder: Path,
    *,
    workers: int | None = None,
    text_field: str = "text",
    encoding: str | None = None,
    repairs: Repairs | None = None,
    on_progress: Callable[[int, int], object] = lambda _read, _text: None,
) -> Iterator[Row]:
    """Yield every word of the files with its counts, sorted by word. Runs are written to `folder`.

    `on_progress` is called for each counted block with the bytes read up to its end, and its bytes of text.
    """
    progress = ReadingProgress()
    lines = read_lines(files, text_field=text_field, encoding=encoding, repairs=repairs, on_bytes=progress.count)
    texts = (line.text for line in lines if line.text)
    units = cut_into_units(texts, BLOCK_CHARACTERS, lambda text: len(text) + 1)
    blocks = progress.track(enumerate(map("\n".join, units)))
    runs = []
    for run, text_bytes in map_with_wordpiece(partial(_count_text, folder), wordpiece, blocks, workers):
        runs.append(run)
        on_progress(progress.finish_unit(), text_bytes)
        if len(runs) == MAX_OPEN_RUNS:
            merged = _write_run(run.with_suffix(".merged"), _merge(runs))
            for path in runs:
                path.unlink()
            runs = [merged]
    yield from _merge(runs)


def is_held_out(line: str) -> bool:
    """Whether a line is held out, which depends only on its text."""
    digest = hashlib.blake2b(line.encode(), digest_size=8, key=_HASH_KEY).digest()
    return int.from_bytes(digest, "little") < HELD_OUT_SHARE * (1 << 64)


def _count_text(folder: Path, wordpiece: WordPiece, block: tuple[int, str]) -> tuple[Path, int]:
    """Count a block, given as (number, text); return its run and its bytes of text."""
    number, text = block
    held_out: list[str] = []
    others: list[str] = []
    for line in text.split("\n"):
        (held_out if is_held_out(line) else others).append(line)
    counts, held_out_counts = (_words(wordpiece, " ".join(part)) for part in (others, held_out))
    rows = ((word, counts[word], held_out_counts[word]) for word in sorted(counts.keys() | held_out_counts))
    return _write_run(folder / f"{number:06d}", rows), len(text.encode()) + 1


def _words(wordpiece: WordPiece, text: str) -> Counter[str]:
    """Count chunks first, then units, then words, so that each distinct chunk and unit is split only once."""
    units: Counter[str] = Counter()
    for chunk, count in Counter(wordpiece.simplified(text).split(" ")).items():
        if chunk.isascii() and chunk.isalnum():
            units[chunk] += count
        elif count == 1:
            units.update(wordpiece.units(chunk))
        else:
            for unit in wordpiece.units(chunk):
                units[unit] += count
    words: Counter[str] = Counter()
    for unit, count in units.items():
        for word in wordpiece.words(unit):
            if len(word) <= MAX_WORD_CHARACTERS:
                words[word] += count
    return words


def _merge(paths: Sequence[Path]) -> Iterator[Row]:
    for word, rows in groupby(heapq.merge(*map(_read_run, paths)), key=itemgetter(0)):
        count = held_out_count = 0
        for _, more, more_held_out in rows:
            count += more
            held_out_count += more_held_out
        yield word, count, held_out_count


def _read_run(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            word, count, held_out_count = line.split("\t")
            yield word, int(count), int(held_out_count)


def _write_run(path: Path, rows: Iterable[Row]) -> Path:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{word}\t{count}\t{held_out_count}\n" for word, count, held_out_count in rows)
    return path
