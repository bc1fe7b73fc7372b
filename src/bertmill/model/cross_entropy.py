"""The mean cross-entropy of a linear layer's logits, without ever holding all of them.

A vocabulary of 30,000 makes the logits of a batch larger than everything else in the model. Here a few hundred
rows at a time are multiplied, compared with their targets and turned into gradients at once, in one buffer:
    p = softmax(x·Wᵀ + b);  loss = mean(log Σ exp - logit of the target);  ∂logits = (p - onehot(target)) / n
The gradients of x, W and b are therefore ready when the loss is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertmill.errors import UsageError

# Logits at a time: large enough for full speed of the products, small enough to stay near the caches.
_ELEMENTS_PER_CHUNK = 1 << 23
# Pieces of the vocabulary per product: one product of few rows with 30,000 columns is up to 1.5 × slower (MKL).
_COLUMNS_PER_PRODUCT = 2048
# Rows of logits begin at multiples of so many elements, a cache line: the products are a sixth slower otherwise.
_ALIGNMENT = 16


def linear_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over the rows of `states` [n, H] of -log softmax(states·weightᵀ + bias)[target]; NaN without rows.

    And the number of rows whose target has the largest logit.
    """
    if (
        targets.device.type == "cpu"
        and len(targets)
        and not 0 <= int(targets.min()) <= int(targets.max()) < len(weight)
    ):
        raise UsageError(f"a label is not one of the {len(weight)} pieces of the vocabulary")
    states = states.to(weight.dtype)  # under autocast they come in another one
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (states, weight, bias))
    result: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, wanted
    )
    return result


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        n, V = len(states), len(weight)
        loss = states.new_zeros((), dtype=torch.float32)
        num_right = torch.zeros_like(loss, dtype=torch.int64)
        gradients = tuple(map(torch.zeros_like if n == 0 else torch.empty_like, (states, weight, bias)))
        rows = -(-n // max(1, -(-n * V // _ELEMENTS_PER_CHUNK)))  # of chunks that are as even as possible
        aligned = -(-V // _ALIGNMENT) * _ALIGNMENT
        buffer = states.new_empty(rows, aligned)
        for start in range(0, n, rows or 1):
            chunk = slice(start, min(start + rows, n))
            logits = buffer[: chunk.stop - start]  # [rows, V, and columns of probability 0 up to the alignment]
            logits[:, V:] = -torch.inf
            _multiply(states[chunk], weight, bias, out=logits)
            of_targets = logits.gather(1, targets[chunk, None])[:, 0]
            largest = logits.amax(1)
            num_right += (of_targets == largest).sum()
            loss += _softmax_and_loss(logits, of_targets, largest)
            if wanted:
                logits[torch.arange(len(logits), device=targets.device), targets[chunk]] -= 1
                _add_gradients(gradients, chunk, states, weight, logits[:, :V], 1 / n)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(num_right)
        return (loss / n).to(states.dtype), num_right

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # asked for with create_graph
            raise RuntimeError("the masked-word loss has no second derivative; compute it from the logits instead")
        scale = above[0]
        # The usual factor is 1, and W is large.
        gradients = ctx.saved_tensors if scale == 1 else [tensor * scale for tensor in ctx.saved_tensors]
        return (*gradients, None, None)


def _multiply(states: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    for start in range(0, len(weight), _COLUMNS_PER_PRODUCT):
        columns = slice(start, min(start + _COLUMNS_PER_PRODUCT, len(weight)))
        torch.addmm(bias[columns], states, weight[columns].t(), out=out[:, columns])


def _softmax_and_loss(logits: Tensor, of_targets: Tensor, largest: Tensor) -> Tensor:
    """Turn logits [rows, columns] into probabilities in place; return the sum over rows of -log p[target]."""
    torch.softmax(logits, 1, out=logits)
    # The largest probability is exp(largest - log Σ exp) and never so small that its logarithm loses digits.
    # Large numbers are subtracted first: their difference is exact, their distance to the logarithm would not be.
    return ((largest - of_targets) - logits.amax(1).log()).sum(dtype=torch.float32)


def _add_gradients(
    gradients: tuple[Tensor, ...], chunk: slice, states: Tensor, weight: Tensor, of_logits: Tensor, scale: float
) -> None:
    """What one chunk of rows adds to the gradients of states, weight and bias; the first chunk writes them."""
    of_states, of_weight, of_bias = gradients
    keep = 0 if chunk.start == 0 else 1
    torch.addmm(of_states[chunk], of_logits, weight, beta=0, alpha=scale, out=of_states[chunk])
    torch.addmm(of_weight, of_logits.t(), states[chunk], beta=keep, alpha=scale, out=of_weight)
    ones = states.new_ones(len(of_logits))
    torch.addmv(of_bias, of_logits.t(), ones, beta=keep, alpha=scale, out=of_bias)
