"""Batches of similar length under a budget of pieces; results come back in the order of the inputs.

Batches of similar lengths waste nothing on attention and keep memory bounded. A stream is sorted within a bounded
look-ahead only, so it may be endless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar, cast

from bertmill.machine import give_back_freed_memory

InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")

PIECES_PER_BATCH = 1024  # without gradients; larger batches need more memory and save no time
LOOK_AHEAD = 2048  # inputs
LOOK_AHEAD_PIECES = 1 << 18  # which are fewer inputs if they are long


def batches_by_length(sizes: Sequence[int], max_pieces: int = PIECES_PER_BATCH) -> list[list[int]]:
    """The numbers of all inputs in batches, longest first; see `in_portions`."""
    by_length = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    return list(in_portions(by_length, sizes.__getitem__, max_pieces))


def in_portions(
    inputs: Iterable[InputT], size: Callable[[InputT], int], max_pieces: int = PIECES_PER_BATCH
) -> Iterator[list[InputT]]:
    """The inputs in order, in lists of at most `max_pieces`; an input beyond the budget is a list of its own."""
    portion: list[InputT] = []
    room = max_pieces
    for each in inputs:
        if portion and size(each) > room:
            yield portion
            portion, room = [], max_pieces
        portion.append(each)
        room -= size(each)
    if portion:
        yield portion


def run_batched(
    inputs: Sequence[InputT], size: Callable[[InputT], int], run: Callable[[list[InputT]], Sequence[ResultT]]
) -> list[ResultT]:
    """One result per input, in order; `run` gets batches of similar length. Safe for threads if `run` is."""
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
    """`run_batched` for a stream of any length."""
    for chunk in _chunks(inputs, size, look_ahead):
        yield from run_batched(chunk, size, run)
        give_back_freed_memory()  # a long stream would grow otherwise, though it keeps nothing


def _chunks(inputs: Iterable[InputT], size: Callable[[InputT], int], look_ahead: int) -> Iterator[list[InputT]]:
    """The inputs in lists as long as the look-ahead allows, in number and in pieces."""
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
