"""Planned instances of full sentences are consecutive and lose nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertmill.corpus.plan import PlanSettings
from tests.corpus.objectives.plans import documents, owners, planned, shard_sizes

any_plan = given(lengths=documents, shard_size=shard_sizes, length=st.integers(3, 64), seed=st.integers(0, 99))


@any_plan
@settings(max_examples=50)
def test_full_sentences_are_consecutive_and_lose_nothing(
    lengths: list[list[int]], shard_size: int, length: int, seed: int
) -> None:
    assert_sentences_are_consecutive_and_lose_nothing(lengths, shard_size, length, seed)


@pytest.mark.slow
@any_plan
@settings(max_examples=150)
def test_full_sentences_of_many_plans_are_consecutive_and_lose_nothing(
    lengths: list[list[int]], shard_size: int, length: int, seed: int
) -> None:
    assert_sentences_are_consecutive_and_lose_nothing(lengths, shard_size, length, seed)


def assert_sentences_are_consecutive_and_lose_nothing(
    lengths: list[list[int]], shard_size: int, length: int, seed: int
) -> None:
    plan_settings = PlanSettings("mlm", length)
    corpus, records, facts = planned(lengths, shard_size, plan_settings, seed)
    sentence, document = owners(lengths)
    starts, sizes = records["start"].astype(int), records["length"].astype(int)
    stops = starts + sizes
    assert starts[0] == 0
    assert stops[-1] == corpus.num_pieces
    assert np.array_equal(starts[1:], stops[:-1])
    assert (sizes + records["num_breaks"] <= plan_settings.room).all()
    assert np.array_equal(records["num_breaks"], document[stops - 1] - document[starts])
    assert np.array_equal(records["first_document"], document[starts])
    inside = stops[:-1][sentence[stops[:-1] - 1] == sentence[stops[:-1]]]  # places where a sentence is cut
    assert (np.bincount(sentence)[sentence[inside]] > plan_settings.room).all()
    assert facts.counts == {"pieces": corpus.num_pieces}
