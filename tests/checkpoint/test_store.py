"""Training checkpoints are complete or absent, and the newest complete one is found."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from bertmill.checkpoint import store
from bertmill.checkpoint.store import (
    Checkpoint,
    checkpoint_path,
    load_checkpoint,
    newest_complete,
    remove_checkpoints,
    save_checkpoint,
    saved_steps,
)
from bertmill.errors import IntegrityError


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint({"w": torch.full((3,), float(step))}, {"exp_avg.w": torch.zeros(3)}, {"step": step})


def test_a_checkpoint_is_read_as_saved_and_not_overwritten(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 7, checkpoint(7))
    assert save_checkpoint(tmp_path, 7, checkpoint(8)) == path == checkpoint_path(tmp_path, 7)
    loaded = load_checkpoint(path)
    assert torch.equal(loaded.weights["w"], torch.full((3,), 7.0))
    assert (list(loaded.optimizer), loaded.state) == (["exp_avg.w"], {"step": 7})


def test_the_newest_complete_checkpoint_is_found_and_damaged_ones_are_reported(tmp_path: Path) -> None:
    assert newest_complete(tmp_path / "absent") == (None, None, [])
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, checkpoint(step))
    (checkpoint_path(tmp_path, 3) / "weights.safetensors").write_bytes(b"cut")
    (checkpoint_path(tmp_path, 2) / "manifest.json").unlink()
    with pytest.raises(IntegrityError):
        load_checkpoint(checkpoint_path(tmp_path, 3))
    step, found, remarks = newest_complete(tmp_path)
    assert (step, found.state) == (1, {"step": 1})
    assert len(remarks) == 2
    assert "step-000003" in remarks[0]


def test_checkpoints_that_are_not_in_keep_are_removed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, checkpoint(step))
    remove_checkpoints(tmp_path, keep=(2, None))
    assert saved_steps(tmp_path) == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["step-000002"]


def test_the_store_does_not_import_the_hugging_face_module() -> None:
    tree = ast.parse(Path(store.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "bertmill.checkpoint.huggingface" not in imported
