"""A batch without padding: the pieces of all sequences in one flat row, grouped by length for attention.

    padded [[a b c -]          flat, as given           flat, by length      groups of similar length
            [d - - -]    ─►    a b c d e f g    ─►      d e f g a b c   ─►   [d] [e f g / a b c]
            [e f g -]]

Linear layers run on the flat row. Attention needs rectangles, so the sequences are sorted by length once, before the
embeddings, and each group is a slice of the row. A group of identical lengths is already a rectangle; other groups are
padded to their longest sequence and masked. padding.py converts padded inputs and outputs.

`key_mask` is Hugging Face's attention mask for flat pieces. Where it is False, a piece has a query and therefore an
output, but its key is hidden from all queries. Hugging Face computes such outputs at all padding; bertmill computes
them only where they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bertmill.errors import UsageError

if TYPE_CHECKING:
    from bertmill.model.padding import Padding

# A group's shortest sequence is at least this fraction of its longest. Measured with MiniLM on 30 lengths of SST-2 plus
# two of 400, 2 threads, ms forward / forward + backward with dropout: one group 882 / 8405; 0.3 256 / 972;
# 0.6 253 / 934; 0.8 243 / 893; 0.9 257 / 952; only identical lengths 246 / 923.
SHORTEST_IN_GROUP = 0.8
# A rectangle with fewer slots than this also accepts shorter sequences, because each group costs several calls. A
# training step of MiniLM on 32 sentences of SST-2, ms: 0 305; 128 292; 256 284; 512 300; 1024 355.
SLOTS_WORTH_A_GROUP = 256

IGNORED_LABEL = -100
_TENSORS = ("piece_ids", "segments", "positions", "key_mask", "embeddings")


@dataclass(frozen=True)
class PackedBatch:
    """Pieces of several sequences, one sequence after another, without padding.

    By default `positions` count from 0 in each sequence and `segments` are 0. `key_mask` is False for pieces that
    no piece may attend to. `embeddings` may replace `piece_ids`.
    """

    piece_ids: Tensor | None  # [n]
    lengths: Sequence[int]  # of the sequences, in order
    segments: Tensor | None = None  # [n]
    positions: Tensor | None = None  # [n]
    key_mask: Tensor | None = None  # [n] bool
    embeddings: Tensor | None = None  # [n, H]
    padding: Padding | None = field(default=None, repr=False)  # of the inputs, if they were padded

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", [int(length) for length in self.lengths])  # also from a tensor
        if (self.piece_ids is None) == (self.embeddings is None):
            raise UsageError("exactly one of piece_ids and embeddings must be given")
        if not self.lengths or min(self.lengths) < 1:
            raise UsageError("a packed batch needs at least one sequence, and every sequence at least one piece")
        for name in _TENSORS:
            value = getattr(self, name)
            if value is not None and value.shape[0] != self.num_pieces:
                raise UsageError(f"{name} has {value.shape[0]} rows, but the lengths add up to {self.num_pieces}")

    @property
    def num_pieces(self) -> int:
        """Number of pieces in all sequences."""
        return sum(self.lengths)

    @property
    def first_pieces(self) -> Tensor:
        """Index of the first piece of every sequence [B]."""
        lengths = torch.tensor(self.lengths, device=self.device)
        return lengths.cumsum(0) - lengths

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        given = self.piece_ids if self.piece_ids is not None else self.embeddings
        assert given is not None
        return given.device

    def to(self, device: torch.device) -> PackedBatch:
        """Return the batch on another device."""
        return self._with(self.lengths, lambda tensor: tensor.to(device))

    def reordered(self, order: Tensor, lengths: Sequence[int]) -> PackedBatch:
        """Return the pieces in another order, where `order[i]` is the old index of piece i."""
        return self._with(lengths, lambda tensor: tensor.index_select(0, order))

    def _with(self, lengths: Sequence[int], change: Callable[[Tensor], Tensor]) -> PackedBatch:
        tensors = {name: getattr(self, name) for name in _TENSORS}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items() if tensor is not None}
        return replace(self, lengths=lengths, **changed)


@dataclass(frozen=True)
class Group:
    """Sequences of similar length: a slice of the flat row, which attention turns into a rectangle [B, T]."""

    num_sequences: int
    longest: int
    num_pieces: int
    piece_of_slot: Tensor | None  # [B·T] the piece in each slot of the rectangle; None if the slice is the rectangle
    slot_of_piece: Tensor | None  # [pieces] the slot of each piece
    mask: Tensor | None  # [B, 1, 1 or T, T] added to the scores: 0 for visible keys, very negative for others


@dataclass(frozen=True)
class Layout:
    """A batch sorted by length, its groups, and how to restore the given order."""

    batch: PackedBatch
    groups: tuple[Group, ...]
    sequence_order: Tensor | None  # [B] given index of each sorted sequence; None if the given order is sorted
    place_of_piece: Tensor | None  # [n] sorted index of each given piece
    causal: bool = False

    @property
    def allows_partial_queries(self) -> bool:
        """Whether attention may skip queries: only if all have the same mask, and not on a GPU (flat kernel)."""
        return not self.causal and self.batch.device.type == "cpu"

    def as_given(self, rows: Tensor) -> Tensor:
        """Return rows of pieces in the given order."""
        return rows if self.place_of_piece is None else rows.index_select(0, self.place_of_piece)

    def exposed(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return states as the caller sees them, and the same states computed from those, so that both get gradients.

        The caller sees them in the given order, and padded if the inputs were.
        """
        padding = self.batch.padding
        shown = self.as_given(states) if padding is None else padding.padded(self.as_given(states))
        if not shown.requires_grad:
            return shown, states
        given = shown if padding is None else padding.flat(shown)
        return shown, given if self.place_of_piece is None else given.index_select(0, self.place_of_piece.argsort())

    def places_of(self, pieces: Tensor) -> Tensor:
        """Return the sorted indices of `pieces`, which are indices in the given order."""
        return pieces if self.place_of_piece is None else self.place_of_piece.index_select(0, pieces)

    def weights_as_given(self, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Convert attention weights per group [B, heads, T, T] to weights per sequence [heads, length, length]."""
        of_sequences = [of_sequence for of_group in weights for of_sequence in of_group]
        cut = [whole[:, :length, :length] for whole, length in zip(of_sequences, self.batch.lengths, strict=True)]
        order = range(len(cut)) if self.sequence_order is None else self.sequence_order.argsort().tolist()
        return tuple(cut[place] for place in order)


def plan_layout(batch: PackedBatch, dtype: torch.dtype, causal: bool = False) -> Layout:
    """Sort the sequences of `batch` by length, unless they are sorted already, and group them."""
    lengths = list(batch.lengths)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    sequence_order = place_of_piece = None
    if order != list(range(len(lengths))):
        sequence_order = torch.tensor(order, device=batch.device)
        lengths = [lengths[index] for index in order]
        piece_order = counting_up(batch.first_pieces[sequence_order], torch.tensor(lengths, device=batch.device))
        place_of_piece = torch.empty_like(piece_order)
        place_of_piece[piece_order] = torch.arange(len(piece_order), device=batch.device)
        batch = batch.reordered(piece_order, lengths)
    groups = []
    start = 0
    for members in _similar_lengths(lengths):
        end = start + sum(members)
        key_mask = None if batch.key_mask is None else batch.key_mask[start:end]
        groups.append(_make_group(members, key_mask, batch.device, dtype, causal))
        start = end
    return Layout(batch, tuple(groups), sequence_order, place_of_piece, causal)


def _similar_lengths(ascending: Sequence[int]) -> list[list[int]]:
    """Split ascending lengths into groups, starting from the longest."""
    groups: list[list[int]] = []
    for length in reversed(ascending):
        num_slots = len(groups[-1]) * groups[-1][-1] if groups else 0
        if not groups or (num_slots >= SLOTS_WORTH_A_GROUP and length < SHORTEST_IN_GROUP * groups[-1][-1]):
            groups.append([])
        groups[-1].insert(0, length)
    return groups[::-1]


def counting_up(starts: Tensor, lengths: Tensor) -> Tensor:
    """Concatenate the ranges start, start + 1, … of `length` numbers for all pairs (start, length)."""
    ends = lengths.cumsum(0)
    offsets = (starts - (ends - lengths)).repeat_interleave(lengths)
    return offsets + torch.arange(len(offsets), device=lengths.device)


def _make_group(
    ascending: Sequence[int], key_mask: Tensor | None, device: torch.device, dtype: torch.dtype, causal: bool
) -> Group:
    B, T, n = len(ascending), ascending[-1], sum(ascending)
    piece_of_slot = slot_of_piece = visible = None
    if ascending[0] != T:
        lengths = torch.tensor(ascending, device=device)
        columns = torch.arange(T, device=device)
        starts = lengths.cumsum(0) - lengths
        # A padding slot repeats the last piece of its sequence; the mask hides it.
        piece_of_slot = (starts[:, None] + torch.minimum(columns, lengths[:, None] - 1)).flatten()  # [B·T]
        slot_of_piece = counting_up(torch.arange(B, device=device) * T, lengths)  # [n]
        visible = columns < lengths[:, None]  # [B, T]
    if key_mask is not None:
        keys = key_mask if piece_of_slot is None else key_mask.index_select(0, piece_of_slot)
        visible = keys.view(B, T) if visible is None else visible & keys.view(B, T)
    seen = None if visible is None else visible[:, None, None, :]  # [B, 1, 1, T]
    if causal and T > 1:
        earlier = torch.ones(1, 1, T, T, dtype=torch.bool, device=device).tril()
        seen = earlier if seen is None else earlier & seen  # [1 or B, 1, T, T]
    mask = None
    if seen is not None:  # finite numbers, so that a query without visible keys does not give NaN
        mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, torch.finfo(dtype).min)
    return Group(B, T, n, piece_of_slot, slot_of_piece, mask)
