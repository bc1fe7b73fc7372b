"""One encoder layer on flat pieces, with Hugging Face's module names.

    x = LayerNorm(x + dropout(attention(x)))
    x = LayerNorm(x + dropout(W₂ · act(W₁ · x)))

Queries, keys and values are computed in one matrix product if their modules are plain linear layers. Modules that
replace them (LoRA, quantization) or have hooks are called instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.model.attention import attend, attend_partial, attend_with_weights
from bertmill.model.config import BertConfig
from bertmill.model.dropout import Dropout
from bertmill.model.packing import Layout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}

# Must not be the width of a model: torch would treat the two sizes as one and specialize the code for it.
_PIECES_TO_COMPILE: Final = 1009
_MAX_COMPILED: Final = 64  # variants that torch may compile: training or not, one piece or more, …


class BertSelfAttention(nn.Module):
    """Multi-head self-attention, without the output projection."""

    def __init__(self, config: BertConfig, layer: int) -> None:
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.hidden_size = config.hidden_size
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(config.attention_probs_dropout_prob, layer, "attention weights")

    def forward(
        self, states: Tensor, layout: Layout, want_weights: bool, read: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Return the outputs of all pieces, or only of those at the indices `read`, and the weights if requested."""
        heads = self.num_attention_heads
        if read is not None and layout.allows_partial_queries and not want_weights:
            query = self.query(states.index_select(0, read))
            keys_values = self._joined(states, self.key, self.value)  # [n, 2·H]
            return attend_partial(query, keys_values, read, layout, heads, self.dropout), None
        qkv = self._joined(states, self.query, self.key, self.value)  # [n, 3·H]
        if want_weights:
            outputs, weights = attend_with_weights(qkv, layout, heads, self.dropout)
        else:
            outputs, weights = attend(qkv, layout, heads, self.dropout), None
        return outputs if read is None else outputs.index_select(0, read), weights

    def _joined(self, states: Tensor, *modules: nn.Linear) -> Tensor:
        # Concatenating the weights copies them. Compared with three products, one product is up to twice as slow for a
        # few pieces, equally fast if there are about as many pieces as the hidden size, and 5 to 20% faster for 4096.
        if len(states) >= states.shape[1] and all(map(is_plain_linear, modules)):
            weight = torch.cat([module.weight for module in modules])  # [modules · H, H]
            joined = F.linear(states, weight, torch.cat([module.bias for module in modules]))
        else:
            joined = torch.cat([module(states) for module in modules], dim=1)
        if joined.shape[1] != len(modules) * self.hidden_size:  # reshaping would mix the remaining heads
            what = f"queries, keys or values do not have {self.hidden_size} columns, the hidden size"
            raise UsageError(what, remedy="pruned heads are not supported")
        return joined


class BertSelfOutput(nn.Module):
    """The end of a sublayer: a linear layer, dropout, the residual, LayerNorm."""

    def __init__(self, config: BertConfig, layer: int, input_size: int, purpose: str) -> None:
        super().__init__()
        self.dense = nn.Linear(input_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob, layer, purpose)

    def forward(self, states: Tensor, residual: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dropout(self.dense(states)) + residual)
        return normed


class BertAttention(nn.Module):
    """The attention sublayer: self-attention and its output projection."""

    def __init__(self, config: BertConfig, layer: int) -> None:
        super().__init__()
        self.self = BertSelfAttention(config, layer)
        self.output = BertSelfOutput(config, layer, config.hidden_size, "attention output")

    def forward(
        self, states: Tensor, layout: Layout, want_weights: bool, read: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        outputs, weights = self.self(states, layout, want_weights, read)
        return self.output(outputs, states if read is None else states.index_select(0, read)), weights


class BertIntermediate(nn.Module):
    """The first half of the feed-forward sublayer: act(W₁ · x)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        return self.activation(self.dense(states))


class BertLayer(nn.Module):
    """One encoder layer: attention and feed-forward."""

    def __init__(self, config: BertConfig, layer: int) -> None:
        super().__init__()
        self.attention = BertAttention(config, layer)
        self.intermediate = BertIntermediate(config)
        self.output = BertSelfOutput(config, layer, config.intermediate_size, "feed-forward output")

    def forward(
        self, states: Tensor, layout: Layout, want_weights: bool, read: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """Return the vectors of all pieces, or only of those at the indices `read`, and the weights if requested.

        Everything after attention runs only for the pieces to be read, because pieces are independent there.
        """
        attended, weights = self.attention(states, layout, want_weights, read)
        return self.output(self.intermediate(attended), attended), weights

    def compile_parts(self) -> None:
        """Compile the modules around attention with torch.compile, for training with any number of pieces."""
        for part in self._around_attention:
            part.compile(dynamic=True, recompile_limit=_MAX_COMPILED)
        # Compile now, for a fixed number of pieces. Code compiled for the first batch could differ in a resumed run,
        # which starts with another batch.
        norm = self.output.LayerNorm.weight
        states = norm.new_zeros(_PIECES_TO_COMPILE, len(norm), requires_grad=norm.requires_grad)
        outputs = self.attention.self.value(states)  # has the dtype of attention's outputs under autocast
        attended = self.attention.output(outputs, states)
        result = self.output(self.intermediate(attended), attended)
        trainable = [parameter for parameter in self.parameters() if parameter.requires_grad]
        if result.requires_grad:
            torch.autograd.grad(result.sum(), trainable, allow_unused=True)

    def uncompile_parts(self) -> None:
        """Undo `compile_parts`."""
        for part in self._around_attention:
            part._compiled_call_impl = None

    @property
    def _around_attention(self) -> tuple[nn.Module, ...]:
        return self.attention.output, self.intermediate, self.output


def is_plain_linear(module: nn.Module) -> bool:
    """Whether calling `module` only multiplies by its weight and adds its bias."""
    return (
        type(module) is nn.Linear
        and module.bias is not None
        and "forward" not in module.__dict__
        and not (
            module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        )
    )
