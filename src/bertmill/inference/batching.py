"""Which examples go through the model together: those of similar length, as many as a budget of pieces holds.

Batches of similar lengths waste nothing on attention and keep memory bounded. A stream is sorted within a bounded
look-ahead only, so that it can be endless; results come back in the order in which the examples came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bertmill.machine import give_back_freed_memory
from bertmill.tasks.windows import PIECES_AT_ONCE

GivenT = TypeVar("GivenT")
ResultT = TypeVar("ResultT")

LOOK_AHEAD = 2048  # examples
LOOK_AHEAD_PIECES = 1 << 18  # which are fewer examples where they are long


def batches_by_length(sizes: Sequence[int], max_pieces: int = PIECES_AT_ONCE) -> list[list[int]]:
    """The numbers of all examples in batches, longest first; one that exceeds the budget alone is a batch alone."""
    batches: list[list[int]] = []
    room = 0
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if not batches or sizes[number] > room:
            batches.append([])
            room = max_pieces
        batches[-1].append(number)
        room -= sizes[number]
    return batches


def in_given_order(
    examples: Iterable[GivenT],
    size: Callable[[GivenT], int],
    run: Callable[[list[GivenT]], Sequence[ResultT]],
    look_ahead: int = LOOK_AHEAD,
) -> Iterator[ResultT]:
    """What `run` gives for batches of `examples`, one result each, in the order of the examples."""
    for block in _blocks(examples, size, look_ahead):
        results: list[ResultT | None] = [None] * len(block)
        for batch in batches_by_length([size(example) for example in block]):
            for number, result in zip(batch, run([block[number] for number in batch]), strict=True):
                results[number] = result
        give_back_freed_memory()  # else a long stream would grow, though nothing of it is kept
        yield from results  # type: ignore[misc]  # all are there


def _blocks(examples: Iterable[GivenT], size: Callable[[GivenT], int], look_ahead: int) -> Iterator[list[GivenT]]:
    """The examples, as many at once as the look-ahead allows in number and in pieces."""
    block: list[GivenT] = []
    num_pieces = 0
    for example in examples:
        block.append(example)
        num_pieces += size(example)
        if len(block) == look_ahead or num_pieces >= LOOK_AHEAD_PIECES:
            yield block
            block, num_pieces = [], 0
    if block:
        yield block
