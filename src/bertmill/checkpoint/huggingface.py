"""Hugging Face model folders: settings and named tensors, from one or several safetensors files.

Every tensor has one canonical name, without the `bert.` prefix of the body of a task model. BODY_RULES and OLD_RULES
list how the names in files differ from it: applied in order they give the canonical name, and in reverse the name in a
file. Files are read as data: no code is run and no pickle is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bertmill.checkpoint.files import CONFIG_FILE as CONFIG_FILE
from bertmill.checkpoint.files import INDEX_FILE as INDEX_FILE
from bertmill.checkpoint.files import MAX_JSON_BYTES, METADATA_FILE, TOKENIZER_FILES, WEIGHTS_FILE, weight_files
from bertmill.checkpoint.labels import resolve_labels
from bertmill.checkpoint.names import not_a_model, read_metadata
from bertmill.checkpoint.tensors import StoredTensor, stored_tensors, write_tensors
from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import (
    MANIFEST,
    new_folder,
    read_json,
    sha256_of,
    verify_listed,
    verify_manifest,
    write_file,
    write_manifest,
)

# The files that the manifest lists if the folder already existed; it may contain other files, which are not ours.
_LISTED_FILES = (CONFIG_FILE, WEIGHTS_FILE, *TOKENIZER_FILES)

# The prefixes of canonical names in heads. A model may lack a head that a file has, and vice versa.
HEADS = ("pooler.", "cls.predictions.", "cls.seq_relationship.", "classifier.", "qa_outputs.")


Rule = tuple[str, str]  # their name and ours: a prefix if it ends with a dot, otherwise a suffix

# The body of a task model.
BODY_RULES: tuple[Rule, ...] = tuple((f"bert.{part}.", f"{part}.") for part in ("embeddings", "encoder", "pooler"))
# Old files.
OLD_RULES: tuple[Rule, ...] = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))


def canonical(name: str) -> str:
    """The canonical name of a tensor in a file."""
    for theirs, ours in (*OLD_RULES, *BODY_RULES):
        name = _replaced(name, theirs, ours)
    return name


def hugging_face_name(name: str, rules: tuple[Rule, ...] = BODY_RULES) -> str:
    """The name of a tensor in the file of a task model, given its canonical name."""
    for theirs, ours in reversed(rules):
        name = _replaced(name, ours, theirs)
    return name


def _replaced(name: str, old: str, new: str) -> str:
    if old.endswith("."):
        return new + name.removeprefix(old) if name.startswith(old) else name
    return name.removesuffix(old) + new if name.endswith(old) else name


@dataclass(frozen=True)
class ModelFolder:
    """The settings of a model folder, and the tensors in its weight files by canonical name."""

    path: Path
    settings: dict[str, Any]
    tensors: dict[str, StoredTensor]
    remarks: tuple[str, ...] = ()


def read_model_settings(folder: Path) -> dict[str, Any]:
    """Read config.json; MissingError if it is missing, because then the folder is not a model folder."""
    path = folder / CONFIG_FILE
    if not path.exists():
        raise not_a_model(folder, f"is not a model folder: {CONFIG_FILE} is missing")
    return read_json(path, max_bytes=MAX_JSON_BYTES)


def open_folder(
    folder: Path, *, check_hashes: bool = True, default_settings: Mapping[str, Any] | None = None
) -> ModelFolder:
    """Read the settings and the headers of the weight files; if there is a manifest, verify their hashes first.

    `default_settings` are those of a folder without config.json, such as the checkpoints of a Trainer.
    """
    if default_settings is None or (folder / CONFIG_FILE).exists():
        settings: Mapping[str, Any] = read_model_settings(folder)
    else:
        settings = default_settings
    read_metadata(folder)  # raises IntegrityError if its format is not supported
    paths = weight_files(folder)
    if check_hashes and (folder / MANIFEST).is_file():
        verify_manifest(folder, {CONFIG_FILE, *(path.name for path in paths)})
        verify_listed(folder, (METADATA_FILE,))
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        for stored in stored_tensors(path):
            name = canonical(stored.name)
            if name in tensors:
                raise IntegrityError(f"{stored.name} is a duplicate of {tensors[name].name}", where=path)
            tensors[name] = stored
    biases = [tensors[head].shape for head in ("classifier.bias", "qa_outputs.bias") if head in tensors]
    try:
        settings, remarks = resolve_labels(settings, [shape[0] for shape in biases if len(shape) == 1])
    except UsageError as error:
        raise IntegrityError(error.what, where=folder / CONFIG_FILE) from None
    return ModelFolder(folder, settings, tensors, remarks)


def folder_sha256(folder: Path) -> str:
    """One hash of the settings and weights of a model, independent of the folder's location."""
    read_model_settings(folder)  # MissingError if this is not a model folder
    files = [folder / CONFIG_FILE, *weight_files(folder)]
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()


def write_folder(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a folder that Hugging Face can open, with a manifest. The output is deterministic.

    A new folder appears complete or not at all. In an existing folder, which may already contain a tokenizer, each file
    is replaced atomically, the manifest last.
    """
    if folder.exists():
        if not folder.is_dir():
            raise UsageError("is not a folder", where=folder)
        _write_files(folder, settings, tensors)
        write_manifest(folder, [name for name in _LISTED_FILES if (folder / name).is_file()])
    else:
        with new_folder(folder) as temporary:
            _write_files(temporary, settings, tensors)


def _write_files(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    write_file(folder / CONFIG_FILE, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    write_tensors(folder / WEIGHTS_FILE, tensors)
