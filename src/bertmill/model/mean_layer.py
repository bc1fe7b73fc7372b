"""Mean pooling as an ordinary layer, so that a classifier on the mean of all vectors is a plain Hugging Face folder.

The mean layer follows the layers of the encoder. Its queries and keys are zero, so every piece attends to all pieces
alike; its values and its attention output are GAIN times the identity, and its feed-forward sublayer is zero:

    LayerNorm(x + GAIN² · mean) ≈ LayerNorm(mean)

for every piece, in particular for [CLS], which the pooler reads. The pooler is POOLER_SCALE times the identity, where
tanh is nearly linear. The mean layer is never trained, so it stays a mean; `mean_layer` in config.json marks it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bertmill.model.bert import BertForSequenceClassification
from bertmill.model.config import BertConfig
from bertmill.model.layers import BertLayer
from bertmill.model.pretrained import BertPreTrainedModel

KEY = "mean_layer"  # in config.json
GAIN = 32.0  # [CLS] itself contributes a thousandth; larger numbers might overflow in float16
POOLER_SCALE = 0.1


def has_mean_layer(config: BertConfig) -> bool:
    """Whether the last layer of a model is a mean layer."""
    return bool(getattr(config, KEY, False))


def num_encoder_layers(config: BertConfig) -> int:
    """The number of layers without the mean layer."""
    return config.num_hidden_layers - has_mean_layer(config)


def pooled_mean(means: Tensor) -> Tensor:
    """What the pooler returns for sequences whose vectors have these means [B, H]."""
    return torch.tanh(POOLER_SCALE * F.layer_norm(means, means.shape[-1:]))


@torch.no_grad()
def add_mean_layer(model: BertForSequenceClassification) -> None:
    """Make the pooler return `pooled_mean`: append a mean layer, unless the model has one, and set the pooler."""
    config, body = model.config, model.bert
    if not has_mean_layer(config):
        layer = BertLayer(config, config.num_hidden_layers).train(model.training)
        body.encoder.layer.append(layer)
        model.config = body.config = config.with_settings(num_hidden_layers=config.num_hidden_layers + 1, **{KEY: True})
        for name, parameter in layer.named_parameters():
            parameter.fill_(float(name.endswith("LayerNorm.weight")))
        for linear in (layer.attention.self.value, layer.attention.output.dense):
            linear.weight.fill_diagonal_(GAIN)
    assert body.pooler is not None
    body.pooler.dense.weight.copy_(POOLER_SCALE * torch.eye(config.hidden_size))
    body.pooler.dense.bias.zero_()
    freeze_mean_layer(model)


def drop_mean_layer(model: BertPreTrainedModel) -> None:
    """Remove the mean layer, if the model has one, for a head that reads the vectors of pieces."""
    config = model.config
    if has_mean_layer(config):
        body = model.base_model
        del body.encoder.layer[-1]
        kept = config.with_settings(num_hidden_layers=config.num_hidden_layers - 1, **{KEY: False})
        model.config = body.config = kept


def freeze_mean_layer(model: BertPreTrainedModel) -> None:
    """Exclude the mean layer from training, if the model has one."""
    if has_mean_layer(model.config):
        model.base_model.encoder.layer[-1].requires_grad_(False)
