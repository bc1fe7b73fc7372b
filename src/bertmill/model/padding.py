"""Convert padded inputs (Hugging Face's arguments [B, T]) to a packed batch, and flat outputs to padded ones.

Pieces with mask 1 are kept. The position of a piece is its column, so left padding and holes in the mask work. Some
models also read outputs at padding, as Hugging Face's do. Those pieces are kept too, but no other piece sees them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertmill.errors import UsageError
from bertmill.model.packing import IGNORED_LABEL, PackedBatch


@dataclass(frozen=True)
class Padding:
    """The cell of each flat piece in a padded matrix [B, T]."""

    num_sequences: int
    num_columns: int
    cells: Tensor | None  # [n] row · T + column of each piece; None if there is no padding

    def flat(self, padded: Tensor) -> Tensor:
        """Return the values of the pieces: [B, T, …] → [n, …]."""
        every_cell = padded.reshape(self.num_sequences * self.num_columns, *padded.shape[2:])
        return every_cell if self.cells is None else every_cell.index_select(0, self.cells)

    def padded(self, rows: Tensor, fill: float = 0.0) -> Tensor:
        """Pad rows of pieces: [n, …] → [B, T, …], with `fill` at padding."""
        if self.cells is not None:
            empty = rows.new_full((self.num_sequences * self.num_columns, *rows.shape[1:]), fill)
            rows = empty.index_copy(0, self.cells, rows)
        return rows.view(self.num_sequences, self.num_columns, *rows.shape[1:])

    def padded_weights(self, weights: Sequence[Tensor]) -> Tensor:
        """Pad the attention weights of every sequence: [heads, length, length] → [B, heads, T, T]."""
        T = self.num_columns
        result = weights[0].new_zeros(self.num_sequences, weights[0].shape[0], T, T)
        cells = torch.arange(self.num_sequences * T, device=result.device) if self.cells is None else self.cells
        columns = (cells % T).split([of_sequence.shape[-1] for of_sequence in weights])
        for row, (places, of_sequence) in enumerate(zip(columns, weights, strict=True)):
            result[row][:, places[:, None], places] = of_sequence
        return result


@dataclass(frozen=True)
class Inputs:
    """The inputs of a call as a packed batch. `padding` is None if they were packed already."""

    batch: PackedBatch
    padding: Padding | None

    def labels_per_piece(self, labels: Tensor | None) -> Tensor | None:
        """Return labels, given as [B, T] or flat for a packed batch, as one label per piece [n]."""
        if labels is None:
            return None
        if self.padding is not None:
            return self.padding.flat(labels)
        if labels.shape != (self.batch.num_pieces,):
            what = f"labels have shape {list(labels.shape)}, but the packed batch has {self.batch.num_pieces} pieces"
            raise UsageError(what)
        return labels


def pack(
    input_ids: Tensor | PackedBatch | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    *,
    labels: Tensor | None = None,
    first_column: bool = False,
    every_column: bool = False,
) -> Inputs:
    """Pack Hugging Face's inputs. A `PackedBatch` given as `input_ids` is returned unchanged.

    `labels` [B, T], `first_column` and `every_column` keep positions that are read even where the mask is 0.
    """
    if isinstance(input_ids, PackedBatch):
        if any(each is not None for each in (attention_mask, token_type_ids, position_ids, inputs_embeds)):
            names = "attention_mask, token_type_ids, position_ids or inputs_embeds"
            remedy = "use key_mask, segments, positions or embeddings of the batch"
            raise UsageError(f"a packed batch cannot be combined with {names}", remedy=remedy)
        return Inputs(input_ids, None)
    given = _check_given(input_ids, inputs_embeds)
    B, T = given.shape[:2]
    _check_shapes((B, T), attention_mask, token_type_ids, position_ids)
    visible = torch.ones(B, T, dtype=torch.bool, device=given.device) if attention_mask is None else attention_mask != 0
    kept = torch.ones_like(visible) if every_column else visible.clone()
    if labels is not None:
        kept |= labels != IGNORED_LABEL
    kept[:, 0] |= True if first_column else ~kept.any(1)  # every sequence keeps at least one piece
    padding = Padding(B, T, None if bool(kept.all()) else kept.flatten().nonzero().squeeze(1))
    if position_ids is None:
        position_ids = torch.arange(T, device=given.device)
    batch = PackedBatch(
        piece_ids=None if input_ids is None else padding.flat(input_ids),
        lengths=kept.sum(1).tolist(),
        segments=None if token_type_ids is None else padding.flat(token_type_ids.expand(B, T)),
        positions=padding.flat(position_ids.expand(B, T)),
        key_mask=None if bool(visible[kept].all()) else padding.flat(visible),
        embeddings=None if inputs_embeds is None else padding.flat(inputs_embeds),
        padding=padding,
    )
    return Inputs(batch, padding)


def pack_choices(
    input_ids: Tensor | PackedBatch | None, *others: Tensor | None, num_choices: int, every_column: bool = False
) -> tuple[Inputs, int]:
    """Like `pack`, but for inputs [B, choices, T]. Also return `num_choices`, which is required for a packed batch."""
    if not isinstance(input_ids, PackedBatch):
        num_choices = next((each.shape[1] for each in (input_ids, *others) if each is not None), 0)
        input_ids = None if input_ids is None else input_ids.flatten(0, 1)  # [B · choices, T]
        others = tuple(None if each is None else each.flatten(0, 1) for each in others)
    mask, segments, positions, embeddings = others
    inputs = pack(input_ids, mask, segments, positions, embeddings, first_column=True, every_column=every_column)
    num_sequences = len(inputs.batch.lengths)
    if num_choices < 1 or num_sequences % num_choices:
        raise UsageError(f"the number of sequences ({num_sequences}) must be a multiple of num_choices ({num_choices})")
    return inputs, num_choices


def _check_given(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    given = input_ids if input_ids is not None else inputs_embeds
    if given is None or (input_ids is not None and inputs_embeds is not None):
        raise UsageError("exactly one of input_ids and inputs_embeds must be given")
    if given.ndim != (2 if inputs_embeds is None else 3) or 0 in given.shape:
        expected = "input_ids must be [sequences, pieces]"
        if inputs_embeds is not None:
            expected = "inputs_embeds must be [sequences, pieces, hidden_size]"
        raise UsageError(f"{expected} and not empty, but the shape is {list(given.shape)}")
    return given


def _check_shapes(
    shape: tuple[int, int], mask: Tensor | None, token_type_ids: Tensor | None, position_ids: Tensor | None
) -> None:
    named = {"attention_mask": mask, "token_type_ids": token_type_ids, "position_ids": position_ids}
    for name, value in named.items():
        allowed = [shape] if name == "attention_mask" else [shape, (1, shape[1]), shape[1:]]
        if value is not None and tuple(value.shape) not in allowed:
            raise UsageError(f"{name} has shape {list(value.shape)}, but the inputs have shape {list(shape)}")
