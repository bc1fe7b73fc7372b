"""The files of a model folder: their names, and which of them contain the weights."""

from __future__ import annotations

from pathlib import Path

from bertmill.errors import IntegrityError, MissingError
from bertmill.storage import read_json

CONFIG_FILE = "config.json"
METADATA_FILE = "bertmill.json"  # the task, its settings and provenance
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"  # of weights in several files
PICKLED_FILE = "pytorch_model.bin"
VOCABULARY_FILE = "vocab.txt"
PIPELINE_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
VOCABULARY_FILES = (PIPELINE_FILE, VOCABULARY_FILE)  # a tokenizer needs one of them
TOKENIZER_FILES = (VOCABULARY_FILE, PIPELINE_FILE, TOKENIZER_CONFIG_FILE)
MAX_JSON_BYTES = 4 << 20


def weight_files(folder: Path) -> list[Path]:
    """Return the files with the weights; MissingError or IntegrityError if one is missing."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    index_path = folder / INDEX_FILE
    if not index_path.is_file():
        if (folder / PICKLED_FILE).is_file():
            raise MissingError(
                f"contains only {PICKLED_FILE}, a pickle file, which could run code",
                where=folder,
                remedy="save the model as safetensors with the program that wrote it",
            )
        raise IntegrityError(f"has no {WEIGHTS_FILE}", where=folder)
    shards = read_json(index_path, max_bytes=MAX_JSON_BYTES).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise IntegrityError("has no valid weight_map from tensor names to file names", where=index_path)
    return [_shard(folder, index_path, name) for name in sorted(set(shards.values()))]


def _shard(folder: Path, index_path: Path, name: str) -> Path:
    # Only plain file names are allowed; the file itself may be a link, as in the Hugging Face cache.
    if name in ("", ".", "..") or any(character in name for character in "/\\\0"):
        raise IntegrityError(f"the file name {name!r} points outside the folder", where=index_path)
    if not (folder / name).is_file():
        raise IntegrityError("is missing", where=folder / name)
    return folder / name
