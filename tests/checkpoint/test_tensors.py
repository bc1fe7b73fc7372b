"""Named tensors are listed, read and written in safetensors files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertmill.checkpoint.tensors import StoredTensor, read_tensors, stored_tensors, write_tensors
from bertmill.errors import IntegrityError

TENSORS = {"b": torch.arange(6, dtype=torch.float16).view(2, 3), "a": torch.ones(4), "count": torch.tensor([7])}


def test_tensors_are_listed_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    stored = {each.name: each for each in stored_tensors(path)}
    assert stored["b"] == StoredTensor(path, "b", (2, 3), "F16")
    assert {name: each.dtype for name, each in stored.items()} == {"a": "F32", "b": "F16", "count": "I64"}


def test_tensors_are_read_as_float32_copies_in_the_requested_order(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_tensors(tmp_path / name, {key: tensor.t() for key, tensor in TENSORS.items()})  # not contiguous
    wanted = [each for name in ("y", "x") for each in stored_tensors(tmp_path / name) if each.name != "count"]
    tensors = list(read_tensors(wanted))
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    (tmp_path / "x").write_bytes(b"\xff" * (tmp_path / "x").stat().st_size)
    for each, tensor in zip(wanted, tensors, strict=True):
        assert torch.equal(tensor, TENSORS[each.name].t().float())


def test_files_of_identical_tensors_are_byte_identical(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write_tensors(tmp_path / name, TENSORS)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize("content", [b"", b"not a file of tensors", (1 << 60).to_bytes(8, "little") + b"{}"])
def test_an_invalid_safetensors_file_is_an_integrity_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(IntegrityError, match="x: is not a complete safetensors file"):
        stored_tensors(tmp_path / "x")
