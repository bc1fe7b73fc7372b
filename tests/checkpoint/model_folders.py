"""Settings of a small model, and changes to its folder as another program would make them: without our manifest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
}


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Change the tensors of a folder, as another program would: without our manifest."""
    (folder / "manifest.json").unlink(missing_ok=True)
    tensors = change(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def resettle(folder: Path, **settings: Any) -> None:
    """Change settings in config.json, as another program would: without our manifest."""
    (folder / "manifest.json").unlink(missing_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
