"""Batches of similar length: the budget, the order of results, and the bounded look-ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from bertmill.batching.by_length import (
    LOOK_AHEAD_PIECES,
    PIECES_PER_BATCH,
    batches_by_length,
    run_batched,
    split_into_batches,
    stream_batched,
)

SIZES = st.lists(st.integers(1, 50), max_size=60)


@given(SIZES, st.integers(1, 120))
def test_every_input_is_in_one_batch_and_batches_stay_within_the_budget(sizes: list[int], budget: int) -> None:
    batches = batches_by_length(sizes, budget)
    assert sorted(number for batch in batches for number in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or sum(sizes[number] for number in batch) <= budget


@given(st.lists(st.integers(1, 2 * PIECES_PER_BATCH), max_size=30))
def test_batches_have_all_inputs_in_order_and_stay_within_the_budget(sizes: list[int]) -> None:
    batches = list(split_into_batches(enumerate(sizes), lambda each: each[1]))
    assert [each for batch in batches for each in batch] == list(enumerate(sizes))
    for batch in batches:
        assert len(batch) == 1 or sum(size for _, size in batch) <= PIECES_PER_BATCH


@given(st.lists(st.integers(1, 2 * PIECES_PER_BATCH), max_size=60))
def test_results_of_one_batch_of_requests_keep_the_order_of_the_inputs(sizes: list[int]) -> None:
    def run(batch: list[tuple[int, int]]) -> list[tuple[int, int]]:
        assert len(batch) == 1 or sum(size for _, size in batch) <= PIECES_PER_BATCH
        return batch

    inputs = list(enumerate(sizes))
    assert run_batched(inputs, lambda each: each[1], run) == inputs


def test_several_threads_can_run_batches_at_the_same_time() -> None:
    num_threads = 8
    barrier = threading.Barrier(num_threads)

    def answer(thread: int) -> list[tuple[int, int]]:
        barrier.wait()
        return run_batched(range(200), lambda size: size + 1, lambda batch: [(thread, each) for each in batch])

    with ThreadPoolExecutor(num_threads) as pool:
        for thread, results in enumerate(pool.map(answer, range(num_threads))):
            assert results == [(thread, each) for each in range(200)]


@given(SIZES, st.integers(1, 20))
def test_a_stream_keeps_its_order_for_any_look_ahead(sizes: list[int], look_ahead: int) -> None:
    requested: list[int] = []

    def inputs() -> Iterator[tuple[int, int]]:
        for number, size in enumerate(sizes):
            requested.append(number)
            yield number, size

    results = stream_batched(inputs(), lambda each: each[1], lambda batch: [each[0] for each in batch], look_ahead)
    seen = []
    for number, result in enumerate(results):
        seen.append(result)
        assert len(requested) <= (number // look_ahead + 1) * look_ahead
    assert seen == list(range(len(sizes)))


def test_long_inputs_shorten_the_look_ahead() -> None:
    requested: list[int] = []

    def inputs() -> Iterator[int]:
        for number in range(20):
            requested.append(number)
            yield number

    results = stream_batched(inputs(), lambda _: LOOK_AHEAD_PIECES // 4, lambda batch: batch)
    seen = []
    for number, result in enumerate(results):
        seen.append(result)
        assert len(requested) <= number // 4 * 4 + 4
    assert seen == list(range(20))
