"""The models that fine-tuning trains or writes: with the weights of a linear model as head, or with a new head."""

from __future__ import annotations

from typing import Any

import torch

from bertmill.model.bert import BertForSequenceClassification
from bertmill.model.config import BertConfig
from bertmill.model.mean_layer import add_mean_layer, drop_mean_layer, freeze_mean_layer, has_mean_layer
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.model.probe import KEY
from bertmill.model.registry import MODEL_CLASSES
from bertmill.randomness import keyed_seed
from bertmill.tasks import has_head, head_of
from bertmill.tasks.base import AnyTask
from bertmill.training.linear_models import LinearModel


def has_own_head(model: str, task: AnyTask) -> bool:
    """Whether a model already has a head for the labels of a task, which training then continues."""
    before = BertConfig.from_pretrained(model)
    config = before.with_settings(**task.folder_entries().config)
    return (
        has_head(before, type(task))
        and head_of(before, type(task)) == task.head
        and before.id2label == config.id2label
        and before.problem_type in (None, config.problem_type)
    )


def model_with_head(
    source: str, task: AnyTask, head: LinearModel, feature: str, *, is_portable: bool, dropout: dict[str, float]
) -> BertPreTrainedModel:
    """The model `source` with a linear model of one of its features as head.

    A portable model is one of Hugging Face's classes; others are a probe.
    """
    config = _config(source, task, dropout)
    kind = MODEL_CLASSES[task.head if is_portable else task.probe]
    if not is_portable:
        config = config.with_settings(**{KEY: [feature]})
    model = kind.from_pretrained(source, config=config, new_classifier=True)
    if isinstance(model, BertForSequenceClassification):
        add_mean_layer(model)
    elif is_portable:
        drop_mean_layer(model)
    classifier: Any = model.get_submodule("classifier")
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(head.weight))
        classifier.bias.copy_(torch.from_numpy(head.bias))
    return model


def model_to_train(source: str, task: AnyTask, *, dropout: dict[str, float], seed: int) -> BertPreTrainedModel:
    """The model `source` with its own head if it has one for the labels of the task, or else with a random head."""
    config = _config(source, task, dropout)
    keeps_head = has_own_head(source, task)
    torch.manual_seed(keyed_seed(seed, "first weights"))  # for a new head
    model = MODEL_CLASSES[task.head].from_pretrained(source, config=config, new_classifier=not keeps_head)
    if not keeps_head and has_mean_layer(config):
        drop_mean_layer(model)
    freeze_mean_layer(model)
    return model


def _config(source: str, task: AnyTask, dropout: dict[str, float]) -> BertConfig:
    config = BertConfig.from_pretrained(source).with_settings(**task.folder_entries().config, **dropout)
    if KEY in (config.model_extra or {}):  # `source` is a probe
        delattr(config, KEY)
    return config
