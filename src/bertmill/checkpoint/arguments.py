"""Arguments of Hugging Face's `from_pretrained` and `save_pretrained` that have no effect here.

Each table lists, by name, the values that are accepted because they change nothing, and why any other is rejected.
Arguments that mean something, such as `dtype`, are parameters of the methods themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

from bertmill.errors import UsageError


class Accepted(NamedTuple):
    """The accepted values of an argument (None: any), and the reason for rejecting others."""

    values: tuple[Any, ...] | None
    reason: str = ""


_ANY = Accepted(None)
_OFF = (None, False)
_NO_PICKLE = "weights are only read and written as safetensors, because a pickle file could run code"
_USE_TRANSFORMERS = "load the model with transformers"

LOADING: dict[str, Accepted] = {
    "use_safetensors": Accepted((None, True), _NO_PICKLE),
    "weights_only": _ANY,
    "trust_remote_code": Accepted(_OFF, "code in model folders is never run"),
    "attn_implementation": Accepted((None, "eager", "sdpa"), "bertmill has its own attention"),
    "experts_implementation": Accepted((None,), "BERT has no experts"),
    "low_cpu_mem_usage": _ANY,
    "use_fast": _ANY,
    "disable_mmap": _ANY,
    "fusion_config": Accepted((None,), _USE_TRANSFORMERS),
    "force_download": Accepted(_OFF, "delete the model from the Hugging Face cache to download it again"),
    "resume_download": _ANY,
    "proxies": Accepted((None,), "set HTTPS_PROXY"),
    "subfolder": Accepted((None, ""), "pass the path of the folder"),
    "variant": Accepted((None,), "only model.safetensors is read"),
    "from_tf": Accepted(_OFF, _NO_PICKLE),
    "from_flax": Accepted(_OFF, _NO_PICKLE),
    "gguf_file": Accepted((None,), "only model.safetensors is read"),
    "state_dict": Accepted((None,), "build the model from a config and call load_state_dict"),
    "key_mapping": Accepted((None,), "parameter names must be those of BERT"),
    "quantization_config": Accepted((None,), _USE_TRANSFORMERS),
    "load_in_8bit": Accepted(_OFF, _USE_TRANSFORMERS),
    "load_in_4bit": Accepted(_OFF, _USE_TRANSFORMERS),
    "max_memory": Accepted((None,), "a model is on one device"),
    "offload_folder": Accepted((None,), "a model is on one device"),
    "offload_state_dict": Accepted(_OFF, "a model is on one device"),
    "offload_buffers": Accepted(_OFF, "a model is on one device"),
    "tp_plan": Accepted((None,), "a model is on one device"),
    "tp_size": Accepted((None,), "a model is on one device"),
    "device_mesh": Accepted((None,), "a model is on one device"),
    "distributed_config": Accepted((None,), "a model is on one device"),
}
SAVING: dict[str, Accepted] = {
    "distributed_checkpoint": Accepted(_OFF, "a model is on one device"),
    "safe_serialization": Accepted((None, True), _NO_PICKLE),
    "save_function": _ANY,  # of accelerate, whose documentation passes it with is_main_process
    "max_shard_size": _ANY,  # one file can hold any BERT
    "push_to_hub": Accepted(_OFF, "upload the folder with huggingface_hub"),
    "repo_id": Accepted((None,), "upload the folder with huggingface_hub"),
    "commit_message": Accepted((None,), "upload the folder with huggingface_hub"),
    "token": _ANY,
    "variant": Accepted((None,), "the file is named model.safetensors"),
    "save_peft_format": _ANY,
    "save_original_format": _ANY,
    "legacy_format": _ANY,
    "filename_prefix": Accepted((None, ""), "file names are fixed"),
}


class HubArguments(TypedDict, total=False):
    """Arguments of `find_model`."""

    revision: str | None
    cache_dir: str | Path | None
    token: str | bool | None
    local_files_only: bool


def hub_arguments(arguments: dict[str, Any]) -> HubArguments:
    """Remove the arguments of `find_model` from `arguments`, and return them."""
    taken = {name: arguments.pop(name) for name in HubArguments.__annotations__ if name in arguments}
    return cast(HubArguments, taken)


def check_and_drop(arguments: dict[str, Any], table: dict[str, Accepted]) -> None:
    """Remove the arguments in `table` from `arguments`; UsageError for a value that is not accepted."""
    for name in [name for name in arguments if name in table]:
        value = arguments.pop(name)
        accepted = table[name]
        if accepted.values is not None and not any(value is each or value == each for each in accepted.values):
            raise UsageError(f"{name}={value!r} is not supported", remedy=accepted.reason)


def require_none_left(arguments: dict[str, Any], function: str) -> None:
    """Raise UsageError if `arguments` is not empty."""
    if arguments:
        raise UsageError(f"{function} has no argument {', '.join(arguments)}")
