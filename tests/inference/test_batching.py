"""Batches of similar length under a budget, and results in the order of the examples."""

from __future__ import annotations

from bertmill.inference.batching import LOOK_AHEAD_PIECES, batches_by_length, in_given_order
from hypothesis import given
from hypothesis import strategies as st

SIZES = st.lists(st.integers(1, 50), max_size=60)


@given(SIZES, st.integers(1, 120))
def test_every_example_is_in_one_batch_and_batches_keep_to_the_budget(sizes: list[int], budget: int) -> None:
    batches = batches_by_length(sizes, budget)
    assert sorted(number for batch in batches for number in batch) == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) == 1 or sum(sizes[number] for number in batch) <= budget


@given(SIZES, st.integers(1, 20))
def test_results_come_back_in_order_whatever_the_look_ahead(sizes: list[int], look_ahead: int) -> None:
    asked: list[int] = []

    def examples():  # noqa: ANN202
        for number, size in enumerate(sizes):
            asked.append(number)
            yield number, size

    results = in_given_order(examples(), lambda pair: pair[1], lambda batch: [each[0] for each in batch], look_ahead)
    seen = []
    for number, result in enumerate(results):
        seen.append(result)
        assert len(asked) <= (number // look_ahead + 1) * look_ahead
    assert seen == list(range(len(sizes)))


def test_long_examples_end_the_look_ahead_early() -> None:
    asked: list[int] = []

    def examples():  # noqa: ANN202
        for number in range(20):
            asked.append(number)
            yield number

    size = LOOK_AHEAD_PIECES // 4
    results = in_given_order(examples(), lambda _: size, lambda batch: batch)
    seen = []
    for number, result in enumerate(results):
        seen.append(result)
        assert len(asked) <= number // 4 * 4 + 4
    assert seen == list(range(20))
