"""Hugging Face model folders ↔ a dict of settings and named tensors.

Reading is in three steps, and nothing is allocated for weights before the last: the settings (a JSON file, limited
in size), the names, shapes and types of the tensors (the headers of one or several safetensors files),
and a plan that finds a source for every tensor the model wants. What the plan cannot explain is one error that
lists all differences. Names are compared in one form: without the `bert.` of a body inside a task model, and with
`weight`/`bias` for the `gamma`/`beta` of old files. Files are read as data; no code and no pickle is ever run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bertmill.checkpoint.names import CONFIG_FILE as CONFIG_FILE
from bertmill.errors import IntegrityError, ResourceError, UsageError
from bertmill.storage import (
    MANIFEST,
    new_file,
    new_folder,
    read_json,
    sha256_of,
    verify_manifest,
    write_file,
    write_manifest,
)

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
VOCABULARY_FILE = "vocab.txt"
PICKLED_FILE = "pytorch_model.bin"

_MAX_JSON_BYTES = 4 << 20
_MAX_LISTED = 500  # differences in one message: more than BERT-large has tensors
# What a manifest lists of a folder that was there before; other people's files in it are none of our business.
_LISTED_FILES = (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, "tokenizer.json", "tokenizer_config.json")
_MAX_LABELS = 1 << 16
_FLOAT_TYPES = ("F64", "F32", "F16", "BF16")

# A model may lack these, or have them where the file does not: a head is new until it is trained.
HEADS = ("pooler.", "cls.predictions.", "cls.seq_relationship.", "classifier.", "qa_outputs.")
# Numbers 0, 1, 2, … and zeros that older versions saved with the weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# Second names of one tensor.
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_OLD_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

Shape = tuple[int, ...]


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is and what it looks like, known without reading it."""

    path: Path
    name: str
    shape: Shape
    dtype: str


@dataclass
class LoadReport:
    """What became of the tensors of a folder, and which ones a model has that the folder has not."""

    folder: Path
    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} tensors loaded from {self.folder}"]
        if self.new:
            lines.append(f"{len(self.new)} new, as expected (random until trained): {_heads_of(self.new)}")
        if self.ignored:
            lines.append(f"{len(self.ignored)} ignored, as expected (this model has no use): {_heads_of(self.ignored)}")
        return "\n".join([*lines, *self.remarks])


@dataclass(frozen=True)
class ModelFolder:
    """The settings of a folder and what its weight files hold, keyed by the one form of names."""

    path: Path
    settings: dict[str, Any]
    tensors: dict[str, StoredTensor]
    remarks: tuple[str, ...] = ()


def read_model_settings(folder: Path) -> dict[str, Any]:
    """What the file says by which a folder is known to hold a model."""
    path = folder / CONFIG_FILE
    if not path.exists():
        raise UsageError(f"is no model: there is no {CONFIG_FILE} in it", where=folder)
    return read_json(path, max_bytes=_MAX_JSON_BYTES)


def open_folder(folder: Path, *, check_hashes: bool = True) -> ModelFolder:
    """Read settings and headers; the hashes of our manifest are checked first when there is one."""
    settings = read_model_settings(folder)
    paths = _weight_files(folder)
    if check_hashes and (folder / MANIFEST).is_file():
        verify_manifest(folder, {CONFIG_FILE, *(path.name for path in paths)})
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        for stored in _read_header(path):
            name = canonical(stored.name)
            if name in tensors:
                raise IntegrityError(f"{stored.name} is there twice, also as {tensors[name].name}", where=path)
            tensors[name] = stored
    settings, remarks = _settle_labels(settings, tensors)
    return ModelFolder(folder, settings, tensors, remarks)


def folder_sha256(folder: Path) -> str:
    """One hash of a model: its settings and its weights, wherever it lies."""
    read_model_settings(folder)  # tells if there are none
    files = [folder / CONFIG_FILE, *_weight_files(folder)]
    return hashlib.sha256("".join(map(sha256_of, files)).encode()).hexdigest()


def canonical(name: str) -> str:
    """The one form of a tensor's name: no `bert.` in front, no `gamma` or `beta` at the end."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix("bert.")


def load_tensors(folder: ModelFolder, wanted: Mapping[str, Shape]) -> tuple[dict[str, Tensor], LoadReport]:
    """The tensors `wanted` by name and shape, as float32; those that are new as expected are left out.

    IntegrityError, listing every difference, when the folder is not explained by what is wanted.
    """
    sources, report = plan_loading(folder, wanted)
    _check_ties(folder, sources)
    tensors = {}
    with _Reader() as reader:
        for name, stored in sources.items():
            tensors[name] = reader.read(stored)
    return tensors, report


def read_tensors(folder: ModelFolder) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the folder, one at a time, under the name it has there."""
    with _Reader() as reader:
        for stored in folder.tensors.values():
            yield stored.name, reader.read(stored)


def write_folder(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write settings and tensors so that Hugging Face opens them; with our manifest, and the same bytes every time.

    A new folder appears whole or not at all. In an existing one (a tokenizer may be there already) each file is
    replaced whole, the manifest last.
    """
    if folder.exists():
        if not folder.is_dir():
            raise UsageError("is not a folder", where=folder)
        _write_files(folder, settings, tensors)
        write_manifest(folder, [name for name in _LISTED_FILES if (folder / name).is_file()])
    else:
        with new_folder(folder) as temporary:
            _write_files(temporary, settings, tensors)


def check_vocabulary_size(folder: Path, vocab_size: int) -> None:
    """IntegrityError when vocab.txt, if there is one, names more pieces than the embedding has rows."""
    path = folder / VOCABULARY_FILE
    if path.is_file():
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
        if lines > vocab_size:
            raise IntegrityError(f"has {lines:,} pieces, and the model's embedding {vocab_size:,} rows", where=path)


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    index_path = folder / INDEX_FILE
    if not index_path.is_file():
        if (folder / PICKLED_FILE).is_file():
            raise UsageError(
                f"has only {PICKLED_FILE}, a pickle, which could run code",
                where=folder,
                remedy="save it as safetensors with the program that wrote it",
            )
        raise IntegrityError(f"has no {WEIGHTS_FILE}", where=folder)
    shards = read_json(index_path, max_bytes=_MAX_JSON_BYTES).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        raise IntegrityError("has no weight_map from tensors to files", where=index_path)
    return [_shard(folder, index_path, name) for name in sorted(set(shards.values()))]


def _shard(folder: Path, index_path: Path, name: str) -> Path:
    # A plain file name: the files themselves may be links, as in the hub's cache.
    if name in ("", ".", "..") or any(character in name for character in "/\\\0"):
        raise IntegrityError(f"the file name {name!r} leads out of the folder", where=index_path)
    if not (folder / name).is_file():
        raise IntegrityError("is missing", where=folder / name)
    return folder / name


def _read_header(path: Path) -> list[StoredTensor]:
    with _Reader() as reader:
        file = reader.open(path)
        stored = []
        for name in file.keys():  # noqa: SIM118 (not a dict)
            part = file.get_slice(name)
            stored.append(StoredTensor(path, name, tuple(part.get_shape()), part.get_dtype()))
        return stored


class _Reader:
    """Safetensors files, each opened once, with their errors in our words."""

    def __init__(self) -> None:
        self._files: dict[Path, Any] = {}

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()

    def open(self, path: Path) -> Any:
        if path not in self._files:
            try:
                self._files[path] = safe_open(path, framework="pt")
            except (SafetensorError, OSError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise IntegrityError(f"is not a whole safetensors file: {reason}", where=path) from None
        return self._files[path]

    def read(self, stored: StoredTensor) -> Tensor:
        # A copy of our own: the file's memory changes when somebody writes to the file.
        tensor: Tensor = self.open(stored.path).get_tensor(stored.name)
        return tensor.to(torch.float32, copy=True)


def plan_loading(folder: ModelFolder, wanted: Mapping[str, Shape]) -> tuple[dict[str, StoredTensor], LoadReport]:
    """A source for every wanted tensor that has one, or all the reasons why this is not possible."""
    report = LoadReport(folder.path, remarks=list(folder.remarks))
    sources: dict[str, StoredTensor] = {}
    problems: list[str] = []
    second_names = {first: second for second, first in _TIED.items()}
    by_canonical = {canonical(name): name for name in wanted}
    for name, wanted_name in by_canonical.items():
        stored = folder.tensors.get(name) or folder.tensors.get(second_names.get(name, ""))
        if stored is None and _head_is_absent(name, folder.tensors):
            report.new.append(wanted_name)
        elif stored is None:
            problems.append(f"{wanted_name} {list(wanted[wanted_name])} is missing")
        elif stored.shape != tuple(wanted[wanted_name]):
            problems.append(f"{wanted_name} is {list(stored.shape)} and should be {list(wanted[wanted_name])}")
        elif stored.dtype not in _FLOAT_TYPES:
            problems.append(f"{wanted_name} is of type {stored.dtype}, not one of {', '.join(_FLOAT_TYPES)}")
        else:
            sources[wanted_name] = stored
            report.loaded.append(wanted_name)
    for name, stored in folder.tensors.items():
        if name in by_canonical or _TIED.get(name) in by_canonical:
            continue
        if name in _BUFFERS or name.startswith(HEADS):
            report.ignored.append(stored.name)
        else:
            problems.append(f"{stored.name} {list(stored.shape)} is not expected")
    if problems:
        more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
        listed = "; ".join(problems[:_MAX_LISTED] + more)
        raise IntegrityError(f"the weights do not fit the settings: {listed}", where=folder.path)
    return sources, report


def _head_is_absent(name: str, tensors: Iterable[str]) -> bool:
    """Whether `name` belongs to a head of which the folder has nothing at all."""
    heads = [head for head in HEADS if name.startswith(head)]
    return bool(heads) and not any(other.startswith(heads[0]) for other in tensors)


def _check_ties(folder: ModelFolder, sources: Mapping[str, StoredTensor]) -> None:
    """Tensors under a second name must say the same as under the first."""
    used = {canonical(name): stored for name, stored in sources.items()}
    with _Reader() as reader:
        for second, first in _TIED.items():
            other = folder.tensors.get(second)
            if other is None or first not in used or other == used[first] or not _wants_head(second, used):
                continue
            if other.shape != used[first].shape or not torch.equal(reader.read(other), reader.read(used[first])):
                raise IntegrityError(
                    f"{other.name} differs from {used[first].name}; a model with two such tables is not offered here",
                    where=folder.path,
                )


def _wants_head(second: str, used: Iterable[str]) -> bool:
    head = next(head for head in HEADS if second.startswith(head))
    return any(name.startswith(head) for name in used)


def _settle_labels(
    settings: dict[str, Any], tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """When `num_labels` and `id2label` disagree, the head's own shape says which of them is right."""
    names, count = settings.get("id2label"), settings.get("num_labels")
    if not isinstance(names, dict) or not isinstance(count, int) or len(names) == count:
        return settings, ()
    shapes = [tensors[head].shape for head in ("classifier.bias", "qa_outputs.bias") if head in tensors]
    rows = [shape[0] for shape in shapes if len(shape) == 1 and 0 < shape[0] <= _MAX_LABELS]
    if count in rows:
        known = {str(key): value for key, value in names.items()}
        names = {str(index): known.get(str(index), f"LABEL_{index}") for index in range(count)}
    remark = f"num_labels is {count} and id2label names {len(settings['id2label'])}: taken are the {len(names)} labels"
    kept = {key: value for key, value in settings.items() if key not in ("num_labels", "label2id")}
    return {**kept, "id2label": names}, (f"{remark} of the {'head' if count in rows else 'names'}",)


def _write_files(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    write_file(folder / CONFIG_FILE, json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
    write_tensors(folder / WEIGHTS_FILE, tensors)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file, the same bytes every time."""
    with new_file(path) as temporary:
        try:
            # One metadata key only: with more, safetensors writes them in another order every time.
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, {"format": "pt"})
        except SafetensorError as error:  # not an OSError, even when the disk is full
            raise ResourceError(f"cannot be written: {error}", where=path) from None


def _heads_of(names: Iterable[str]) -> str:
    """The tensors' names, those of one head as its name."""
    shown = []
    for name in names:
        short = canonical(name)
        shown.append(next((head.removesuffix(".") for head in HEADS if short.startswith(head)), name))
    return ", ".join(dict.fromkeys(shown))
