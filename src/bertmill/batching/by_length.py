"""Batches of similar length under a budget of pieces; results are in the order of the inputs.

Batches of similar length waste no work in attention and bound memory. A stream is sorted only within a bounded
look-ahead, so it may be endless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from bertmill.machine import give_back_freed_memory

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

PIECES_PER_BATCH = 1024  # without gradients; larger batches need more memory and save no time
LOOK_AHEAD = 2048  # inputs
LOOK_AHEAD_PIECES = 1 << 18  # limits the look-ahead if inputs are long


def batches_by_length(sizes: Sequence[int], max_pieces: int = PIECES_PER_BATCH) -> list[list[int]]:
    """Return the indices of all inputs grouped into batches, longest first."""
    by_length = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    return list(split_into_batches(by_length, sizes.__getitem__, max_pieces))


def split_into_batches(
    inputs: Iterable[InputT], size: Callable[[InputT], int], max_pieces: int = PIECES_PER_BATCH
) -> Iterator[list[InputT]]:
    """Yield the inputs in order, in batches of at most `max_pieces`. A larger input gets its own batch."""
    batch: list[InputT] = []
    room = max_pieces
    for each in inputs:
        if batch and size(each) > room:
            yield batch
            batch, room = [], max_pieces
        batch.append(each)
        room -= size(each)
    if batch:
        yield batch


def run_batched(
    inputs: Sequence[InputT], size: Callable[[InputT], int], run: Callable[[list[InputT]], Sequence[ResultT]]
) -> list[ResultT]:
    """Return one result per input, in order. `run` gets batches of similar length. Thread-safe if `run` is."""
    results: list[ResultT | None] = [None] * len(inputs)
    for batch in batches_by_length([size(each) for each in inputs]):
        for number, result in zip(batch, run([inputs[number] for number in batch]), strict=True):
            results[number] = result
    return cast(list[ResultT], results)


def stream_batched(
    inputs: Iterable[InputT],
    size: Callable[[InputT], int],
    run: Callable[[list[InputT]], Sequence[ResultT]],
    look_ahead: int = LOOK_AHEAD,
) -> Iterator[ResultT]:
    """Like `run_batched`, but for a stream of any length."""
    for chunk in _chunks(inputs, size, look_ahead):
        yield from run_batched(chunk, size, run)
        give_back_freed_memory()  # otherwise, memory would grow over a long stream


def _chunks(inputs: Iterable[InputT], size: Callable[[InputT], int], look_ahead: int) -> Iterator[list[InputT]]:
    """Yield the inputs in lists that are as long as `look_ahead` and LOOK_AHEAD_PIECES allow."""
    chunk: list[InputT] = []
    num_pieces = 0
    for each in inputs:
        chunk.append(each)
        num_pieces += size(each)
        if len(chunk) == look_ahead or num_pieces >= LOOK_AHEAD_PIECES:
            yield chunk
            chunk, num_pieces = [], 0
    if chunk:
        yield chunk
