"""Every fast path of attention matches the plain reference, and is used where it should be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import varlen

from bertmill.model import attention
from bertmill.model.attention import attend, attend_partial, attend_with_weights, plain_attention
from bertmill.model.dropout import Dropout, keyed_dropout
from bertmill.model.packing import Layout, PackedBatch, plan_layout

LENGTHS = [5, 31, 5, 1, 17, 30]
HEADS = 2
SIZE = HEADS * 8
NUM_PIECES = sum(LENGTHS)
DROPOUT = Dropout(0.3, 0, "weights")
NO_DROPOUT = Dropout(0.3, 0, "weights").eval()


def make_layout(causal: bool = False, hidden: bool = False) -> Layout:
    """Plan the layout of LENGTHS. `hidden` hides some keys, but never the first one, so every query sees a key."""
    key_mask = torch.cat([torch.arange(length) % 4 != 2 for length in LENGTHS]) if hidden else None
    return plan_layout(PackedBatch(torch.arange(NUM_PIECES), LENGTHS, key_mask=key_mask), torch.float32, causal)


def slow_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int],
    num_splits: int,
) -> Tensor:
    """Compute what torch documents for its kernel, one sequence at a time."""
    assert starts.dtype == key_starts.dtype == torch.int32
    assert max_q == max_k == max(LENGTHS)
    assert window_size in ((-1, -1), (-1, 0))
    assert num_splits == 1
    outputs = []
    for start, end in zip(starts.tolist()[:-1], starts.tolist()[1:], strict=True):
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        outputs.append(F.scaled_dot_product_attention(q, k, v, is_causal=window_size == (-1, 0)).transpose(0, 1))
    return torch.cat(outputs)


def random_qkv() -> Tensor:
    return torch.randn(NUM_PIECES, 3 * SIZE, generator=torch.Generator().manual_seed(0), requires_grad=True)


def assert_same_outputs_and_gradients(outputs: Tensor, reference: Tensor, qkv: Tensor) -> None:
    torch.testing.assert_close(outputs, reference, atol=5e-6, rtol=0)
    above = torch.randn(reference.shape, generator=torch.Generator().manual_seed(1))
    gradients = [torch.autograd.grad(each, qkv, above)[0] for each in (outputs, reference)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=0)


def test_the_reference_is_the_textbook_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(3))
    mask = torch.zeros(2, 1, 1, 5)
    mask[1, ..., 3:] = torch.finfo(torch.float32).min
    outputs, weights = plain_attention(query, key, value, mask, NO_DROPOUT, 0)
    torch.testing.assert_close(outputs, F.scaled_dot_product_attention(query, key, value, mask), atol=1e-6, rtol=0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))
    assert not weights[1, ..., 3:].any()


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [NO_DROPOUT, DROPOUT], ids=["fused", "dropping"])
def test_attention_of_all_pieces_matches_the_reference(dropout: Dropout, causal: bool, hidden: bool) -> None:
    layout, qkv = make_layout(causal, hidden), random_qkv()
    with keyed_dropout(seed=1, step=2):
        outputs = attend(qkv, layout, HEADS, dropout)
        reference, _ = attend_with_weights(qkv, layout, HEADS, dropout)
    assert_same_outputs_and_gradients(outputs, reference, qkv)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("places", [[0, 3, 6, 7, 8, 40, 88], [2], list(range(NUM_PIECES))], ids=["some", "one", "all"])
def test_partial_queries_without_dropout_match_the_reference(places: list[int], hidden: bool) -> None:
    layout, qkv = make_layout(hidden=hidden), random_qkv()
    read = torch.tensor(places)
    query, keys_values = qkv.split([SIZE, 2 * SIZE], 1)
    outputs = attend_partial(query.index_select(0, read), keys_values, read, layout, HEADS, NO_DROPOUT)
    reference, _ = attend_with_weights(qkv, layout, HEADS, NO_DROPOUT)
    assert_same_outputs_and_gradients(outputs, reference.index_select(0, read), qkv)


@pytest.mark.parametrize("hidden", [False, True])
def test_partial_queries_with_dropout_match_the_reference(hidden: bool) -> None:
    """Dropout draws different random numbers for a narrower rectangle, so the reference uses the same rectangle."""
    key_mask = torch.arange(18) % 4 != 2 if hidden else None
    layout = plan_layout(PackedBatch(torch.arange(18), [5, 6, 7], key_mask=key_mask), torch.float32)
    (group,) = layout.groups
    qkv = random_qkv()[:18]
    read = torch.tensor([0, 2, 6, 9, 11, 17])  # two of each sequence
    query, keys_values = qkv.split([SIZE, 2 * SIZE], 1)
    with keyed_dropout(seed=1, step=2):
        outputs = attend_partial(query.index_select(0, read), keys_values, read, layout, HEADS, DROPOUT)
        queries = query.index_select(0, read).view(3, 2, HEADS, -1).transpose(1, 2)
        slots = keys_values.index_select(0, group.piece_of_slot).view(3, 7, 2, HEADS, -1)
        key, value = slots.permute(2, 0, 3, 1, 4)
        reference, weights = plain_attention(queries, key, value, group.mask, DROPOUT, 0)
    assert (weights == 0).any()
    assert_same_outputs_and_gradients(outputs, reference.transpose(1, 2).reshape(6, SIZE), qkv)


@pytest.mark.parametrize("causal", [False, True])
def test_the_flat_kernel_matches_the_reference(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, qkv = make_layout(causal), random_qkv()
    reference, _ = attend_with_weights(qkv, layout, HEADS, NO_DROPOUT)
    monkeypatch.setattr(varlen, "varlen_attn", slow_kernel)
    monkeypatch.setattr(attention, "_has_flat_kernel", lambda *_: True)
    assert_same_outputs_and_gradients(attend(qkv, layout, HEADS, NO_DROPOUT), reference, qkv)


class OnGPU:
    """The attributes of a GPU tensor that the choice of the kernel depends on."""

    device = torch.device("cuda")

    def __init__(self, dtype: torch.dtype = torch.float16, width: int = 64) -> None:
        self.dtype = dtype
        self.shape = (sum(LENGTHS), 3 * HEADS * width)


@pytest.mark.parametrize(
    ("changes", "flat"),
    [
        ({}, True),
        ({"qkv": OnGPU(torch.bfloat16)}, True),
        ({"qkv": OnGPU(torch.float32)}, False),
        ({"qkv": OnGPU(width=12)}, False),
        ({"qkv": torch.zeros(sum(LENGTHS), 3 * HEADS * 64, dtype=torch.float16)}, False),
        ({"dropout": Dropout(0.1, 0, "weights")}, False),
        ({"layout": make_layout(hidden=True)}, False),
        ({"layout": make_layout(causal=True)}, True),
    ],
    ids=["half", "bfloat16", "single", "odd width", "on CPU", "dropout", "holes", "causal"],
)
def test_the_flat_kernel_is_used_only_where_it_is_supported_and_equivalent(changes: dict[str, Any], flat: bool) -> None:
    arguments = {"qkv": OnGPU(), "layout": make_layout(), "dropout": Dropout(0.1, 0, "weights").eval(), **changes}
    assert attention._has_flat_kernel(num_heads=HEADS, **arguments) == flat


@pytest.mark.parametrize("rows_at_once", [4, 3, 1])
def test_the_gradient_of_partial_queries_with_dropout_matches_the_numerical_one(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    B, A, Q, T, d = 2, 2, 3, 5, 4
    monkeypatch.setattr(attention, "WEIGHTS_AT_ONCE", rows_at_once * Q * T)  # three: part of the second sequence
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    dropout = Dropout(0.3, 0, "weights")
    drawn = dropout.draw((B * A, Q, T), torch.device("cpu"))
    mask = torch.zeros(B, 1, 1, T, dtype=torch.float64)
    mask[1, ..., -2:] = torch.finfo(torch.float64).min
    assert torch.autograd.gradcheck(
        lambda query, rest: attention._DroppingAttention.apply(query, rest, mask, drawn, dropout),  # type: ignore[no-untyped-call]
        (numbers(B, A, Q, d), numbers(2, B, A, T, d)),
    )


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("at_once", [1, 2000])
def test_attention_with_dropout_gives_the_same_result_in_slices(
    at_once: int, causal: bool, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = make_layout(causal, hidden)
    dropout = Dropout(0.1, 0, "weights")
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(sum(LENGTHS), 3 * HEADS * 8, generator=generator, requires_grad=True)
    above = torch.randn(sum(LENGTHS), HEADS * 8, generator=generator)

    def run() -> tuple[Tensor, Tensor]:
        with keyed_dropout(seed=1, step=2):
            output = attend(qkv, layout, HEADS, dropout)
        return output, torch.autograd.grad(output, qkv, above)[0]

    whole = run()
    monkeypatch.setattr(attention, "WEIGHTS_AT_ONCE", at_once)
    torch.testing.assert_close(run(), whole, atol=1e-6, rtol=0)
