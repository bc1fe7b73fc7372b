"""Attention on groups, on flat sequences, and which of the two is taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bertmill.model import attention
from bertmill.model.attention import attend
from bertmill.model.dropout import Dropout
from bertmill.model.packing import Layout, PackedBatch, plan_layout

LENGTHS = [5, 31, 5, 1, 17, 30]
HEADS = 2


def make_layout(causal: bool = False, hidden: bool = False) -> Layout:
    n = sum(LENGTHS)
    is_key = torch.arange(n) % 4 != 1 if hidden else None
    return plan_layout(PackedBatch(torch.arange(n), LENGTHS, is_key=is_key), torch.float32, causal)


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
