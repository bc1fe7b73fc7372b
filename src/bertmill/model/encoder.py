"""Embeddings, the stack of layers and the pooler: a packed batch → one vector per piece, one per sequence.

x = dropout(LayerNorm(piece + segment + position));  x = layer(x) for every layer;  pooled = tanh(W · x[first])
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.dropout import Dropout
from bertmill.model.layers import BertLayer
from bertmill.model.packing import Layout, PackedBatch

EMBEDDING_LAYER = -1  # the layer number of the embeddings in the key of dropout


class BertEmbeddings(nn.Module):
    """The sum of piece, segment and position embeddings, with LayerNorm and dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob, EMBEDDING_LAYER, "embeddings")

    def forward(self, batch: PackedBatch) -> Tensor:
        self._check(batch)
        words = self.word_embeddings(batch.piece_ids) if batch.embeddings is None else batch.embeddings
        segments, positions = batch.segments, batch.positions
        if segments is None:
            segments = torch.zeros(1, dtype=torch.int64, device=batch.device)
        if positions is None:
            positions = torch.cat([torch.arange(length, device=batch.device) for length in batch.lengths])
        # Add in the same order as Hugging Face, for the same rounding.
        states = words + self.token_type_embeddings(segments) + self.position_embeddings(positions)  # [n, H]
        normed: Tensor = self.dropout(self.LayerNorm(states))
        return normed

    def _check(self, batch: PackedBatch) -> None:
        """Raise a UsageError that names an id out of range, which torch's error does not.

        Ids on a GPU are not checked, because that would cost a synchronization.
        """
        limit = len(self.position_embeddings.weight)
        if batch.positions is None and max(batch.lengths) > limit:
            raise UsageError(f"a sequence has {max(batch.lengths)} pieces, but the model has only {limit} positions")
        if batch.device.type != "cpu":
            return
        for what, values, module in (
            ("piece id", batch.piece_ids, self.word_embeddings),
            ("segment", batch.segments, self.token_type_embeddings),
            ("position", batch.positions, self.position_embeddings),
        ):
            if values is None:
                continue
            low, high, size = int(values.min()), int(values.max()), len(module.weight)
            if low < 0 or high >= size:
                wrong = low if low < 0 else high
                raise UsageError(f"{what} {wrong} is out of range: this model allows 0 to {size - 1}")


@dataclass(frozen=True)
class Encoded:
    """Output of the encoder for a batch: the vectors of all pieces, or only of those to be read."""

    layout: Layout
    states: Tensor  # [n, H] in the layout's order; or [pieces to read, H]
    read: Tensor | None  # [pieces to read] their indices in the batch; None: all
    hidden_states: tuple[Tensor, ...] | None  # of the embeddings and every layer, as the caller sees them
    attentions: tuple[tuple[Tensor, ...], ...] | None  # of every layer, one per sequence in the order of the batch

    def vectors(self) -> Tensor:
        """Return the vectors of all pieces in the order of the batch [n, H]."""
        assert self.read is None
        return self.layout.as_given(self.states)

    def vectors_at(self, pieces: Tensor) -> Tensor:
        """Return the vectors of `pieces`, which are indices in the batch and must be among those to be read."""
        if self.read is None:
            return self.states.index_select(0, self.layout.places_of(pieces))
        row_of_piece = torch.full((self.layout.batch.num_pieces,), -1, device=pieces.device)  # index_select rejects -1
        row_of_piece[self.read] = torch.arange(len(self.read), device=pieces.device)
        return self.states.index_select(0, row_of_piece.index_select(0, pieces))


class BertEncoder(nn.Module):
    """The stack of layers. With `gradient_checkpointing`, layers keep only their input and run again in backward().

    The last layer computes queries, and everything that depends on them, only for the pieces to be read: the first
    piece of each sequence for a classifier, the selected pieces for MLM.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(config, number) for number in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False

    def forward(
        self, states: Tensor, layout: Layout, want_states: bool, want_weights: bool, read: Tensor | None
    ) -> Encoded:
        read = None if want_states or not len(self.layer) else read
        places = None
        if read is not None:  # in ascending order, as attention expects
            places, order = layout.places_of(read).sort()
            read = read.index_select(0, order)
        hidden_states: list[Tensor] = []
        if want_states:
            shown, states = layout.exposed(states)
            hidden_states.append(shown)
        attentions: list[tuple[Tensor, ...]] = []
        for layer in self.layer:
            given = (states, layout, want_weights, places if layer is self.layer[-1] else None)
            if self.gradient_checkpointing and self.training:
                # Run in a copy of the context, because the second run needs the dropout key of the first.
                run_layer = partial(copy_context().run, layer)
                states, weights = checkpoint(run_layer, *given, use_reentrant=False)
            else:
                states, weights = layer(*given)
            if want_states:
                shown, states = layout.exposed(states)
                hidden_states.append(shown)
            if want_weights:
                attentions.append(layout.weights_as_given(weights))
        return Encoded(layout, states, read, tuple(hidden_states) or None, tuple(attentions) or None)


class BertPooler(nn.Module):
    """The pooler: tanh(W · x) for the first piece of every sequence [B, H]. `accelerate` may replace tanh.

    As in Hugging Face, it also takes padded states [B, T, H].
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation: Callable[[Tensor], Tensor] = torch.tanh

    def forward(self, states: Tensor) -> Tensor:
        return self.activation(self.dense(states[:, 0] if states.ndim == 3 else states))
