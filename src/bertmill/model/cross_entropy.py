"""The mean cross-entropy of a linear layer's logits, without ever holding all of them.

A vocabulary of 30,000 makes the logits of a batch larger than everything else in the model. Here a few hundred
rows at a time are multiplied, compared with their targets and turned into gradients at once:
    log p = log_softmax(x·Wᵀ + b);  loss = -mean log p[target];  ∂logits = (p - onehot(target)) / n
The gradients of x, W and b are therefore ready when the loss is, and the logits of a chunk are forgotten.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Logits at a time: large enough for full speed of the products, small enough to stay near the caches.
_ELEMENTS_PER_CHUNK = 1 << 23


def linear_cross_entropy(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Mean over the rows of `states` [n, H] of -log softmax(states·weightᵀ + bias)[target]; NaN without rows."""
    wanted = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (states, weight, bias))
    loss: Tensor = _LinearCrossEntropy.apply(states, weight, bias, targets, wanted)  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, wanted: bool) -> Tensor:
        rows = max(1, _ELEMENTS_PER_CHUNK // len(weight))
        loss = states.new_zeros(())
        gradients = tuple(torch.zeros_like(tensor) for tensor in (states, weight, bias)) if wanted else ()
        for start in range(0, len(states), rows):
            chunk = slice(start, start + rows)
            logits = torch.addmm(bias, states[chunk], weight.t())  # [rows, V]
            log_p = F.log_softmax(logits, dim=1)
            del logits
            loss -= log_p.gather(1, targets[chunk, None]).sum()
            if wanted:
                of_logits = _probabilities_minus_targets(log_p, targets[chunk])
                _add_gradients(gradients, chunk, states, weight, of_logits, 1 / len(states))
        ctx.save_for_backward(*gradients)
        return loss / len(states)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        scale = above[0]
        # The usual factor is 1, and W is large.
        gradients = ctx.saved_tensors if scale == 1 else [tensor * scale for tensor in ctx.saved_tensors]
        return (*gradients, None, None)


def _probabilities_minus_targets(log_p: Tensor, targets: Tensor) -> Tensor:
    of_logits = log_p.exp_()
    rows = torch.arange(len(targets), device=targets.device)
    of_logits[rows, targets] -= 1
    return of_logits


def _add_gradients(
    gradients: tuple[Tensor, ...], chunk: slice, states: Tensor, weight: Tensor, of_logits: Tensor, scale: float
) -> None:
    """What one chunk of rows adds to the gradients of states, weight and bias."""
    of_states, of_weight, of_bias = gradients
    torch.addmm(of_states[chunk], of_logits, weight, beta=0, alpha=scale, out=of_states[chunk])
    of_weight.addmm_(of_logits.t(), states[chunk], alpha=scale)
    of_bias.add_(of_logits.sum(0), alpha=scale)
