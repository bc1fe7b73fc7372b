"""Attention over groups of sequences: softmax(Q·Kᵀ/√d + mask)·V, with dropout on the weights while training.

The flat row of queries, keys and values comes in as [n, 3·H]; each group's slice becomes a rectangle (by a view
when its lengths are equal, else by a gather) and goes back to flat pieces after. Without dropout torch's fused
kernel is the fastest. With dropout that kernel falls off its fast path, so both products are written out here
with their gradients: of all that is [T, T] only the weights are kept for the way back, with a minus where they were
dropped (a weight has none by itself). On a GPU in half precision, without dropout, a kernel for flat sequences needs
no rectangles. Where only some pieces are read, only those ask (`attend_from`), in a narrower rectangle.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import varlen

from bertmill.model.dropout import Dropout, shifted
from bertmill.model.packing import Group, Layout

# What is made between two products stays in the caches: at 21 sequences of 384 pieces a step takes half the time.
WEIGHTS_AT_ONCE: Final = 1 << 20


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


def attend_from(
    query: Tensor, keys_values: Tensor, places: Tensor, layout: Layout, num_heads: int, dropout: Dropout
) -> Tensor:
    """What the pieces at ascending `places` of the flat row gather [r, H]; `query` [r, H], `keys_values` [n, 2·H]."""
    outputs = []
    start = first = 0
    for number, (part, group) in enumerate(
        zip(keys_values.split([group.num_pieces for group in layout.groups]), layout.groups, strict=True)
    ):
        end = start + group.num_pieces
        last = int(torch.searchsorted(places, end))
        if last > first:
            seats, width = _seats(places[first:last] - start, group)
            outputs.append(_attend_some(query[first:last], part, seats, width, group, num_heads, dropout, number))
        start, first = end, last
    return torch.cat(outputs) if outputs else query  # of no pieces


def _seats(pieces: Tensor, group: Group) -> tuple[Tensor, int]:
    """Where each of some ascending pieces of a group sits in a rectangle [sequences, width], and how wide that is."""
    slots = pieces if group.slot_of_piece is None else group.slot_of_piece.index_select(0, pieces)
    sequences = slots // group.longest
    counts = torch.bincount(sequences, minlength=group.num_sequences)
    width = int(counts.max())
    ranks = torch.arange(len(pieces), device=pieces.device) - (counts.cumsum(0) - counts).index_select(0, sequences)
    return sequences * width + ranks, width


def _attend_some(
    query: Tensor,
    keys_values: Tensor,
    seats: Tensor,
    width: int,
    group: Group,
    num_heads: int,
    dropout: Dropout,
    number: int,
) -> Tensor:
    B = group.num_sequences
    seated = query.new_zeros(B * width, query.shape[1]).index_copy(0, seats, query)  # empty seats ask, unheard
    queries = seated.view(B, width, num_heads, -1).transpose(1, 2)  # [B, A, width, d]
    rectangle = _rectangle(keys_values, group, num_heads, 2)  # [2, B, A, T, d]
    if dropout.active:
        drawn = dropout.draw((B * num_heads, width, group.longest), query.device, salt=number)
        heads = _DroppingAttentionOfSome.apply(queries, rectangle, group.mask, drawn, dropout)  # type: ignore[no-untyped-call]
    else:
        key, value = rectangle.unbind(0)
        heads = F.scaled_dot_product_attention(queries, key, value, attn_mask=group.mask)
    gathered: Tensor = heads.transpose(1, 2).reshape(B * width, -1).index_select(0, seats)
    return gathered


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
        query, key, value = _rectangle(part, group, num_heads, 3).unbind(0)  # [B, A, T, d]
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, A, T, T]
        if group.mask is not None:
            scores = scores + group.mask.to(scores.dtype)  # under autocast they differ
        weights = dropout(scores.softmax(-1), salt=number)
        outputs.append(_flat((weights @ value), group))
        all_weights.append(weights)
    return torch.cat(outputs), tuple(all_weights)


def _attend_group(qkv: Tensor, group: Group, num_heads: int, dropout: Dropout, number: int) -> Tensor:
    rectangle = _rectangle(qkv, group, num_heads, 3)  # [3, B, A, T, d]
    if not dropout.active:
        query, key, value = rectangle.unbind(0)
        return _flat(F.scaled_dot_product_attention(query, key, value, attn_mask=group.mask), group)
    shape = (group.num_sequences * num_heads, group.longest, group.longest)
    drawn = dropout.draw(shape, qkv.device, salt=number)
    return _flat(_DroppingAttention.apply(rectangle, group.mask, drawn, dropout), group)  # type: ignore[no-untyped-call]


def _rectangle(flat: Tensor, group: Group, num_heads: int, num_parts: int) -> Tensor:
    """The group's slice of the flat row [pieces, parts·H] as [parts, B, A, T, d]; parts are queries, keys, values."""
    slots = flat if group.piece_of_slot is None else _ToSlots.apply(flat, group.piece_of_slot, group.slot_of_piece)  # type: ignore[no-untyped-call]
    shaped: Tensor = slots.view(group.num_sequences, group.longest, num_parts, num_heads, -1)
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
    """Attention of all pieces with given dropout, and its gradient."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: Tensor | None, drawn: Tensor, dropout: Dropout) -> Tensor:
        _, B, A, T, d = qkv.shape
        query, key, value = qkv.reshape(3, B * A, T, d).unbind(0)  # [G, T, d] each
        return _dropping_forward(ctx, A, query, key, value, mask, drawn, dropout).view(B, A, T, d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        B, A, T, d = gradients[0].shape
        below = gradients[0].new_empty(3, B * A, T, d)
        _dropping_backward(ctx, gradients[0].reshape(-1, T, d), *below.unbind(0))
        return below.view(3, B, A, T, d), None, None, None


class _DroppingAttentionOfSome(torch.autograd.Function):
    """The same of some queries [B, A, Q, d], with keys and values [2, B, A, T, d]."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys_values: Tensor, mask: Tensor | None, drawn: Tensor, dropout: Dropout
    ) -> Tensor:
        _, B, A, T, d = keys_values.shape
        key, value = keys_values.reshape(2, B * A, T, d).unbind(0)
        ctx.num_keys = T
        flat = query.reshape(B * A, -1, d)
        return _dropping_forward(ctx, A, flat, key, value, mask, drawn, dropout).view(B, A, -1, d)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        B, A, Q, d = gradients[0].shape
        of_query = gradients[0].new_empty(B * A, Q, d)
        below = gradients[0].new_empty(2, B * A, ctx.num_keys, d)
        _dropping_backward(ctx, gradients[0].reshape(-1, Q, d), of_query, *below.unbind(0))
        return of_query.view(B, A, Q, d), below.view(2, B, A, ctx.num_keys, d), None, None, None


def _dropping_forward(
    ctx: Any,
    num_heads: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    drawn: Tensor,
    dropout: Dropout,
) -> Tensor:
    """softmax(Q·Kᵀ/√d + mask), dropped, · V for each of G = batch · heads: [G, Q, d] from [G, Q, d] and [G, T, d]."""
    sequences = torch.arange(len(query), device=query.device) // num_heads  # [G]
    gathered = torch.empty_like(query)
    signed = []  # of every portion, the weights [portion, Q, T], negative where dropped
    for some in _portions(query, key):
        scores = _scaled_bmm(query[some], key[some].transpose(1, 2), 1 / math.sqrt(query.shape[-1]))
        if mask is not None:
            scores += mask[:, 0] if len(mask) == 1 else mask[:, 0].index_select(0, sequences[some])
        weights = scores.softmax(-1, dtype=scores.dtype)  # which autocast would make float32 on a GPU
        weights.copysign_(shifted(drawn[some], dropout.shift, weights.dtype))
        _scaled_bmm(weights.relu(), value[some], dropout.scale, out=gathered[some])
        signed.append(weights)
    ctx.save_for_backward(query, key, value, *signed)
    ctx.dropout_scale = dropout.scale
    return gathered


def _dropping_backward(ctx: Any, above: Tensor, of_query: Tensor, of_key: Tensor, of_value: Tensor) -> None:
    """From the gradient of the result [G, Q, d], those of queries, keys and values, written where they belong."""
    scale = 1 / math.sqrt(above.shape[-1])
    query, key, value, *signed = ctx.saved_tensors
    for some, weights in zip(_portions(query, key), signed, strict=True):
        _scaled_bmm(weights.relu().transpose(1, 2), above[some], ctx.dropout_scale, out=of_value[some])
        of_dropped = _scaled_bmm(above[some], value[some].transpose(1, 2), ctx.dropout_scale)
        of_weights = torch.ops.aten.threshold_backward(of_dropped, weights, 0)  # as that of relu
        of_scores = torch._softmax_backward_data(of_weights, weights.abs(), -1, weights.dtype)
        _scaled_bmm(of_scores, key[some], scale, out=of_query[some])
        _scaled_bmm(of_scores.transpose(1, 2), query[some], scale, out=of_key[some])


def _portions(query: Tensor, key: Tensor) -> Iterator[slice]:
    """All G in slices of as many as have WEIGHTS_AT_ONCE together, at least one each."""
    step = max(1, WEIGHTS_AT_ONCE // (query.shape[1] * key.shape[1]))
    return (slice(start, start + step) for start in range(0, len(query), step))


def _scaled_bmm(left: Tensor, right: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """`scale · left · right` per batch, the scale inside the product instead of one more pass over its result."""
    if out is None:
        out = torch.empty(left.shape[0], left.shape[1], right.shape[2], dtype=left.dtype, device=left.device)
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
