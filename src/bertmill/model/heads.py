"""The heads of pre-training and the losses of all heads, with Hugging Face's module names.

The MLM head is decoder(LayerNorm(act(W·x))). The weight of the decoder is the piece embedding, and its bias is the
`bias` of the head (two names of one parameter, as in Hugging Face's state dicts).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.cross_entropy import linear_cross_entropy
from bertmill.model.dropout import Dropout
from bertmill.model.encoder import Encoded
from bertmill.model.layers import ACTIVATIONS, is_plain_linear
from bertmill.model.outputs import NOWHERE
from bertmill.model.packing import IGNORED_LABEL
from bertmill.model.pretrained import BertPreTrainedModel


class BertPredictionHeadTransform(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.activation(self.dense(states)))
        return normed


class BertLMPredictionHead(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        # Without memory: `tie` sets its weight and bias.
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, device="meta")
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def tie(self, word_embeddings: nn.Embedding) -> None:
        self.decoder.weight = word_embeddings.weight
        self.decoder.bias = self.bias

    def forward(self, states: Tensor) -> Tensor:
        """Logits over the vocabulary [n, V]."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits

    def loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean cross-entropy of `states` [n, H] and `targets` [n], and the number of correct predictions."""
        if not is_plain_linear(self.decoder):  # a module that replaces it (LoRA) or has a hook must be called
            logits = self(states)
            return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).sum()
        return linear_cross_entropy(self.transform(states), self.decoder.weight, self.decoder.bias, targets)

    def predict(
        self, encoded: Encoded, labels: Tensor | None, selected: Tensor | None, with_logits: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The logits of all pieces, if wanted; with labels, the loss and the number of correct predictions."""
        loss = num_right = None
        if labels is not None and selected is not None:
            loss, num_right = self.loss(encoded.vectors_at(selected), labels.index_select(0, selected))
        logits = self(encoded.vectors()) if with_logits else None  # [n, V]
        return logits, loss, num_right


class BertPreTrainingHeads(nn.Module):
    """The heads of pre-training: for MLM, for the next sentence, or both."""

    def __init__(self, config: BertConfig, *, mlm: bool = True, next_sentence: bool = True) -> None:
        super().__init__()
        if mlm:
            self.predictions = BertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertWithMaskedLM(BertPreTrainedModel):
    """A model with an MLM head: the decoder is the piece embedding, and stays so when either changes."""

    cls: Any  # a head with `predictions`

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.get_input_embeddings())

    def adopt_shared_parameters(self) -> None:
        bias = getattr(self.cls.predictions.decoder, "bias", None)
        self.cls.predictions.bias = bias if isinstance(bias, nn.Parameter) else None  # a wrapper may have none

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        embeddings = super().resize_token_embeddings(new_num_tokens)
        head = self.cls.predictions
        head.bias = self._resized("cls.predictions.bias", head.bias)
        head.decoder.out_features = new_num_tokens
        self.tie_weights()
        return embeddings

    def get_output_embeddings(self) -> nn.Linear:
        decoder: nn.Linear = self.cls.predictions.decoder
        return decoder

    def wants_logits(self, labels: Tensor | None, output_logits: bool | None) -> bool:
        """By default every call returns logits, except training steps with labels: their head runs on those alone."""
        return labels is None or not self.training if output_logits is None else output_logits


def head_dropout(config: BertConfig) -> Dropout:
    """The dropout in front of a task head."""
    p = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    return Dropout(p, config.num_hidden_layers, "head")


def selected_pieces(labels: Tensor | None) -> Tensor | None:
    """The numbers of the pieces with a label."""
    return None if labels is None else (labels != IGNORED_LABEL).nonzero().squeeze(1)


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Squared error, cross-entropy or binary cross-entropy; shape and type decide if there is no `problem_type`."""
    if problem_type is None:
        if logits.shape[1] == 1:
            problem_type = "regression"
        else:
            problem_type = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    if problem_type == "single_label_classification":
        return F.cross_entropy(logits, labels.flatten())
    if labels.numel() != logits.numel():
        raise UsageError(f"labels have the shape {list(labels.shape)}, and the logits {list(logits.shape)}")
    wanted = labels.view(logits.shape).to(logits.dtype)
    if problem_type == "regression":
        return F.mse_loss(logits, wanted)
    return F.binary_cross_entropy_with_logits(logits, wanted)


def span_loss(logits: Tensor, start_positions: Tensor, end_positions: Tensor, lengths: Sequence[int]) -> Tensor:
    """The mean of the cross-entropies of start and end, from `logits` [n, 2]; ignores positions beyond a sequence."""
    padded = pad_sequence(logits.split(list(lengths)), batch_first=True, padding_value=NOWHERE)  # [B, T, 2]
    limits = torch.tensor(lengths, device=logits.device)
    losses = []
    for scores, positions in ((padded[..., 0], start_positions), (padded[..., 1], end_positions)):
        targets = positions.flatten().clamp(min=0)
        targets = targets.where(targets < limits, IGNORED_LABEL)
        losses.append(F.cross_entropy(scores, targets, ignore_index=IGNORED_LABEL))
    return torch.stack(losses).mean()
