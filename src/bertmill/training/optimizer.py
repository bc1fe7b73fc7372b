"""AdamW for BERT: weight decay on matrices only, gradient clipping, and optimizer state as named tensors.

Bias correction is on (Google's code has none, a known cause of unstable fine-tuning). Biases and the parameters of
LayerNorm do not decay. The state is named after the parameters, so it can be saved as safetensors and restored
whatever the order of the parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPSILON = 1e-6
_STATE_KINDS = ("exp_avg", "exp_avg_sq", "step")


def make_optimizer(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over the trainable parameters of `model`; `set_rate` sets the learning rate before each step."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    undecayed = _names_without_decay(model)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (others if name in undecayed else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=0.0, betas=BETAS, eps=EPSILON, fused=True)


def _names_without_decay(model: nn.Module) -> set[str]:
    names = set()
    for module_name, module in model.named_modules():
        for name, _ in module.named_parameters(prefix=module_name, recurse=False):
            if isinstance(module, nn.LayerNorm) or name.endswith("bias"):
                names.add(name)
    return names


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def gradient_norm(model: nn.Module) -> float:
    """The norm of all gradients together; not finite if any gradient is not."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def clip_gradients(model: nn.Module, norm: float, max_norm: float) -> None:
    """Scale the gradients down to `max_norm` if `norm`, their norm, exceeds it."""
    if norm > max_norm:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        torch._foreach_mul_(gradients, max_norm / (norm + 1e-6))


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The state of the optimizer as tensors named `<kind>.<parameter>`."""
    return {
        f"{kind}.{name}": optimizer.state[parameter][kind]
        for name, parameter in model.named_parameters()
        for kind in _STATE_KINDS
        if kind in optimizer.state.get(parameter, {})
    }


def optimizer_shapes(model: nn.Module, saved: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of `optimizer_tensors` for the parameters that have some in `saved`.

    A parameter that has not been updated has none.
    """
    return {
        f"{kind}.{name}": () if kind == "step" else tuple(parameter.shape)
        for name, parameter in model.named_parameters()
        if any(f"{kind}.{name}" in saved for kind in _STATE_KINDS)
        for kind in _STATE_KINDS
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    for name, parameter in model.named_parameters():
        state = {kind: tensors[f"{kind}.{name}"] for kind in _STATE_KINDS if f"{kind}.{name}" in tensors}
        optimizer.state.pop(parameter, None)
        if state:
            optimizer.state[parameter] = {
                # torch keeps the step count of a fused optimizer on the parameter's device
                kind: tensor.to(parameter.device).clone()
                for kind, tensor in state.items()
            }
