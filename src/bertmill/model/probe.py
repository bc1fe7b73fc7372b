"""Linear classifiers on features of a frozen encoder, which Hugging Face's classes cannot express.

`config.probe_features` names the features. Of a sequence:

    mean     tanh(0.1 · LayerNorm(m)), where m is the mean of the last layer: what a model with a mean layer computes
    layers   the mean of every layer, the embeddings included, each scaled to the norm 1/√(layers + 1)
    apart    for a pair: [u, v, |u − v|, √H · u · v, 10 · cos(u, v)], where u and v are the means of its texts, each
             encoded on its own and scaled to norm 1; regularization hardly affects the last value

Of a piece: `last`, its vector in the last layer, and `layers`, its vector in every layer, scaled as above.

A feature of a text that is read in several windows is the weighted mean over its windows, as logits are, and a linear
classifier of the mean is the mean of its outputs. Training therefore fits it to the features of whole texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import IntegrityError
from bertmill.model.bert import BertModel
from bertmill.model.config import BertConfig
from bertmill.model.mean_layer import num_encoder_layers, pooled_mean
from bertmill.model.outputs import PieceOutput, Result, SequenceOutput
from bertmill.model.packing import PackedBatch
from bertmill.model.pretrained import BertPreTrainedModel

KEY = "probe_features"  # in config.json
COSINE_SCALE = 10.0
ONLY_OURS = "transformers cannot open this model: it has no class for these features"


class Probe(BertPreTrainedModel):
    """The encoder and a linear layer on its features. Inputs are packed batches."""

    FEATURES: ClassVar[tuple[str, ...]]  # that may be named in the config
    PORTABLE: ClassVar[str]  # the feature that one of Hugging Face's classes can express too
    OF_PAIRS: ClassVar[tuple[str, ...]] = ()  # features that only pairs of texts have
    PER_PIECE: ClassVar[bool] = False  # whether there is a row of features per piece

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        names = getattr(config, KEY, None)
        is_listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        if not is_listed or not names or not set(names) <= set(self.FEATURES) or len(set(names)) < len(names):
            raise IntegrityError(f"config.json: {KEY} must name some of {', '.join(self.FEATURES)}, not {names!r}")
        num_features = sum(self.feature_sizes(config, names).values())
        self.classifier: nn.Module = nn.Linear(num_features, config.num_labels)
        self.initialize()

    @staticmethod
    def feature_sizes(config: BertConfig, names: Sequence[str]) -> dict[str, int]:
        """The number of values of each feature, in the order of `names`."""
        size = config.hidden_size
        sizes = {"layers": (num_encoder_layers(config) + 1) * size, "apart": 4 * size + 1}
        return {name: sizes.get(name, size) for name in names}

    def _layers(self, batch: PackedBatch) -> Tensor:
        """The vectors of all pieces in the embeddings and every layer of the encoder [layers + 1, n, H]."""
        states = self.bert.encode(batch, False, True).hidden_states
        assert states is not None
        return torch.stack(states[: num_encoder_layers(self.config) + 1])


class BertForSequenceProbe(Probe):
    """One row of logits per sequence."""

    FEATURES = ("mean", "layers", "apart")
    PORTABLE = "mean"
    OF_PAIRS = ("apart",)

    def forward(self, batch: PackedBatch) -> Result:
        """Return the logits [B, labels]."""
        names: Sequence[str] = getattr(self.config, KEY)
        parts: dict[str, Tensor] = {}
        if {"mean", "layers"} & set(names):
            means = _means(self._layers(batch), batch.lengths)  # [B, layers + 1, H]
            parts = {"mean": pooled_mean(means[:, -1]), "layers": _scaled(means).flatten(1)}
        if "apart" in names:
            parts["apart"] = self._apart(batch)
        return SequenceOutput(logits=self.classifier(torch.cat([parts[name] for name in names], 1)))

    def _apart(self, batch: PackedBatch) -> Tensor:
        """The two texts of each pair, compared. A sequence with a single text is compared with itself."""
        texts = _split_pairs(batch)
        means = _means(self._layers(texts)[-1:], texts.lengths)[:, 0]  # [2 · B, H]
        first, second = F.normalize(means).view(len(batch.lengths), 2, -1).unbind(1)
        product = first * second
        cosine = COSINE_SCALE * product.sum(1, keepdim=True)
        return torch.cat([first, second, (first - second).abs(), first.shape[1] ** 0.5 * product, cosine], 1)


class BertForWordProbe(Probe):
    """One row of logits per piece."""

    FEATURES = ("last", "layers")
    PORTABLE = "last"
    PER_PIECE = True

    def forward(self, batch: PackedBatch) -> Result:
        """Return the logits [n, labels]."""
        layers = self._layers(batch).transpose(0, 1)  # [n, layers + 1, H]
        parts = {"last": layers[:, -1], "layers": _scaled(layers).flatten(1)}
        return PieceOutput(logits=self.classifier(torch.cat([parts[name] for name in getattr(self.config, KEY)], 1)))


def _means(layers: Tensor, lengths: Sequence[int]) -> Tensor:
    """The mean over the pieces of each sequence: [layers, n, H] → [B, layers, H]."""
    parts: tuple[Tensor, ...] = layers.split(list(lengths), 1)
    return torch.stack([of_sequence.mean(1) for of_sequence in parts])


def _scaled(layers: Tensor) -> Tensor:
    """Scale the vector of every layer in [B, layers, H] so that together they have norm 1."""
    scaled: Tensor = F.normalize(layers, dim=2) / layers.shape[1] ** 0.5
    return scaled


def _split_pairs(batch: PackedBatch) -> PackedBatch:
    """Turn each sequence `[CLS] A [SEP] B [SEP]` into the two sequences `[CLS] A [SEP]` and `[CLS] B [SEP]`."""
    assert batch.piece_ids is not None
    assert batch.segments is not None
    ids: list[Tensor] = []
    for pieces, segments in zip(batch.piece_ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True):
        first, second = pieces[segments == 0], pieces[segments == 1]
        ids += [first, torch.cat([pieces[:1], second]) if len(second) else first]
    return PackedBatch(torch.cat(ids), [len(each) for each in ids])
