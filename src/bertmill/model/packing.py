"""A batch without padding: the pieces of all sequences in one flat row, and how attention cuts it into groups.

    padded [[a b c -]          flat, as given           flat, by length      groups of similar length
            [d - - -]    ─►    a b c d e f g    ─►      d e f g a b c   ─►   [d] [e f g / a b c]
            [e f g -]]

Linear layers see the flat row. Attention needs rectangles: sequences are sorted by length, once, as ids, so that
a group is a slice of the row; a group of equal lengths is a rectangle already, others are padded to their own
longest with a mask. Padded inputs are made flat on entry, and what the model returns is padded again.

A piece can be a reader only (`is_key` False): it gets a vector but no other piece sees it. This is what Hugging
Face computes at masked positions; we compute it where somebody looks there (labels, the first column).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertmill.errors import UsageError

# A group's shortest sequence is at least this share of its longest. Measured with MiniLM on 30 lengths of SST-2 plus
# two of 400, 2 threads, ms forward / forward + backward with dropout: one group 882 / 8405; 0.3 256 / 972;
# 0.6 253 / 934; 0.8 243 / 893; 0.9 257 / 952; only equal lengths 246 / 923.
SHORTEST_IN_GROUP = 0.8
# But a rectangle with fewer slots takes shorter sequences too: each group costs several calls. A training step of
# MiniLM on 32 sentences of SST-2, ms: 0 305; 128 292; 256 284; 512 300; 1024 355.
SLOTS_WORTH_A_GROUP = 256

IGNORED_LABEL = -100


@dataclass(frozen=True)
class PackedBatch:
    """Pieces of several sequences, one sequence after another, without padding.

    `positions` count from 0 in each sequence and `segments` are 0 where not given. `is_key` is False for pieces
    that no piece may see. `embeddings` may stand in for `piece_ids`.
    """

    piece_ids: Tensor | None  # [n]
    lengths: Sequence[int]  # of the sequences, in order
    segments: Tensor | None = None  # [n]
    positions: Tensor | None = None  # [n]
    is_key: Tensor | None = None  # [n] bool
    embeddings: Tensor | None = None  # [n, H]

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", [int(length) for length in self.lengths])  # also from a tensor
        if (self.piece_ids is None) == (self.embeddings is None):
            raise UsageError("exactly one of piece ids and embeddings must be given")
        if not self.lengths or min(self.lengths) < 1:
            raise UsageError("a packed batch needs at least one sequence, and every sequence at least one piece")
        for name in ("piece_ids", "segments", "positions", "is_key", "embeddings"):
            value = getattr(self, name)
            if value is not None and value.shape[0] != self.num_pieces:
                raise UsageError(f"{name} has {value.shape[0]} rows, and the lengths add up to {self.num_pieces}")

    @property
    def num_pieces(self) -> int:
        return sum(self.lengths)

    @property
    def first_pieces(self) -> Tensor:
        """The number of every sequence's first piece [B]."""
        lengths = torch.tensor(self.lengths, device=self.device)
        return lengths.cumsum(0) - lengths

    @property
    def device(self) -> torch.device:
        given = self.piece_ids if self.piece_ids is not None else self.embeddings
        assert given is not None
        return given.device

    def to(self, device: torch.device) -> PackedBatch:
        """The same batch on another device."""
        tensors = (self.segments, self.positions, self.is_key, self.embeddings)
        moved = (None if tensor is None else tensor.to(device) for tensor in tensors)
        return PackedBatch(None if self.piece_ids is None else self.piece_ids.to(device), self.lengths, *moved)

    def reordered(self, order: Tensor, lengths: Sequence[int]) -> PackedBatch:
        """The same pieces in another order, `order[i]` being the old place of the new piece i."""

        def take(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.index_select(0, order)

        return PackedBatch(
            take(self.piece_ids),
            lengths,
            take(self.segments),
            take(self.positions),
            take(self.is_key),
            take(self.embeddings),
        )


@dataclass(frozen=True)
class Group:
    """Sequences of similar length: a slice of the flat row and the rectangle that attention makes of it."""

    num_sequences: int
    longest: int
    num_pieces: int
    piece_of_slot: Tensor | None  # [B·T] what each slot of the rectangle holds; None: it holds the slice as it is
    slot_of_piece: Tensor | None  # [pieces] where each piece stands in the rectangle
    mask: Tensor | None  # [B, 1, 1 or T, T] added to the scores: 0 where a piece may look, very negative elsewhere


@dataclass(frozen=True)
class Layout:
    """A batch sorted by length, its groups, and the way back to the given order."""

    batch: PackedBatch
    groups: tuple[Group, ...]
    sequence_order: Tensor | None  # [B] given sequence at each sorted place; None: the given order is the sorted one
    place_of_piece: Tensor | None  # [n] sorted place of each given piece
    causal: bool = False

    @property
    def may_ask_in_part(self) -> bool:
        """Whether only some pieces may ask: where a mask is the same for all, and no flat kernel (GPU) is better."""
        return not self.causal and self.batch.device.type == "cpu"

    def as_given(self, rows: Tensor) -> Tensor:
        """Rows of pieces in the order in which they came in."""
        return rows if self.place_of_piece is None else rows.index_select(0, self.place_of_piece)

    def places_of(self, pieces: Tensor) -> Tensor:
        """The sorted places of some pieces, by their given numbers."""
        return pieces if self.place_of_piece is None else self.place_of_piece.index_select(0, pieces)

    def weights_as_given(self, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Attention weights of every group [B, heads, T, T] → of every sequence [heads, length, length]."""
        of_sequences = [of_sequence for of_group in weights for of_sequence in of_group]
        cut = [whole[:, :length, :length] for whole, length in zip(of_sequences, self.batch.lengths, strict=True)]
        order = range(len(cut)) if self.sequence_order is None else self.sequence_order.argsort().tolist()
        return tuple(cut[place] for place in order)


def plan_layout(batch: PackedBatch, dtype: torch.dtype, causal: bool = False) -> Layout:
    """Sort the sequences of `batch` by length, if they are not, and group them."""
    lengths = list(batch.lengths)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    sequence_order = place_of_piece = None
    if order != list(range(len(lengths))):
        sequence_order = torch.tensor(order, device=batch.device)
        piece_order = _piece_order(lengths, sequence_order)
        place_of_piece = torch.empty_like(piece_order)
        place_of_piece[piece_order] = torch.arange(len(piece_order), device=batch.device)
        lengths = [lengths[index] for index in order]
        batch = batch.reordered(piece_order, lengths)
    groups = []
    start = 0
    for members in _similar_lengths(lengths):
        end = start + sum(members)
        is_key = None if batch.is_key is None else batch.is_key[start:end]
        groups.append(_make_group(members, is_key, batch.device, dtype, causal))
        start = end
    return Layout(batch, tuple(groups), sequence_order, place_of_piece, causal)


def _similar_lengths(ascending: Sequence[int]) -> list[list[int]]:
    """Ascending lengths cut into groups, from the longest down."""
    groups: list[list[int]] = []
    for length in reversed(ascending):
        num_slots = len(groups[-1]) * groups[-1][-1] if groups else 0
        if not groups or (num_slots >= SLOTS_WORTH_A_GROUP and length < SHORTEST_IN_GROUP * groups[-1][-1]):
            groups.append([])
        groups[-1].insert(0, length)
    return groups[::-1]


def _piece_order(lengths: Sequence[int], sequence_order: Tensor) -> Tensor:
    """The old place of every piece when the sequences are put into `sequence_order`."""
    old_lengths = torch.tensor(lengths, device=sequence_order.device)
    old_starts = old_lengths.cumsum(0) - old_lengths
    new_lengths = old_lengths[sequence_order]
    return _counting_up(old_starts[sequence_order], new_lengths)


def _counting_up(starts: Tensor, lengths: Tensor) -> Tensor:
    """start, start + 1, … for `length` numbers, for one (start, length) after another."""
    ends = lengths.cumsum(0)
    offsets = (starts - (ends - lengths)).repeat_interleave(lengths)
    return offsets + torch.arange(len(offsets), device=lengths.device)


def _make_group(
    ascending: Sequence[int], is_key: Tensor | None, device: torch.device, dtype: torch.dtype, causal: bool
) -> Group:
    B, T, n = len(ascending), ascending[-1], sum(ascending)
    piece_of_slot = slot_of_piece = visible = None
    if ascending[0] != T:
        lengths = torch.tensor(ascending, device=device)
        columns = torch.arange(T, device=device)
        starts = lengths.cumsum(0) - lengths
        # A slot without a piece repeats its sequence's last piece; the mask hides it.
        piece_of_slot = (starts[:, None] + torch.minimum(columns, lengths[:, None] - 1)).flatten()  # [B·T]
        slot_of_piece = _counting_up(torch.arange(B, device=device) * T, lengths)  # [n]
        visible = columns < lengths[:, None]  # [B, T]
    if is_key is not None:
        keys = is_key if piece_of_slot is None else is_key.index_select(0, piece_of_slot)
        visible = keys.view(B, T) if visible is None else visible & keys.view(B, T)
    mask = None if visible is None else _additive(visible, dtype)[:, None, None, :]  # [B, 1, 1, T]
    if causal and T > 1:
        earlier = torch.ones(T, T, dtype=torch.bool, device=device).tril()
        seen = earlier if visible is None else earlier & visible[:, None, :]
        mask = _additive(seen, dtype).view(-1, 1, T, T)  # [1 or B, 1, T, T]
    return Group(B, T, n, piece_of_slot, slot_of_piece, mask)


def _additive(visible: Tensor, dtype: torch.dtype) -> Tensor:
    # Finite, so that a reader that may look nowhere gets some vector and not NaN.
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, torch.finfo(dtype).min)


@dataclass(frozen=True)
class Padding:
    """Where the pieces of a flat row stand in the padded matrix that they came from."""

    num_sequences: int
    num_columns: int
    cells: Tensor | None  # [n] row · columns + column of each piece; None: every cell holds a piece

    def flat(self, padded: Tensor) -> Tensor:
        """The pieces' values out of a padded matrix [B, T, …] → [n, …]."""
        every_cell = padded.reshape(self.num_sequences * self.num_columns, *padded.shape[2:])
        return every_cell if self.cells is None else every_cell.index_select(0, self.cells)

    def padded(self, rows: Tensor, fill: float = 0.0) -> Tensor:
        """Rows of pieces [n, …] → [B, T, …], with `fill` where there is no piece."""
        if self.cells is not None:
            empty = rows.new_full((self.num_sequences * self.num_columns, *rows.shape[1:]), fill)
            rows = empty.index_copy(0, self.cells, rows)
        return rows.view(self.num_sequences, self.num_columns, *rows.shape[1:])

    def padded_weights(self, weights: Sequence[Tensor]) -> Tensor:
        """Attention weights of every sequence [heads, length, length] → [B, heads, T, T]."""
        T = self.num_columns
        result = weights[0].new_zeros(self.num_sequences, weights[0].shape[0], T, T)
        cells = torch.arange(self.num_sequences * T, device=result.device) if self.cells is None else self.cells
        columns = (cells % T).split([of_sequence.shape[-1] for of_sequence in weights])
        for row, (places, of_sequence) in enumerate(zip(columns, weights, strict=True)):
            result[row][:, places[:, None], places] = of_sequence
        return result


def unpad(
    input_ids: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    needed: Tensor | None = None,
) -> tuple[PackedBatch, Padding]:
    """Hugging Face's padded inputs [B, T] as a packed batch.

    Kept are the pieces with mask 1, and, as readers only, those that `needed` [B, T] marks. The position of a
    piece is its column, wherever the padding is.
    """
    given = the_given(input_ids, inputs_embeds)
    B, T = given.shape[:2]
    _check_shapes((B, T), attention_mask, token_type_ids, position_ids)
    visible = torch.ones(B, T, dtype=torch.bool, device=given.device) if attention_mask is None else attention_mask != 0
    kept = visible if needed is None else visible | needed
    if not bool(kept.any(1).all()):  # a row of the mask is 0 everywhere: its first piece stands for it
        kept = kept.clone()
        kept[:, 0] |= ~kept.any(1)
    lengths = kept.sum(1).tolist()
    padding = Padding(B, T, None if bool(kept.all()) else kept.flatten().nonzero().squeeze(1))
    if position_ids is None:
        position_ids = torch.arange(T, device=given.device)
    batch = PackedBatch(
        piece_ids=None if input_ids is None else padding.flat(input_ids),
        lengths=lengths,
        segments=None if token_type_ids is None else padding.flat(token_type_ids.expand(B, T)),
        positions=padding.flat(position_ids.expand(B, T)),
        is_key=None if bool(visible[kept].all()) else padding.flat(visible),
        embeddings=None if inputs_embeds is None else padding.flat(inputs_embeds),
    )
    return batch, padding


def the_given(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """The one of them that is there, if it is a batch: ids [B, T] or vectors [B, T, H]."""
    given = input_ids if input_ids is not None else inputs_embeds
    if given is None or (input_ids is not None and inputs_embeds is not None):
        raise UsageError("exactly one of input_ids and inputs_embeds must be given")
    if given.ndim != (2 if inputs_embeds is None else 3) or 0 in given.shape:
        raise UsageError(f"the inputs have the shape {list(given.shape)}, not [sequences, pieces]")
    return given


def padding_of(lengths: Sequence[int], device: torch.device) -> Padding:
    """Where the pieces of packed sequences stand when all are padded on the right to the longest."""
    columns = max(lengths)
    of_sequences = torch.tensor(lengths, device=device)
    return Padding(
        len(lengths), columns, _counting_up(torch.arange(len(lengths), device=device) * columns, of_sequences)
    )


def _check_shapes(
    shape: tuple[int, int], mask: Tensor | None, token_type_ids: Tensor | None, position_ids: Tensor | None
) -> None:
    named = {"attention_mask": mask, "token_type_ids": token_type_ids, "position_ids": position_ids}
    for name, value in named.items():
        allowed = [shape] if name == "attention_mask" else [shape, (1, shape[1]), shape[1:]]
        if value is not None and tuple(value.shape) not in allowed:
            raise UsageError(f"{name} has the shape {list(value.shape)}, and the inputs have {list(shape)}")
