"""Interpret Hugging Face's arguments: dtypes, device maps, loading info, sizes and unused inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from bertmill.checkpoint.huggingface import ModelFolder
from bertmill.checkpoint.load_plan import LoadReport
from bertmill.errors import UsageError
from bertmill.machine import choose_device

_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # in safetensors files
# Inputs of Hugging Face's models that BERT does not use, with the only values that change nothing; None: any value.
_UNUSED_INPUTS: dict[str, tuple[Any, ...] | None] = {
    "head_mask": (None,),
    "past_key_values": (None,),
    "encoder_hidden_states": (None,),
    "encoder_attention_mask": (None,),
    "cache_position": None,
    "num_items_in_batch": None,
    "use_cache": None,
}


def device_in(device_map: Any) -> torch.device | None:
    """The only device in `device_map`; None if it is None."""
    if device_map is None:
        return None
    devices = set(device_map.values()) if isinstance(device_map, Mapping) else {device_map}
    device = next(iter(devices), None)
    if len(devices) != 1 or str(device) in ("balanced", "balanced_low_0", "sequential", "disk"):
        raise UsageError(f"device_map={device_map!r} is not supported", remedy="a model is on one device")
    return choose_device(f"cuda:{device}" if isinstance(device, int) else str(device))


def dtype_of(wanted: str | torch.dtype | None, folder: ModelFolder) -> torch.dtype:
    """The dtype that was asked for: float32 if None, and for "auto" that of the folder."""
    if wanted == "auto":
        stored = (each.dtype for each in folder.tensors.values())
        wanted = next((_DTYPES[name] for name in stored if name in _DTYPES), None)
    if wanted is None:
        return torch.float32
    found = getattr(torch, wanted.removeprefix("torch."), None) if isinstance(wanted, str) else wanted
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(
            f"dtype={wanted!r} is not a floating-point dtype", remedy="use float32, bfloat16, float16 or auto"
        )
    return found


def loading_info(report: LoadReport) -> dict[str, Any]:
    """The differences between a folder and a model, as in Hugging Face."""
    mismatched = {name for name, *_ in report.mismatched}
    return {
        "missing_keys": set(report.new) - mismatched,
        "unexpected_keys": set(report.ignored),
        "mismatched_keys": set(report.mismatched),
        "error_msgs": [],
    }


def clone_tied_parameters(module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
    """In a state dict, copy tied parameters under their second name: safetensors rejects tensors that share memory."""
    first_names = {name for name, _ in module.named_parameters()}
    for name, _ in module.named_parameters(remove_duplicate=False):
        if name not in first_names and not isinstance(state.get(prefix + name), nn.Parameter | None):
            state[prefix + name] = state[prefix + name].clone()


def padded_size(current: int, wanted: int | None, multiple: int | None) -> int:
    """The size of a vocabulary: `wanted`, by default `current`, rounded up to a multiple of `multiple`."""
    size = current if wanted is None else wanted
    if multiple is None:
        return size
    if type(multiple) is not int or multiple < 1:
        raise UsageError(f"pad_to_multiple_of must be a positive integer, not {multiple!r}")
    return -(-size // multiple) * multiple


def without_unused_inputs(forward: Callable[..., Any], named: dict[str, Any]) -> dict[str, Any]:
    """Drop the inputs that neither BERT nor `forward` uses; UsageError if a value would change the result."""
    unused = _UNUSED_INPUTS.keys() & named.keys()
    if unused:
        unused.difference_update(inspect.signature(forward).parameters)  # a subclass may use some
    for name in unused:
        allowed = _UNUSED_INPUTS[name]
        if allowed is not None and named[name] not in allowed:
            raise UsageError(f"{name} is not supported", remedy="load the model with transformers")
    return {name: value for name, value in named.items() if name not in unused}
