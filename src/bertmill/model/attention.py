"""Attention over groups of sequences: softmax(Q·Kᵀ/√d + mask)·V, with dropout on the weights while training.

The flat row of queries, keys and values comes in as [n, 3·H]; each group's slice becomes a rectangle (by a view
when its lengths are equal, else by a gather) and goes back to flat pieces after. Without dropout torch's fused
kernel is the fastest. With dropout that kernel falls off its fast path, so the four products are written out here
with their gradients: the weights and one byte of mask per weight are all that is kept for the way back. On a GPU in
half precision, without dropout, a kernel for flat sequences needs no rectangles.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import varlen

from bertmill.model.dropout import Dropout, keep_scaled
from bertmill.model.packing import Group, Layout


def attend(qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout) -> Tensor:
    """Flat queries, keys and values [n, 3·H] → what every piece has gathered [n, H]."""
    if _has_flat_kernel(qkv, layout, num_heads, dropout):
        return _attend_flat(qkv, layout, num_heads)
    parts = qkv.split([group.num_pieces for group in layout.groups])
    outputs = [
        _attend_group(part, group, num_heads, dropout, number)
        for number, (part, group) in enumerate(zip(parts, layout.groups, strict=True))
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _has_flat_kernel(qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout) -> bool:
    """Whether torch's kernel for flat sequences can do it: on a GPU, in half precision, nothing dropped or hidden."""
    return (
        qkv.device.type == "cuda"
        and qkv.dtype in (torch.float16, torch.bfloat16)
        and qkv.shape[1] // (3 * num_heads) in range(8, 257, 8)
        and not dropout.active
        and layout.batch.is_key is None
    )


def _attend_flat(qkv: Tensor, layout: Layout, num_heads: int) -> Tensor:
    """All sequences in one call. Not run here: no GPU; tests put a slow twin in the place of the kernel."""
    lengths = torch.tensor(layout.batch.lengths, device=qkv.device)
    bounds = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)  # [B + 1]
    longest = max(layout.batch.lengths)
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)  # [n, A, d] each
    window = (-1, 0) if layout.causal else (-1, -1)
    # One split: else how sums are split, and so their last bits, would depend on the neighbours' lengths.
    gathered = varlen.varlen_attn(query, key, value, bounds, bounds, longest, longest, window_size=window, num_splits=1)
    assert isinstance(gathered, Tensor)
    return gathered.flatten(1)


def attend_with_weights(
    qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """As `attend`, and the weights of every group [B, heads, T, T], after dropout as Hugging Face gives them."""
    outputs, all_weights = [], []
    parts = qkv.split([group.num_pieces for group in layout.groups])
    for number, (part, group) in enumerate(zip(parts, layout.groups, strict=True)):
        query, key, value = _rectangle(part, group, num_heads).unbind(0)  # [B, A, T, d]
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, A, T, T]
        if group.mask is not None:
            scores = scores + group.mask.to(scores.dtype)  # under autocast they differ
        weights = dropout(scores.softmax(-1), salt=number)
        outputs.append(_flat((weights @ value), group))
        all_weights.append(weights)
    return torch.cat(outputs), tuple(all_weights)


def _attend_group(qkv: Tensor, group: Group, num_heads: int, dropout: Dropout, number: int) -> Tensor:
    rectangle = _rectangle(qkv, group, num_heads)  # [3, B, A, T, d]
    if not dropout.active:
        query, key, value = rectangle.unbind(0)
        return _flat(F.scaled_dot_product_attention(query, key, value, attn_mask=group.mask), group)
    shape = (group.num_sequences * num_heads, group.longest, group.longest)
    keep = dropout.draw(shape, qkv.device, salt=number)
    return _flat(_DroppingAttention.apply(rectangle, group.mask, keep, dropout.scale), group)  # type: ignore[no-untyped-call]


def _rectangle(qkv: Tensor, group: Group, num_heads: int) -> Tensor:
    """The group's slice of the flat row [pieces, 3·H] as [3, B, A, T, d]."""
    slots = qkv if group.piece_of_slot is None else _ToSlots.apply(qkv, group.piece_of_slot, group.slot_of_piece)  # type: ignore[no-untyped-call]
    shaped: Tensor = slots.view(group.num_sequences, group.longest, 3, num_heads, -1)
    return shaped.permute(2, 0, 3, 1, 4)


def _flat(heads: Tensor, group: Group) -> Tensor:
    """[B, A, T, d] → the group's pieces [pieces, H]."""
    slots = heads.transpose(1, 2).reshape(group.num_sequences * group.longest, -1)  # [B·T, H]
    if group.slot_of_piece is None:
        return slots
    pieces: Tensor = _FromSlots.apply(slots, group.piece_of_slot, group.slot_of_piece)  # type: ignore[no-untyped-call]
    return pieces


class _ToSlots(torch.autograd.Function):
    """Pieces into the slots of a rectangle. Slots without a piece repeat one, masked, so no gradient leaves them."""

    @staticmethod
    def forward(ctx: Any, pieces: Tensor, piece_of_slot: Tensor, slot_of_piece: Tensor) -> Tensor:
        ctx.save_for_backward(slot_of_piece)
        return pieces.index_select(0, piece_of_slot)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slot_of_piece,) = ctx.saved_tensors
        return gradients[0].index_select(0, slot_of_piece), None, None


class _FromSlots(torch.autograd.Function):
    """Out of the slots of a rectangle: the pieces; what stands in the other slots is forgotten."""

    @staticmethod
    def forward(ctx: Any, slots: Tensor, piece_of_slot: Tensor, slot_of_piece: Tensor) -> Tensor:
        ctx.save_for_backward(slot_of_piece)
        ctx.num_slots = len(piece_of_slot)
        return slots.index_select(0, slot_of_piece)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slot_of_piece,) = ctx.saved_tensors
        slots = gradients[0].new_zeros(ctx.num_slots, gradients[0].shape[1])
        return slots.index_copy_(0, slot_of_piece, gradients[0]), None, None


class _DroppingAttention(torch.autograd.Function):
    """Attention with given dropout, and its gradient; G below is batch · heads."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: Tensor | None, keep: Tensor, dropout_scale: float) -> Tensor:
        _, B, A, T, d = qkv.shape
        query, key, value = qkv.reshape(3, B * A, T, d).unbind(0)  # [G, T, d] each
        scores = _scaled_bmm(query, key.transpose(1, 2), 1 / math.sqrt(d))  # [G, T, T]
        if mask is not None:
            scores.view(B, A, T, T).add_(mask)
        weights = torch.softmax(scores, -1)
        del scores
        ctx.save_for_backward(query, key, value, weights, keep)
        ctx.dropout_scale = dropout_scale
        return _scaled_bmm(torch.where(keep, weights, 0.0), value, dropout_scale).view(B, A, T, d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        query, key, value, weights, keep = ctx.saved_tensors
        _, A, T, d = gradients[0].shape
        above = gradients[0].reshape(-1, T, d)  # [G, T, d]
        below = torch.empty(3, *above.shape, dtype=above.dtype, device=above.device)
        dropped = torch.where(keep, weights, 0.0)
        _scaled_bmm(dropped.transpose(1, 2), above, ctx.dropout_scale, out=below[2])
        of_weights = keep_scaled(torch.bmm(above, value.transpose(1, 2)), keep, ctx.dropout_scale)  # [G, T, T]
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        _scaled_bmm(of_scores, key, 1 / math.sqrt(d), out=below[0])
        _scaled_bmm(of_scores.transpose(1, 2), query, 1 / math.sqrt(d), out=below[1])
        return below.view(3, -1, A, T, d), None, None, None


def _scaled_bmm(left: Tensor, right: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """`scale · left · right` per batch, the scale inside the product instead of one more pass over its result."""
    if out is None:
        out = torch.empty(left.shape[0], left.shape[1], right.shape[2], dtype=left.dtype, device=left.device)
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
