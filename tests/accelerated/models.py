"""Pairs of the same model, untouched and accelerated, their inputs, and checks of the calls that were served."""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import bertmill
from tests.model.equality import SMALL, as_tuple, padded_inputs

V = SMALL["vocab_size"]
WITHOUT_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def untouched(name: str, **settings: Any) -> Any:
    """Return a small model of `transformers` without dropout, with random biases, in evaluation mode."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**SMALL, **WITHOUT_DROPOUT})
    for key, value in settings.items():
        if callable(value):
            vars(config)[key] = value  # the class validates, and rejects callables
        else:
            setattr(config, key, value)
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return model.eval()


def pair(name: str, *, compute_padding: bool = False, logits: bool = True, **settings: Any) -> tuple[Any, Any]:
    """Return an accelerated model and an untouched one with the same weights."""
    theirs = untouched(name, **settings)
    return bertmill.accelerate(copy.deepcopy(theirs), logits=logits, compute_padding=compute_padding), theirs


def inputs_for(name: str, **how: Any) -> dict[str, Tensor]:
    inputs = padded_inputs(V, **how)
    if name == "BertForMultipleChoice":
        return {key: value.view(-1, 2, value.shape[1]) for key, value in inputs.items()}
    return inputs


def counts(model: nn.Module) -> tuple[int, dict[str, int]]:
    """Return the calls served and the reasons of the others."""
    report = bertmill.acceleration(model)
    return report.served, report.fallbacks


def assert_falls_back(fast: Any, theirs: Any, reason: str, **given: Any) -> None:
    """Check that the call is that of the untouched model, counted under `reason`."""
    inputs = {**inputs_for(type(fast).__name__), **given}
    before = counts(fast)[0]
    mine, other = fast(**copy.deepcopy(inputs)), theirs(**inputs)
    for one, two in zip(mine.to_tuple(), other.to_tuple(), strict=True):
        for a, b in zip(as_tuple(one), as_tuple(two), strict=True):
            assert type(a) is type(b)
            assert not isinstance(a, Tensor) or torch.equal(a, b)
    assert counts(fast) == (before, {reason: 1})


def served_or_not(fast: Any) -> tuple[int, dict[str, int]]:
    """Call the model, whatever its own forward makes of it."""
    try:
        with torch.no_grad():
            fast(**inputs_for(type(fast).__name__))
    except Exception:
        return counts(fast)
    return counts(fast)
