"""Attention on groups, on flat sequences, and which of the two is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertmill.model import attention
from bertmill.model.attention import attend, attend_partial
from bertmill.model.dropout import Dropout, keyed_dropout
from bertmill.model.packing import Layout, PackedBatch, plan_layout

LENGTHS = [5, 31, 5, 1, 17, 30]
HEADS = 2


def make_layout(causal: bool = False, hidden: bool = False) -> Layout:
    n = sum(LENGTHS)
    key_mask = torch.arange(n) % 4 != 1 if hidden else None
    return plan_layout(PackedBatch(torch.arange(n), LENGTHS, key_mask=key_mask), torch.float32, causal)


def slow_twin(
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
    """What torch says its kernel computes, one sequence after another."""
    assert starts.dtype == key_starts.dtype == torch.int32
    assert max_q == max_k == max(LENGTHS)
    assert window_size in ((-1, -1), (-1, 0))
    assert num_splits == 1
    outputs = []
    for start, end in zip(starts.tolist()[:-1], starts.tolist()[1:], strict=True):
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in (query, key, value))
        outputs.append(F.scaled_dot_product_attention(q, k, v, is_causal=window_size == (-1, 0)).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("causal", [False, True])
def test_the_flat_kernel_is_called_so_that_it_gives_what_the_groups_give(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = make_layout(causal)
    dropout = Dropout(0.1, 0, "weights").eval()
    torch.manual_seed(0)
    qkv = torch.randn(sum(LENGTHS), 3 * HEADS * 8)
    grouped = attend(qkv, layout, HEADS, dropout)
    monkeypatch.setattr(attention.varlen, "varlen_attn", slow_twin)
    monkeypatch.setattr(attention, "_has_flat_kernel", lambda *_: True)
    torch.testing.assert_close(attend(qkv, layout, HEADS, dropout), grouped, atol=1e-6, rtol=0)


class OnGPU:
    """As much of a tensor on a GPU as the choice of the kernel looks at."""

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
def test_the_flat_kernel_is_taken_only_where_it_runs_and_means_the_same(changes: dict[str, Any], flat: bool) -> None:
    arguments = {"qkv": OnGPU(), "layout": make_layout(), "dropout": Dropout(0.1, 0, "weights").eval(), **changes}
    assert attention._has_flat_kernel(num_heads=HEADS, **arguments) == flat


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("places", [[0, 3, 6, 7, 8, 40, 88], [2], list(range(89))], ids=["some", "one", "all"])
def test_some_pieces_gather_what_they_gather_among_all(places: list[int], hidden: bool) -> None:
    layout = make_layout(hidden=hidden)
    dropout = Dropout(0.1, 0, "weights").eval()
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(sum(LENGTHS), 3 * HEADS * 8, generator=generator, requires_grad=True)
    above = torch.randn(len(places), HEADS * 8, generator=generator)
    read = torch.tensor(places)
    of_all = attend(qkv, layout, HEADS, dropout).index_select(0, read)
    query, keys_values = qkv.split([HEADS * 8, 2 * HEADS * 8], 1)
    of_some = attend_partial(query.index_select(0, read), keys_values, read, layout, HEADS, dropout)
    torch.testing.assert_close(of_some, of_all, atol=1e-6, rtol=0)
    gradients = [torch.autograd.grad(output, qkv, above)[0] for output in (of_all, of_some)]
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("rows_at_once", [4, 3, 1])
def test_the_gradient_of_some_queries_under_dropout_is_the_numerical_one(
    rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    B, A, Q, T, d = 2, 2, 3, 5, 4
    monkeypatch.setattr(attention, "WEIGHTS_AT_ONCE", rows_at_once * Q * T)  # three: from the second sequence too
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    dropout = Dropout(0.3, 0, "weights")
    drawn = dropout.draw((B * A, Q, T), torch.device("cpu"))
    mask = torch.zeros(B, 1, 1, T, dtype=torch.float64)
    mask[1, ..., -2:] = torch.finfo(torch.float64).min
    assert torch.autograd.gradcheck(
        lambda query, rest: attention._DroppingPartialAttention.apply(query, rest, mask, drawn, dropout),  # type: ignore[no-untyped-call]
        (numbers(B, A, Q, d), numbers(2, B, A, T, d)),
    )


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("at_once", [1, 2000])
def test_dropping_attention_in_portions_is_the_same_as_in_one_go(
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
