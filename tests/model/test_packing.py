"""Packed batches and their layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertmill import PackedBatch
from bertmill.errors import UsageError
from bertmill.model.packing import plan_layout


def test_a_packed_batch_with_inconsistent_lengths_is_rejected() -> None:
    with pytest.raises(UsageError, match="at least one piece"):
        PackedBatch(torch.ones(3, dtype=int), [3, 0])
    with pytest.raises(UsageError, match="add up to 4"):
        PackedBatch(torch.ones(3, dtype=int), [4])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=12))
def test_every_piece_has_its_own_slot_and_the_given_order_can_be_restored(lengths: list[int]) -> None:
    pieces = torch.arange(sum(lengths))
    layout = plan_layout(PackedBatch(pieces, lengths), torch.float32)
    assert torch.equal(layout.as_given(layout.batch.piece_ids), pieces)
    assert torch.equal(layout.batch.piece_ids.index_select(0, layout.places_of(pieces)), pieces)
    assert sum(group.num_pieces for group in layout.groups) == len(pieces)
    for group in layout.groups:
        if group.slot_of_piece is not None:
            assert len(group.slot_of_piece.unique()) == group.num_pieces
            assert torch.equal(group.piece_of_slot[group.slot_of_piece], torch.arange(group.num_pieces))
