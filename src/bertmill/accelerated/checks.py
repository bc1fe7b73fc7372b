"""Which calls of a `transformers` model bertmill can serve. The others go to the model's own forward, call by call.

A check that fails raises `NotServed` with a reason for the report.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module

from bertmill.accelerated import transformers_internals as internals
from bertmill.model import bert

# Arguments that are not inputs. The last two change nothing in these models.
SETTINGS = ("return_dict", "output_attentions", "output_hidden_states", "num_items_in_batch", "use_cache")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
_TARGETS = ("labels", "next_sentence_label", "start_positions", "end_positions")
_LABELS_PER_PIECE = ("BertForPreTraining", "BertForMaskedLM", "BertForTokenClassification")


class NotServed(Exception):  # noqa: N818 (not an error: the call is served by transformers)
    """Why a call goes to the model's own forward: a reason that is counted, and details for the warning."""

    def __init__(self, reason: str, details: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.details = details


def check_call(model: Any, given: Mapping[str, Any], states: Any, weights: Any) -> None:
    """Check the settings of `model` and the arguments `given`; `states` and `weights` are the outputs requested."""
    _check_torch()
    config = model.config
    if config.is_decoder or config.add_cross_attention or getattr(config, "is_causal", None):
        raise NotServed("a decoder or causal attention")
    if config._attn_implementation not in ("sdpa", "eager"):
        raise NotServed(f"attention implementation {config._attn_implementation}")
    if not internals.has_own_attention(config._attn_implementation):
        raise NotServed("a custom attention function")
    if weights:
        raise NotServed("output_attentions")  # what transformers returns depends on the attention implementation
    if states not in (True, False, None):
        raise NotServed("hidden states of selected layers")
    if states and torch.is_grad_enabled() and _needs_gradients(model, given):
        raise NotServed("hidden states that need gradients")  # retain_grad() on them would see no gradient
    _check_tensors(type(model).__name__, given)


def _check_torch() -> None:
    if torch._C._get_tracing_state() is not None or torch.compiler.is_exporting():
        raise NotServed("torch.export or torch.jit.trace")
    if torch._C._are_functorch_transforms_active():
        raise NotServed("torch.func")
    if forward_ad._current_level >= 0:
        raise NotServed("forward-mode differentiation")
    if torch_module._has_any_global_hook():
        raise NotServed("a global module hook")


def _needs_gradients(model: nn.Module, given: Mapping[str, Any]) -> bool:
    return any(parameter.requires_grad for parameter in model.parameters()) or any(
        getattr(value, "requires_grad", False) for value in given.values()
    )


def _check_tensors(class_name: str, given: Mapping[str, Any]) -> None:
    accepted = _arguments_of(class_name)
    for name, value in given.items():
        if name not in accepted:
            raise NotServed(f"the argument {name}")
        if type(value) not in (Tensor, nn.Parameter) or value.is_meta:
            raise NotServed(f"{name} is not a plain tensor")
    pieces = given["input_ids"] if "input_ids" in given else given.get("inputs_embeds")
    mask = given.get("attention_mask")
    if mask is not None:
        if pieces is not None and mask.device != pieces.device:
            raise NotServed("an attention mask on another device")
        if mask.ndim != (3 if class_name == "BertForMultipleChoice" else 2):
            raise NotServed("an attention mask that is not [batch, length]")
        if not bool(mask.any(-1).all()):
            raise NotServed("a fully masked sequence")
    labels = given.get("labels")
    if labels is not None and class_name in _LABELS_PER_PIECE and (pieces is None or labels.shape != pieces.shape[:2]):
        raise NotServed("labels and inputs have different shapes")


@cache
def _arguments_of(class_name: str) -> frozenset[str]:
    """The inputs and targets of bertmill's class of this name."""
    return frozenset(inspect.signature(getattr(bert, class_name).forward).parameters) & {*_INPUTS, *_TARGETS}


def modules_of(model: nn.Module) -> list[nn.Module]:
    """Return `model` and everything below it. Much faster than `model.modules()`, which matters for short inputs."""
    modules = [model]
    for module in modules:  # grows during the loop
        for child in module._modules.values():
            if child is not None:
                modules.append(child)  # in a loop, because a generator per module takes twice as long
    return modules


def check_hooks(model: nn.Module, modules: Sequence[nn.Module], replaced: Mapping[type, Any]) -> None:
    """Check that nothing but bertmill watches or replaces the forward of a module below `model`.

    `replaced` maps a class to the forward that bertmill gives its models.
    """
    for module in modules[1:]:
        own = module.__dict__
        if own["_forward_hooks"] and not all(map(internals.is_harmless, own["_forward_hooks"].values())):
            raise NotServed(f"a hook on {_name_of(module, model)}")
        if own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
            raise NotServed(f"a hook on {_name_of(module, model)}")
        if "forward" in own:
            function, module_type = getattr(own["forward"], "__func__", None), type(module)
            if function is None or (function is not module_type.forward and function is not replaced.get(module_type)):
                raise NotServed(f"a replaced forward of {_name_of(module, model)}")
        if "feed_forward_chunk" in own:  # the only other method of a layer that is looked up for every call
            raise NotServed(f"a replaced feed_forward_chunk of {_name_of(module, model)}")


def check_module_types(model: nn.Module) -> None:
    """Check that all modules below `model` are of kinds that bertmill replaces or can call with rows of pieces."""
    for name, module in model.named_modules():
        module_type = type(module)
        known = module_type in internals.CONTAINERS or module_type in internals.LEAVES or internals.is_adapter(module)
        if not (known or module is model or name.rpartition(".")[2] in internals.ACTIVATIONS):
            # With its module, because a quantized layer is also called Linear.
            raise NotServed(f"{name} is a {module_type.__module__}.{module_type.__qualname__}")


def forwards_of(modules: Sequence[nn.Module]) -> dict[type[nn.Module], Any]:
    """Return the forwards that the classes of `modules` should have: those of `transformers` and torch."""
    for module_type in {type(module) for module in modules} & internals.PATCHED:
        raise NotServed(f"a patched forward of {module_type.__name__}")
    return {
        module_type: internals.FORWARDS[module_type]
        for module_type in map(type, modules)
        if module_type in internals.FORWARDS
    }


def check_forwards(forwards: Mapping[type[nn.Module], Any]) -> None:
    """Check that classes still have the forwards that they had when `transformers` was imported."""
    for module_type, forward in forwards.items():
        if module_type.forward is not forward:
            raise NotServed(f"a patched forward of {module_type.__name__}")


def check_parameters(parameters: Sequence[Mapping[str, Tensor | None]]) -> None:
    """Check that parameters, by module, are plain tensors with data: not quantized, sharded or offloaded."""
    for of_module in parameters:
        for parameter in of_module.values():
            if parameter is not None and (type(parameter) not in (nn.Parameter, Tensor) or parameter.is_meta):
                raise NotServed("parameters that are not plain tensors")


def _name_of(module: nn.Module, model: nn.Module) -> str:
    return next(str(name) for name, each in model.named_modules() if each is module)
