"""Pre-training heads and the losses of all heads, with Hugging Face's module names.

The MLM head is decoder(LayerNorm(act(W·x))). The weight of the decoder is the piece embedding, and its bias is the
`bias` of the head: two names of one parameter, as in Hugging Face's state dicts.
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
from bertmill.model.outputs import MASKED_LOGIT
from bertmill.model.packing import IGNORED_LABEL
from bertmill.model.pretrained import BertPreTrainedModel


class BertPredictionHeadTransform(nn.Module):
    """The MLM head before its decoder: LayerNorm(act(W·x))."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.activation(self.dense(states)))
        return normed


class BertLMPredictionHead(nn.Module):
    """The MLM head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = BertPredictionHeadTransform(config)
        # Not allocated, because `tie` sets its weight and bias.
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, device="meta")
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def tie(self, word_embeddings: nn.Embedding) -> None:
        """Make the piece embedding the weight of the decoder, and `bias` its bias."""
        self.decoder.weight = word_embeddings.weight
        self.decoder.bias = self.bias

    def forward(self, states: Tensor) -> Tensor:
        """Return logits over the vocabulary [n, V]."""
        logits: Tensor = self.decoder(self.transform(states))
        return logits

    def loss(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean cross-entropy of `states` [n, H] and `targets` [n], and the number of correct predictions."""
        if not is_plain_linear(self.decoder):  # a replacement (LoRA) or a module with hooks must be called
            logits = self(states)
            return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).sum()
        return linear_cross_entropy(self.transform(states), self.decoder.weight, self.decoder.bias, targets)

    def predict(
        self, encoded: Encoded, labels: Tensor | None, selected: Tensor | None, with_logits: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the logits of all pieces if requested and, with labels, the loss and number of correct predictions."""
        loss = num_right = None
        if labels is not None and selected is not None:
            loss, num_right = self.loss(encoded.vectors_at(selected), labels.index_select(0, selected))
        logits = self(encoded.vectors()) if with_logits else None  # [n, V]
        return logits, loss, num_right


class BertPreTrainingHeads(nn.Module):
    """The pre-training heads: MLM, next-sentence prediction, or both."""

    def __init__(self, config: BertConfig, *, mlm: bool = True, next_sentence: bool = True) -> None:
        super().__init__()
        if mlm:
            self.predictions = BertLMPredictionHead(config)
        if next_sentence:
            self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertWithMaskedLM(BertPreTrainedModel):
    """Base class of models with an MLM head. The decoder stays tied to the piece embedding if either changes."""

    cls: Any  # a head with `predictions`

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.get_input_embeddings())

    def adopt_shared_parameters(self) -> None:
        bias = getattr(self.cls.predictions.decoder, "bias", None)
        self.cls.predictions.bias = bias if isinstance(bias, nn.Parameter) else None  # a wrapper may have none

    def resize_token_embeddings(self, *arguments: Any, **named: Any) -> nn.Embedding:
        embeddings, head = super().resize_token_embeddings(*arguments, **named), self.cls.predictions
        if head.decoder.out_features != self.config.vocab_size:
            head.bias = self._resized("cls.predictions.bias", head.bias)
            head.decoder.out_features = self.config.vocab_size
            self.tie_weights()
        return embeddings

    def get_output_embeddings(self) -> nn.Linear:
        """As in Hugging Face: the decoder of the MLM head."""
        decoder: nn.Linear = self.cls.predictions.decoder
        return decoder

    def wants_logits(self, labels: Tensor | None, output_logits: bool | None) -> bool:
        """Whether to compute all logits: by default always, except in training mode with labels."""
        return labels is None or not self.training if output_logits is None else output_logits


def head_dropout(config: BertConfig) -> Dropout:
    """Return the dropout in front of a task head."""
    p = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
    return Dropout(p, config.num_hidden_layers, "head")


def selected_pieces(labels: Tensor | None) -> Tensor | None:
    """Return the indices of the pieces with a label."""
    return None if labels is None else (labels != IGNORED_LABEL).nonzero().squeeze(1)


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Return the squared error, cross-entropy or binary cross-entropy.

    Without `problem_type`, the number of logits and the dtype of `labels` decide which.
    """
    if problem_type is None:
        if logits.shape[1] == 1:
            problem_type = "regression"
        else:
            problem_type = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
    if problem_type == "single_label_classification":
        return F.cross_entropy(logits, labels.flatten())
    targets = labels[:, None] if labels.ndim == 1 and logits.shape[1] == 1 else labels
    if targets.shape != logits.shape:
        raise UsageError(f"labels have shape {list(labels.shape)}, but the logits have shape {list(logits.shape)}")
    # As in Hugging Face, float32 labels are not rounded to the lower precision that logits have under autocast.
    dtype = torch.promote_types(logits.dtype, targets.dtype if targets.is_floating_point() else torch.float32)
    loss = F.mse_loss if problem_type == "regression" else F.binary_cross_entropy_with_logits
    return loss(logits.to(dtype), targets.to(dtype))


def span_loss(logits: Tensor, start_positions: Tensor, end_positions: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the mean cross-entropy of start and end for `logits` [n, 2], ignoring positions beyond a sequence."""
    padded = pad_sequence(logits.split(list(lengths)), batch_first=True, padding_value=MASKED_LOGIT)  # [B, T, 2]
    limits = torch.tensor(lengths, device=logits.device)
    losses = []
    for scores, positions in ((padded[..., 0], start_positions), (padded[..., 1], end_positions)):
        targets = positions.flatten().clamp(min=0)
        targets = targets.where(targets < limits, IGNORED_LABEL)
        losses.append(F.cross_entropy(scores, targets, ignore_index=IGNORED_LABEL))
    return torch.stack(losses).mean()
