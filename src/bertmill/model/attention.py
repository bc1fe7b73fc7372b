"""Attention: softmax(Q·Kᵀ/√d + mask)·V for every head, with dropout on the weights while training.

`plain_attention` is the definition. Everything below it computes the same numbers faster; tests compare each path with
it. The inputs are flat rows of pieces. Each group of sequences of similar length becomes a rectangle [B, A, T, d] (a
view if all lengths are equal, otherwise a gather into slots), and the result becomes flat rows again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertmill.model.dropout import Dropout, shifted
from bertmill.model.packing import Group, Layout

# Weights per slice of attention with dropout. Slices keep intermediate results in the caches: 21 sequences of 384
# pieces take half the time.
WEIGHTS_AT_ONCE: Final = 1 << 20


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: Dropout, salt: int
) -> tuple[Tensor, Tensor]:
    """The reference: queries [B, A, Q, d], keys and values [B, A, T, d] → outputs [B, A, Q, d], weights [B, A, Q, T].

    As in Hugging Face, the weights are those after dropout. `salt` distinguishes the groups of a batch.
    """
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, A, Q, T]
    if mask is not None:
        scores = scores + mask.to(scores.dtype)  # the types differ under autocast
    weights = dropout(scores.softmax(-1), salt=salt)
    return weights @ value, weights


def attend_with_weights(
    qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run plain attention on flat rows [n, 3·H], if weights are requested: outputs [n, H], weights of every group."""
    outputs, all_weights = [], []
    for number, (rows, group) in enumerate(_groups(qkv, layout)):
        query, key, value = _rectangle(rows, group, num_heads, 3).unbind(0)  # [B, A, T, d] each
        output, weights = plain_attention(query, key, value, group.mask, dropout, number)
        outputs.append(_flat(output, group))
        all_weights.append(weights)
    return torch.cat(outputs), tuple(all_weights)


def attend(qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout) -> Tensor:
    """Return the outputs [n, H] of all pieces for flat queries, keys and values [n, 3·H], on the fastest path."""
    if _has_flat_kernel(qkv, layout, num_heads, dropout):
        return _attend_flat(qkv, layout, num_heads)
    outputs = [
        _flat(_attend_group(None, _rectangle(rows, group, num_heads, 3), group, dropout, number), group)
        for number, (rows, group) in enumerate(_groups(qkv, layout))
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_group(query: Tensor | None, parts: Tensor, group: Group, dropout: Dropout, salt: int) -> Tensor:
    """Attend in one rectangle: queries [B, A, Q, d], keys and values [2, B, A, T, d] → [B, A, Q, d].

    If `query` is None, `parts` has three parts and the first one contains the queries.
    """
    # Fast path 1, without dropout: torch's fused kernel never stores the weights.
    if not dropout.active:
        key, value = parts[-2:].unbind(0)
        return F.scaled_dot_product_attention(parts[0] if query is None else query, key, value, attn_mask=group.mask)
    # Fast path 2, with dropout: the fused kernel is slow with dropout on a CPU, so both products and their gradients
    # are implemented below.
    B, A, Q, _ = parts[0].shape if query is None else query.shape
    drawn = dropout.draw((B * A, Q, group.longest), parts.device, salt=salt)
    outputs: Tensor = _DroppingAttention.apply(query, parts, group.mask, drawn, dropout)  # type: ignore[no-untyped-call]
    return outputs


# Fast path 3, in the last layer: only pieces whose output is used have queries, in a narrower rectangle.


def attend_partial(
    query: Tensor, keys_values: Tensor, places: Tensor, layout: Layout, num_heads: int, dropout: Dropout
) -> Tensor:
    """Return the outputs [r, H] of queries [r, H] at ascending indices `places`; `keys_values` is flat [n, 2·H]."""
    outputs = []
    start = first = 0
    for number, (rows, group) in enumerate(_groups(keys_values, layout)):
        end = start + group.num_pieces
        last = int(torch.searchsorted(places, end))
        if last > first:
            slots, width = _query_slots(places[first:last] - start, group)
            padded = query[first:last]
            if slots is not None:  # the outputs of padding are not used
                empty = query.new_zeros(group.num_sequences * width, query.shape[1])
                padded = empty.index_copy(0, slots, padded)
            queries = padded.view(-1, width, num_heads, query.shape[1] // num_heads).transpose(1, 2)  # [B, A, width, d]
            heads = _attend_group(queries, _rectangle(rows, group, num_heads, 2), group, dropout, number)
            found = heads.transpose(1, 2).reshape(padded.shape)
            outputs.append(found if slots is None else found.index_select(0, slots))
        start, first = end, last
    return torch.cat(outputs) if outputs else query  # no queries at all


def _query_slots(pieces: Tensor, group: Group) -> tuple[Tensor | None, int]:
    """Return the slot of each query in a rectangle [sequences, width], and the width; `pieces` is sorted.

    The slots are None if the queries fill the rectangle, as with one query per sequence.
    """
    if group.num_sequences == 1:
        return None, len(pieces)
    slots = pieces if group.slot_of_piece is None else group.slot_of_piece.index_select(0, pieces)
    sequences = slots // group.longest
    counts = torch.bincount(sequences, minlength=group.num_sequences)
    width = int(counts.max())
    if group.num_sequences * width == len(pieces):
        return None, width
    ranks = torch.arange(len(pieces), device=pieces.device) - (counts.cumsum(0) - counts).index_select(0, sequences)
    return sequences * width + ranks, width


# Fast path 4, on a GPU in half precision without dropout: torch's kernel for flat sequences needs no rectangles.


def _has_flat_kernel(qkv: Tensor, layout: Layout, num_heads: int, dropout: Dropout) -> bool:
    return (
        qkv.device.type == "cuda"
        and qkv.dtype in (torch.float16, torch.bfloat16)
        and qkv.shape[1] // (3 * num_heads) in range(8, 257, 8)
        and not dropout.active
        and layout.batch.key_mask is None
    )


def _attend_flat(qkv: Tensor, layout: Layout, num_heads: int) -> Tensor:
    """Attend in all sequences with one call. Untested on a GPU: tests replace the kernel with a slow equivalent."""
    from torch.nn.attention import varlen  # imported here because it takes a second

    lengths = torch.tensor(layout.batch.lengths, device=qkv.device)
    bounds = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)  # [B + 1]
    longest = max(layout.batch.lengths)
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)  # [n, A, d] each
    window = (-1, 0) if layout.causal else (-1, -1)
    # With more than one split, the rounding of a sequence would depend on the lengths of the other sequences.
    outputs = varlen.varlen_attn(query, key, value, bounds, bounds, longest, longest, window_size=window, num_splits=1)
    assert isinstance(outputs, Tensor)
    return outputs.flatten(1)


# Flat rows to rectangles and back.


def _groups(rows: Tensor, layout: Layout) -> Iterator[tuple[Tensor, Group]]:
    """Yield the slice of flat rows that belongs to each group, and the group."""
    return zip(rows.split([group.num_pieces for group in layout.groups]), layout.groups, strict=True)


def _rectangle(rows: Tensor, group: Group, num_heads: int, num_parts: int) -> Tensor:
    """Reshape the rows of a group [pieces, parts·H] to [parts, B, A, T, d]; parts are queries, keys and values."""
    slots = rows if group.piece_of_slot is None else _ToSlots.apply(rows, group.piece_of_slot, group.slot_of_piece)  # type: ignore[no-untyped-call]
    shaped: Tensor = slots.view(group.num_sequences, group.longest, num_parts, num_heads, -1)
    return shaped.permute(2, 0, 3, 1, 4)


def _flat(heads: Tensor, group: Group) -> Tensor:
    """Reshape [B, A, T, d] to the rows of the group [pieces, H]."""
    slots = heads.transpose(1, 2).reshape(group.num_sequences * group.longest, -1)  # [B·T, H]
    if group.slot_of_piece is None:
        return slots
    rows: Tensor = _FromSlots.apply(slots, group.piece_of_slot, group.slot_of_piece)  # type: ignore[no-untyped-call]
    return rows


class _ToSlots(torch.autograd.Function):
    """Rows of pieces → slots of a rectangle. Padding slots repeat a piece; they are masked and get no gradient."""

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
    """Slots of a rectangle → rows of pieces, without the padding slots."""

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


# Attention with dropout and its gradient. The weights are the only [T, T] tensor kept for the backward pass. Their sign
# is negative where they were dropped, which is possible because a softmax is never negative.


class _DroppingAttention(torch.autograd.Function):
    """Attention with the arguments of `_attend_group`; G = batch · heads."""

    @staticmethod
    def forward(
        ctx: Any, own_query: Tensor | None, parts: Tensor, mask: Tensor | None, drawn: Tensor, dropout: Dropout
    ) -> Tensor:
        num_parts, B, A, T, d = parts.shape
        first = [] if own_query is None else [own_query.reshape(B * A, -1, d)]
        query, key, value = *first, *parts.reshape(num_parts, B * A, T, d).unbind(0)  # [G, Q, d], [G, T, d] twice
        sequences = torch.arange(B * A, device=query.device) // A  # [G]
        outputs = torch.empty_like(query)
        signed = []  # the weights of every slice [slice, Q, T], negative where dropped
        for part in _slices(query, key):
            scores = _scaled_bmm(query[part], key[part].transpose(1, 2), 1 / math.sqrt(d))
            if mask is not None:
                scores += mask[:, 0] if len(mask) == 1 else mask[:, 0].index_select(0, sequences[part])
            weights = scores.softmax(-1, dtype=scores.dtype)  # autocast on a GPU would return float32
            weights.copysign_(shifted(drawn[part], dropout.shift, weights.dtype))
            _scaled_bmm(weights.relu(), value[part], dropout.scale, out=outputs[part])
            signed.append(weights)
        ctx.save_for_backward(query, key, value, *signed)
        ctx.parts_shape, ctx.dropout_scale = parts.shape, dropout.scale
        return outputs.view(B, A, -1, d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        num_parts, B, A, T, d = ctx.parts_shape
        above = gradients[0].reshape(B * A, -1, d)  # [G, Q, d]
        scale = 1 / math.sqrt(d)
        grad_parts = above.new_empty(num_parts, B * A, T, d)
        first = [above.new_empty(above.shape)] if num_parts == 2 else []
        grad_query, grad_key, grad_value = *first, *grad_parts.unbind(0)
        query, key, value, *signed = ctx.saved_tensors
        for part, weights in zip(_slices(query, key), signed, strict=True):
            _scaled_bmm(weights.relu().transpose(1, 2), above[part], ctx.dropout_scale, out=grad_value[part])
            grad_dropped = _scaled_bmm(above[part], value[part].transpose(1, 2), ctx.dropout_scale)
            grad_weights = torch.ops.aten.threshold_backward(grad_dropped, weights, 0)  # the gradient of relu
            grad_scores = torch._softmax_backward_data(grad_weights, weights.abs(), -1, weights.dtype)
            _scaled_bmm(grad_scores, key[part], scale, out=grad_query[part])
            _scaled_bmm(grad_scores.transpose(1, 2), query[part], scale, out=grad_key[part])
        own = grad_query.view(gradients[0].shape) if first else None
        return own, grad_parts.view(ctx.parts_shape), None, None, None


def _slices(query: Tensor, key: Tensor) -> Iterator[slice]:
    """Yield slices of G with at most WEIGHTS_AT_ONCE weights, but at least one element."""
    step = max(1, WEIGHTS_AT_ONCE // (query.shape[1] * key.shape[1]))
    return (slice(start, start + step) for start in range(0, len(query), step))


def _scaled_bmm(left: Tensor, right: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """Return `scale · left · right` per batch. Scaling inside the product saves a pass over the result."""
    if out is None:
        out = torch.empty(left.shape[0], left.shape[1], right.shape[2], dtype=left.dtype, device=left.device)
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
