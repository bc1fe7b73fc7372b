"""BERT on padded tensors, written as plainly as possible: a reference for tests and a graph for export.

    x = LayerNorm(piece + segment + position)
    x = LayerNorm(x + attention(x));  x = LayerNorm(x + W₂·act(W₁·x))   for every layer
It runs the modules of a bertmill model without dropout and computes all positions [B, T]. It uses only tensor
operations and no data-dependent control flow, so `torch.export` can trace it for any batch size and length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bertmill.model import bert
from bertmill.model.encoder import BertEmbeddings
from bertmill.model.layers import BertLayer
from bertmill.model.pretrained import BertPreTrainedModel


class PaddedBert(nn.Module):
    """The forward pass of `model` on padded tensors, without dropout even if the model is in training mode."""

    def __init__(self, model: BertPreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the model's logits for inputs [B, T], or its vectors if it has no head."""
        body = self.model.base_model
        assert isinstance(body, bert.BertModel)
        states = _embed(body.embeddings, input_ids, token_type_ids)
        mask = _additive_mask(attention_mask, states.dtype, self.model.config.causal)
        for layer in body.encoder.layer:
            assert isinstance(layer, BertLayer)
            states = _run_layer(layer, states, mask)
        pooled = None if body.pooler is None else body.pooler(states[:, 0])
        return _heads(self.model, states, pooled)


def _embed(embeddings: BertEmbeddings, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
    positions = torch.arange(input_ids.shape[1], device=input_ids.device)
    states = (
        embeddings.word_embeddings(input_ids)
        + embeddings.token_type_embeddings(token_type_ids)
        + embeddings.position_embeddings(positions)
    )
    normed: Tensor = embeddings.LayerNorm(states)
    return normed


def _additive_mask(attention_mask: Tensor, dtype: torch.dtype, causal: bool) -> Tensor:
    """Return 0 for visible keys and a very negative number for others: [B, 1, 1, T], or [B, 1, T, T] if causal."""
    visible = (attention_mask != 0)[:, None, None, :]
    if causal:
        columns = torch.arange(attention_mask.shape[1], device=attention_mask.device)
        visible = visible & (columns <= columns[:, None])
    return torch.where(visible, 0.0, torch.finfo(dtype).min).to(dtype)


def _run_layer(layer: BertLayer, states: Tensor, mask: Tensor) -> Tensor:
    attention, output = layer.attention.self, layer.attention.output
    query, key, value = (
        module(states).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)  # [B, A, T, d]
        for module in (attention.query, attention.key, attention.value)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask  # [B, A, T, T]
    attended = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)  # [B, T, H]
    states = output.LayerNorm(output.dense(attended) + states)
    inner = layer.intermediate.activation(layer.intermediate.dense(states))
    normed: Tensor = layer.output.LayerNorm(layer.output.dense(inner) + states)
    return normed


def _heads(model: BertPreTrainedModel, states: Tensor, pooled: Tensor | None) -> tuple[Tensor, ...]:
    """Return the logits of `model` in the order of its outputs, or its vectors if it has no head."""
    match model:
        case bert.BertForPreTraining():
            return model.cls.predictions(states), model.cls.seq_relationship(pooled)
        case bert.BertForMaskedLM():
            return (model.cls.predictions(states),)
        case bert.BertForNextSentencePrediction():
            return (model.cls.seq_relationship(pooled),)
        case bert.BertForSequenceClassification() | bert.BertForMultipleChoice():
            return (model.classifier(pooled),)  # multiple choice: one score per sequence [B, 1]
        case bert.BertForTokenClassification():
            return (model.classifier(states),)
        case bert.BertForQuestionAnswering():
            return tuple(model.qa_outputs(states).unbind(-1))
    return (states,) if pooled is None else (states, pooled)
