"""Read and write named tensors in safetensors files.

Names, shapes and types of tensors come from a file's header; no memory is allocated for a tensor until it is read.
A safetensors file contains only data: reading it runs no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertmill.errors import IntegrityError, ResourceError
from bertmill.storage import new_file, refuse_moved

FLOAT_TYPES = ("F64", "F32", "F16", "BF16")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its location, shape and type, known without reading it."""

    path: Path
    name: str
    shape: Shape
    dtype: str


def stored_tensors(path: Path) -> list[StoredTensor]:
    """List the tensors in a file, without reading them."""
    file = _open(path)
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    return [StoredTensor(path, name, tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()]


def read_tensors(wanted: Iterable[StoredTensor]) -> Iterator[Tensor]:
    """Yield the tensors as float32, one at a time. Every file is opened once."""
    files: dict[Path, Any] = {}
    for stored in wanted:
        if stored.path not in files:
            files[stored.path] = _open(stored.path)
        # Copied, because the file is memory-mapped and its content changes if another process writes to it.
        yield files[stored.path].get_tensor(stored.name).to(torch.float32, copy=True)


def read_all_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file with their own types."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise _incomplete(path, error) from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file. The output is deterministic."""
    with new_file(path) as temporary:
        try:
            # A single metadata key: safetensors writes several in a random order.
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {"format": "pt"})
        except SafetensorError as error:  # not an OSError, even if the disk is full
            refuse_moved(path)
            raise ResourceError(f"cannot be written: {error}", where=path) from None


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise _incomplete(path, error) from None


def _incomplete(path: Path, error: Exception) -> IntegrityError:
    reason = str(error).splitlines()[0]
    return IntegrityError(f"is not a complete safetensors file: {reason}", where=path)
