"""Many texts at once, on all cores: an iterable of texts in, their pieces out, in the same order.

Texts are handed to worker processes in blocks; a block comes back as a few flat arrays, which costs next to
nothing to send, and is cut into views, one per text. Only a few blocks are on their way at a time, so memory
does not grow with the number of texts. Special strings in the texts are text.

Workers are forked, which takes no time, unless the process has threads or has loaded torch, which has some: then
they are started afresh, and a script that calls this needs the usual `if __name__ == "__main__":`.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bertmill.errors import ResourceError
from bertmill.machine import available_cores
from bertmill.text.wordpiece import Pieces, WordPiece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK_CHARACTERS = 1 << 18
BLOCKS_PER_WORKER = 3  # on their way at a time: one in work, one waiting, one coming back

Block = tuple[list[int], bytes]  # pieces of each text; the columns of all texts, one after the other
GivenT = TypeVar("GivenT")
ResultT = TypeVar("ResultT")


def encode_texts(
    wordpiece: WordPiece, texts: Iterable[str], *, workers: int | None = None
) -> Iterator[NDArray[np.uint32]]:
    """The ids of each text. `workers` is the number of processes (default: one per core; 1: none but this one)."""
    for (ids,) in _columns(_encode_block, 1, wordpiece, texts, workers):
        yield ids


def locate_texts(wordpiece: WordPiece, texts: Iterable[str], *, workers: int | None = None) -> Iterator[Pieces]:
    """The pieces of each text with offsets and words."""
    for columns in _columns(_locate_block, 4, wordpiece, texts, workers):
        yield Pieces(*columns)


def _encode_block(wordpiece: WordPiece, texts: list[str]) -> Block:
    ids = [wordpiece.ids(text, split_special=True) for text in texts]
    return [len(row) for row in ids], b"".join(ids)


def _locate_block(wordpiece: WordPiece, texts: list[str]) -> Block:
    pieces = [wordpiece.pieces(text, split_special=True) for text in texts]
    columns = zip(*pieces, strict=True)
    return [len(row.ids) for row in pieces], b"".join(array.tobytes() for column in columns for array in column)


def _columns(
    function: Callable[[WordPiece, list[str]], Block],
    num_columns: int,
    wordpiece: WordPiece,
    texts: Iterable[str],
    workers: int | None,
) -> Iterator[tuple[NDArray[np.uint32], ...]]:
    """What `function` gives for blocks of `texts`, cut into the columns of each text."""
    import numpy as np

    for lengths, content in process_blocks(function, wordpiece, _blocks(texts), workers):
        ends = np.cumsum(lengths)
        columns = list(np.frombuffer(content, np.uint32).reshape(num_columns, -1))
        for length, end in zip(lengths, ends.tolist(), strict=True):
            yield tuple(column[end - length : end] for column in columns)


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for text in texts:
        block.append(text)
        size += len(text)
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


def process_blocks(
    function: Callable[[WordPiece, GivenT], ResultT],
    wordpiece: WordPiece,
    blocks: Iterator[GivenT],
    workers: int | None,
) -> Iterator[ResultT]:
    """What `function` gives for each of `blocks`, in order, computed in `workers` processes (1: in this one)."""
    num_workers = workers or available_cores()
    if num_workers == 1:
        return (function(wordpiece, block) for block in blocks)
    return _in_processes(function, wordpiece, blocks, num_workers)


def _in_processes(
    function: Callable[[WordPiece, GivenT], ResultT],
    wordpiece: WordPiece,
    blocks: Iterator[GivenT],
    num_workers: int,
) -> Iterator[ResultT]:
    # The tokenizer goes through a file: an argument this large makes the start of a process hang if the process dies.
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wordpiece.settings(), file)
        file.flush()
        context = multiprocessing.get_context("fork" if _may_fork() else "spawn")
        with ProcessPoolExecutor(num_workers, context, initializer=_start_worker, initargs=(file.name,)) as pool:
            waiting: deque[Future[ResultT]] = deque()
            try:
                for block in blocks:
                    waiting.append(pool.submit(_work, function, block))
                    if len(waiting) >= BLOCKS_PER_WORKER * num_workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool:
                raise ResourceError(
                    "a worker process died",
                    remedy='call this under `if __name__ == "__main__":`, and try fewer workers if memory is short',
                ) from None
            finally:
                pool.shutdown(cancel_futures=True)


def _may_fork() -> bool:
    """A forked process has only one of its parent's threads, and waits forever for what another one held."""
    return sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules


_worker: dict[str, WordPiece] = {}  # of a worker process: its tokenizer


def _start_worker(path: str) -> None:
    gc.disable()  # nothing here makes cycles; looking for them takes a tenth of the time
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, which gets it too, ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked worker has its parent's handler
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker["wordpiece"] = WordPiece(**json.loads(Path(path).read_bytes()))


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(function: Callable[[WordPiece, GivenT], ResultT], block: GivenT) -> ResultT:
    return function(_worker["wordpiece"], block)
