"""Mean cross-entropy of a linear layer's logits, without storing all logits at once.

With a vocabulary of 30,000, the logits of a batch are larger than everything else in the model. Here, a few hundred
rows at a time are multiplied, compared with their targets and turned into gradients in one buffer:
    p = softmax(x·Wᵀ + b);  loss = mean(log Σ exp - logit of the target);  ∂logits = (p - onehot(target)) / n
So the forward pass computes the gradients of x, W and b along with the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bertmill.errors import UsageError

# Logits per chunk: large enough for full matmul speed, small enough to fit in cache.
_ELEMENTS_PER_CHUNK = 1 << 23
# Columns of the vocabulary per product: one product of few rows with 30,000 columns is up to 1.5× slower (MKL).
_COLUMNS_PER_PRODUCT = 2048
# Rows of logits start at multiples of this many elements (a cache line). Otherwise, products are a sixth slower.
_ALIGNMENT = 16


def linear_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and the number of correct predictions.

    - Loss: the mean over the rows of `states` [n, H] of -log softmax(states·weightᵀ + bias)[target]; NaN without rows.
    - Correct predictions: rows whose target has the largest logit.
    """
    if (
        targets.device.type == "cpu"
        and len(targets)
        and not 0 <= int(targets.min()) <= int(targets.max()) < len(weight)
    ):
        raise UsageError(f"a label is outside the vocabulary: labels must be from 0 to {len(weight) - 1}")
    states = states.to(weight.dtype)  # the dtypes differ under autocast
    with_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (states, weight, bias))
    result: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, with_gradients
    )
    return result


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, with_gradients: bool
    ) -> tuple[Tensor, Tensor]:
        n, V = len(states), len(weight)
        loss = states.new_zeros((), dtype=torch.float32)
        num_right = torch.zeros_like(loss, dtype=torch.int64)
        gradients = tuple(map(torch.zeros_like if n == 0 else torch.empty_like, (states, weight, bias)))
        rows = -(-n // max(1, -(-n * V // _ELEMENTS_PER_CHUNK)))  # per chunk; chunks are as even as possible
        aligned = -(-V // _ALIGNMENT) * _ALIGNMENT
        buffer = states.new_empty(rows, aligned)
        for start in range(0, n, rows or 1):
            chunk = slice(start, min(start + rows, n))
            logits = buffer[: chunk.stop - start]  # [rows, aligned]; columns beyond V have probability 0
            logits[:, V:] = -torch.inf
            _multiply(states[chunk], weight, bias, out=logits)
            of_targets = logits.gather(1, targets[chunk, None])[:, 0]
            largest = logits.amax(1)
            num_right += (of_targets == largest).sum()
            loss += _softmax_and_loss(logits, of_targets, largest)
            if with_gradients:
                logits[torch.arange(len(logits), device=targets.device), targets[chunk]] -= 1
                _add_gradients(gradients, chunk, states, weight, logits[:, :V], 1 / n)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(num_right)
        return (loss / n).to(states.dtype), num_right

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # requested with create_graph
            raise RuntimeError("the MLM loss has no second derivative; compute the loss from the logits instead")
        scale = above[0]
        # The factor is usually 1, and multiplying the large gradient of W would take time.
        gradients = ctx.saved_tensors if scale == 1 else [tensor * scale for tensor in ctx.saved_tensors]
        return (*gradients, None, None)


def _multiply(states: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> None:
    for start in range(0, len(weight), _COLUMNS_PER_PRODUCT):
        columns = slice(start, min(start + _COLUMNS_PER_PRODUCT, len(weight)))
        torch.addmm(bias[columns], states, weight[columns].t(), out=out[:, columns])


def _softmax_and_loss(logits: Tensor, of_targets: Tensor, largest: Tensor) -> Tensor:
    """Turn logits [rows, columns] into probabilities in place; return the sum over rows of -log p[target]."""
    torch.softmax(logits, 1, out=logits)
    # The largest probability is exp(largest - log Σ exp). It is never so small that its logarithm loses precision.
    # Logits are subtracted first: their difference is exact even if they are large, unlike log Σ exp - target.
    return ((largest - of_targets) - logits.amax(1).log()).sum(dtype=torch.float32)


def _add_gradients(
    gradients: tuple[Tensor, ...], chunk: slice, states: Tensor, weight: Tensor, grad_logits: Tensor, scale: float
) -> None:
    """Add the gradients of one chunk of rows to those of states, weight and bias. The first chunk overwrites them."""
    grad_states, grad_weight, grad_bias = gradients
    keep = 0 if chunk.start == 0 else 1
    torch.addmm(grad_states[chunk], grad_logits, weight, beta=0, alpha=scale, out=grad_states[chunk])
    torch.addmm(grad_weight, grad_logits.t(), states[chunk], beta=keep, alpha=scale, out=grad_weight)
    ones = states.new_ones(len(grad_logits))
    torch.addmv(grad_bias, grad_logits.t(), ones, beta=keep, alpha=scale, out=grad_bias)
