"""Training checkpoints: `step-000123/` with weights, optimizer and state, each complete or absent.

    weights.safetensors     the tensors of the model by name
    optimizer.safetensors   the tensors of the optimizer, as `<kind>.<parameter>`
    state.json              the state of the training run: step, seconds, sums since the last line of the log
    manifest.json           size and sha256 of the three files; written last

A folder is filled under a temporary name and renamed (storage.py), so a kill at any moment leaves older checkpoints
intact. Reading takes the newest complete checkpoint and reports those that were skipped.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bertmill.checkpoint.tensors import read_all_tensors, write_tensors
from bertmill.errors import BertmillError
from bertmill.storage import TEMPORARY_PREFIX, new_folder, read_json, refuse_moved, verify_manifest

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
SKIPPED = "skipped checkpoint: "
_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to resume."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]


def checkpoint_path(folder: Path, step: int) -> Path:
    """The folder of the checkpoint of `step`."""
    return folder / f"step-{step:06d}"


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write the checkpoint of `step`; an existing checkpoint of that step is identical and is kept."""
    path = checkpoint_path(folder, step)
    if path.exists():
        return path
    with new_folder(path) as temporary:
        write_tensors(temporary / WEIGHTS, checkpoint.weights)
        write_tensors(temporary / OPTIMIZER, checkpoint.optimizer)
        (temporary / STATE).write_text(json.dumps(checkpoint.state, indent=1) + "\n", encoding="utf-8")
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; IntegrityError if a file is missing, truncated or changed."""
    verify_manifest(path, (WEIGHTS, OPTIMIZER, STATE))
    weights, optimizer = read_all_tensors(path / WEIGHTS), read_all_tensors(path / OPTIMIZER)
    return Checkpoint(weights, optimizer, read_json(path / STATE))


def saved_steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, complete or not, in ascending order."""
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(name[1]) for name in names if name)


def newest_complete(
    folder: Path, check: Callable[[int, Checkpoint], object] = lambda _step, _checkpoint: None
) -> tuple[int | None, Checkpoint | None, list[str]]:
    """The step of the newest usable checkpoint, the checkpoint, and a note for every newer one that was skipped.

    `check` raises IntegrityError if a checkpoint that can be read cannot be used.
    """
    remarks: list[str] = []
    for step in reversed(saved_steps(folder)):
        try:
            checkpoint = load_checkpoint(checkpoint_path(folder, step))
            check(step, checkpoint)
            return step, checkpoint, remarks
        except BertmillError as error:
            remarks.append(f"{SKIPPED}{error.where}: {error.what}")
    return None, None, remarks


def remove_checkpoints(folder: Path, keep: Collection[int | None]) -> None:
    """Remove all checkpoints except those of the steps in `keep`."""
    refuse_moved(folder)
    for step in sorted(set(saved_steps(folder)) - set(keep)):
        remove_folder(checkpoint_path(folder, step))


def remove_folder(path: Path) -> None:
    """Remove a folder whose existence means that it is complete."""
    # Rename first: a kill in between must not leave an incomplete folder under its name.
    hidden = path.rename(path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(4)}"))
    shutil.rmtree(hidden, ignore_errors=True)
