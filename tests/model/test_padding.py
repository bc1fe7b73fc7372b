"""Padded inputs become packed batches, and flat outputs become padded again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from equality import CLASSES, SMALL, padded_inputs, twins

import bertmill
from bertmill import BertConfig, BertModel, PackedBatch
from bertmill.errors import UsageError
from bertmill.model.padding import pack, pack_choices


@pytest.mark.parametrize("side", ["right", "left", "holes", "none"])
def test_packed_inputs_can_be_padded_again(side: str) -> None:
    inputs = padded_inputs(SMALL["vocab_size"], side=side)
    packed = pack(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"], None, None)
    assert packed.batch.num_pieces == int(inputs["attention_mask"].sum())
    assert packed.batch.key_mask is None
    assert packed.padding is not None
    assert torch.equal(packed.padding.padded(packed.batch.piece_ids), inputs["input_ids"])
    columns = inputs["attention_mask"].nonzero()[:, 1]
    assert torch.equal(packed.batch.positions, columns)


@pytest.mark.parametrize(
    ("reads", "kept"),
    [
        ({}, 3),
        ({"first_column": True}, 4),
        ({"every_column": True}, 6),
        ({"labels": torch.tensor([[7, -100, -100]] * 2)}, 4),
    ],
)
def test_positions_that_are_read_are_kept_but_hidden_from_the_others(reads: dict[str, Any], kept: int) -> None:
    mask = torch.tensor([[0, 1, 1], [1, 0, 0]])
    batch = pack(torch.ones(2, 3, dtype=int), mask, None, None, None, **reads).batch
    assert batch.num_pieces == kept
    assert (batch.key_mask is None) if kept == 3 else int(batch.key_mask.sum()) == 3


def test_a_packed_batch_is_unchanged_and_must_be_a_multiple_of_the_choices() -> None:
    batch = PackedBatch(torch.arange(1, 7), [1, 2, 3])
    assert pack(batch, None, None, None, None).batch is batch
    inputs, num_choices = pack_choices(batch, None, None, None, None, num_choices=3)
    assert (inputs.batch, num_choices) == (batch, 3)
    with pytest.raises(UsageError, match=r"the number of sequences \(3\) must be a multiple of num_choices \(2\)"):
        pack_choices(batch, None, None, None, None, num_choices=2)
    inputs, num_choices = pack_choices(torch.ones(2, 4, 3, dtype=int), None, None, None, None, num_choices=0)
    assert (inputs.batch.lengths, num_choices) == ([3] * 8, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"input_ids": torch.full((1, 4), 97)}, "piece id 97 is out of range"),
        ({"input_ids": torch.full((1, 4), -1)}, "piece id -1 is out of range"),
        ({"input_ids": torch.ones(1, 41, dtype=int)}, "position 40 is out of range"),
        ({"token_type_ids": torch.full((1, 4), 2)}, "segment 2 is out of range"),
        ({"attention_mask": torch.ones(1, 5)}, "attention_mask has shape"),
        ({"input_ids": None}, "exactly one of"),
        ({"inputs_embeds": torch.zeros(1, 4, 32)}, "exactly one of"),
    ],
)
def test_errors_name_the_invalid_input(changes: dict[str, Any], words: str) -> None:
    model = BertModel(BertConfig(**SMALL)).eval()
    with pytest.raises(UsageError, match=words):
        model(**{"input_ids": torch.ones(1, 4, dtype=int), **changes})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attention_mask": torch.ones(12)}, "cannot be combined with attention_mask"),
        ({"labels": torch.zeros(6, dtype=torch.int64)}, "the packed batch has 12 pieces"),
        ({"labels": torch.full((12,), 100)}, "labels must be from 0 to 99"),
    ],
)
def test_arguments_that_do_not_match_a_packed_batch_are_rejected(
    arguments: dict[str, torch.Tensor], message: str
) -> None:
    model = bertmill.BertForMaskedLM(bertmill.BertConfig.of_size("tiny", vocab_size=100))
    batch = bertmill.PackedBatch(torch.randint(5, 100, (12,)), torch.tensor([5, 7]))
    with pytest.raises(UsageError, match=message):
        model(batch, **arguments)


@pytest.mark.parametrize("shape", [(3,), (0, 4), (2, 0)])
def test_inputs_of_the_wrong_shape_are_rejected(shape: tuple[int, ...]) -> None:
    model = bertmill.BertModel(bertmill.BertConfig.of_size("tiny", vocab_size=100))
    with pytest.raises(UsageError, match="input_ids must be \\[sequences, pieces\\]"):
        model(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("name", CLASSES)
def test_with_compute_padding_outputs_at_padding_are_those_of_hugging_face(name: str) -> None:
    ours, theirs = twins(name)
    ours.compute_padding = True
    inputs = padded_inputs(SMALL["vocab_size"])
    if name == "BertForMultipleChoice":
        inputs = {key: value.view(-1, 2, value.shape[1]) for key, value in inputs.items()}
    mine, other = ours(**inputs), theirs(**inputs)
    for key in other:
        torch.testing.assert_close(mine[key], other[key], atol=1e-5, rtol=0)
