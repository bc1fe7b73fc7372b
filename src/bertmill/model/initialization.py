"""Initial weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bertmill.checkpoint.huggingface import canonical
from bertmill.model.config import BertConfig

# Truncating a normal distribution at two standard deviations multiplies its standard deviation by 0.8796.
_CUT_AT = 2.0
_LEFT_BY_CUTTING = 0.8796256610342398


def initialize_parameter(name: str, parameter: nn.Parameter, layer: nn.Module, config: BertConfig) -> None:
    """Initialize the parameter `name` of a Linear, Embedding or LayerNorm in place; others keep their values."""
    if isinstance(layer, nn.LayerNorm):
        nn.init.constant_(parameter, float(name.endswith("weight")))
    elif isinstance(layer, nn.Linear | nn.Embedding):
        initialize_tensor(name, parameter.data, config)


@torch.no_grad()
def initialize_tensor(name: str, tensor: Tensor, config: BertConfig) -> None:
    """Initialize the parameter `name` in place.

    - LayerNorm weights are 1. Biases and the embedding of the padding piece are 0.
    - Other weights are normal, truncated at 2σ, with a standard deviation of `initializer_range` after truncation.
    """
    if name.endswith("LayerNorm.weight"):
        tensor.fill_(1.0)
    elif name.endswith("bias"):
        tensor.zero_()
    else:
        uncut = config.initializer_range / _LEFT_BY_CUTTING
        nn.init.trunc_normal_(tensor, std=uncut, a=-_CUT_AT * uncut, b=_CUT_AT * uncut)
        if canonical(name) == "embeddings.word_embeddings.weight" and config.pad_token_id is not None:
            tensor[config.pad_token_id].zero_()


@contextmanager
def without_values() -> Iterator[None]:
    """Modules built in this context have parameters with shapes but no values: they are on the device `meta`."""
    with torch.device("meta"), _NoInitialization():
        yield


class _NoInitialization(TorchFunctionMode):
    """Skips the functions of torch.nn.init. On the device `meta` they set nothing, but import torch._dynamo (1 s)."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...] = (), named: Any = None
    ) -> Any:
        if getattr(function, "__module__", None) == nn.init.__name__:
            return named["tensor"]
        return function(*arguments, **(named or {}))
