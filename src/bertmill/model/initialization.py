"""Initial weights of a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
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


def new_modules(model: nn.Module, body: str, names: Collection[str] | None) -> Iterator[nn.Module]:
    """Yield the modules of `model` whose parameters are all in `names` (None: any); inner modules first.

    Parameters of the body, whose names start with `body`, do not count, and modules that directly have some are left
    out, such as a tied decoder.
    """
    first_names = {parameter: name for name, parameter in model.named_parameters()}
    for module in reversed(list(model.modules())):
        direct = [first_names[each] for each in module.parameters(recurse=False)]
        inside = [first_names[each] for each in module.parameters() if not first_names[each].startswith(body)]
        is_new = inside and (names is None or all(name in names for name in inside))
        if is_new and not any(name.startswith(body) for name in direct):
            yield module


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
