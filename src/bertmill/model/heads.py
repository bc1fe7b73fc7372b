"""What stands on top of the encoder, with Hugging Face's module names: masked words, next sentence, losses.

The masked-word head is decoder(LayerNorm(act(W·x))); the decoder's weight is the piece embedding itself and its
bias is the head's own `bias` (two names for one parameter, as in Hugging Face's state dicts).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.cross_entropy import linear_cross_entropy
from bertmill.model.layers import ACTIVATIONS, is_plain_linear
from bertmill.model.packing import IGNORED_LABEL


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
        # On no device: `tie` gives it its weight and bias.
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
        """The mean cross-entropy of `states` [n, H] against `targets` [n], and how many of them it guesses right."""
        if not is_plain_linear(self.decoder):  # LoRA, a hook: it is called as it is
            logits = self(states)
            return F.cross_entropy(logits, targets), (logits.argmax(1) == targets).sum()
        return linear_cross_entropy(self.transform(states), self.decoder.weight, self.decoder.bias, targets)


class BertOnlyMLMHead(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)


class BertOnlyNSPHead(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class BertPreTrainingHeads(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.predictions = BertLMPredictionHead(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


def selected(labels: Tensor) -> Tensor:
    """The places of the labels that count."""
    return (labels != IGNORED_LABEL).nonzero().squeeze(1)


def classification_loss(logits: Tensor, labels: Tensor, problem_type: str | None) -> Tensor:
    """Squared error, cross-entropy or one yes/no per label, as `problem_type` says or shape and dtype suggest."""
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


def span_loss(
    start_logits: Tensor, end_logits: Tensor, start_positions: Tensor, end_positions: Tensor, lengths: Tensor
) -> Tensor:
    """The mean of the two cross-entropies over columns [B, T]; a position beyond its sequence does not count."""
    losses = []
    for logits, positions in ((start_logits, start_positions), (end_logits, end_positions)):
        wanted = positions.flatten().clamp(min=0)
        wanted = wanted.where(wanted < lengths, IGNORED_LABEL)
        losses.append(F.cross_entropy(logits, wanted, ignore_index=IGNORED_LABEL))
    return torch.stack(losses).mean()
