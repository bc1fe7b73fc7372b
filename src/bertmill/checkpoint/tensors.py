"""Named tensors from and to files: what a file holds, one tensor at a time, and a new file.

The names, shapes and types of tensors come from a file's header; no memory is allocated for weights until one is read.
The format is safetensors, which is data only: reading a file runs no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertmill.errors import IntegrityError, ResourceError
from bertmill.storage import new_file

FLOAT_TYPES = ("F64", "F32", "F16", "BF16")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its place, shape and type, known without reading it."""

    path: Path
    name: str
    shape: Shape
    dtype: str


def stored_tensors(path: Path) -> list[StoredTensor]:
    """The tensors of a file."""
    file = _open(path)
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    return [StoredTensor(path, name, tuple(each.get_shape()), each.get_dtype()) for name, each in slices.items()]


def read_tensors(wanted: Iterable[StoredTensor]) -> Iterator[Tensor]:
    """The tensors as float32, one after another. Every file is opened once."""
    files: dict[Path, Any] = {}
    for stored in wanted:
        if stored.path not in files:
            files[stored.path] = _open(stored.path)
        # A copy: the file is mapped into memory, and its content changes if somebody writes to it.
        yield files[stored.path].get_tensor(stored.name).to(torch.float32, copy=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file; equal tensors give equal bytes."""
    with new_file(path) as temporary:
        try:
            # A single metadata key: safetensors writes several in a random order.
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {"format": "pt"})
        except SafetensorError as error:  # not an OSError, even if the disk is full
            raise ResourceError(f"cannot be written: {error}", where=path) from None


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise IntegrityError(f"is not a whole safetensors file: {reason}", where=path) from None
