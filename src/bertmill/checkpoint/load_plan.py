"""Compare the tensors of a model with those in a folder: a source for every tensor, or one error with all differences.

Names are compared in their canonical form (see huggingface.py). A complete head may be missing from the folder (it is
new, and random until trained) or from the model (it is ignored). Any other difference is an error, which is raised
before any weight is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from bertmill.checkpoint.files import VOCABULARY_FILE
from bertmill.checkpoint.huggingface import HEADS, ModelFolder, canonical
from bertmill.checkpoint.tensors import FLOAT_TYPES, Shape, StoredTensor, read_tensors
from bertmill.errors import IntegrityError

_MAX_LISTED = 500  # differences in one message; BERT-large has fewer tensors than this
# Buffers of 0, 1, 2, … and of zeros that older versions saved with the weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_PIECE_EMBEDDING = "embeddings.word_embeddings.weight"
# Aliases of tied tensors.
_TIED = {"cls.predictions.decoder.weight": _PIECE_EMBEDDING, "cls.predictions.decoder.bias": "cls.predictions.bias"}


@dataclass
class LoadReport:
    """The tensors that were loaded, those that are new in the model, and those in the folder that were ignored.

    `mismatched` lists the new tensors that the folder has with another shape: name, its shape there, and in the model.
    """

    folder: Path
    loaded: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    mismatched: list[tuple[str, Shape, Shape]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{len(self.loaded)} tensors loaded from {self.folder}"]
        if self.new:
            lines.append(f"{len(self.new)} new, as expected (random until trained): {_heads_of(self.new)}")
        if self.ignored:
            lines.append(f"{len(self.ignored)} ignored, as expected (unused by this model): {_heads_of(self.ignored)}")
        return "\n".join([*lines, *self.remarks])


def load_tensors(
    folder: ModelFolder,
    wanted: Mapping[str, Shape],
    *,
    heads: tuple[str, ...] = HEADS,
    ignore_shapes: bool = False,
) -> tuple[dict[str, Tensor], LoadReport]:
    """Load the tensors `wanted` (name → shape) as float32, except those that are new.

    Raises IntegrityError, listing all differences, if the folder does not match. `heads` are prefixes of the tensors
    that may be new or ignored. With `ignore_shapes`, tensors of another shape are new, too.
    """
    sources, report = plan_loading(folder, wanted, heads=heads, ignore_shapes=ignore_shapes)
    _check_ties(folder, sources)
    return dict(zip(sources, read_tensors(sources.values()), strict=True)), report


def plan_loading(
    folder: ModelFolder,
    wanted: Mapping[str, Shape],
    *,
    heads: tuple[str, ...] = HEADS,
    ignore_shapes: bool = False,
) -> tuple[dict[str, StoredTensor], LoadReport]:
    """Find a source for every wanted tensor that is not new; IntegrityError lists all differences if there are any."""
    report = LoadReport(folder.path, remarks=list(folder.remarks))
    sources: dict[str, StoredTensor] = {}
    problems: list[str] = []
    second_names = {first: second for second, first in _TIED.items()}
    by_canonical = {canonical(name): name for name in wanted}
    for name, wanted_name in by_canonical.items():
        stored = folder.tensors.get(name) or folder.tensors.get(second_names.get(name, ""))
        if stored is None and _head_is_absent(name, folder.tensors, heads):
            report.new.append(wanted_name)
        elif stored is None:
            problems.append(f"{wanted_name} {list(wanted[wanted_name])} is missing")
        elif stored.shape != tuple(wanted[wanted_name]) and ignore_shapes:
            report.new.append(wanted_name)
            report.mismatched.append((wanted_name, stored.shape, tuple(wanted[wanted_name])))
        elif stored.shape != tuple(wanted[wanted_name]):
            problems.append(f"{wanted_name} has shape {list(stored.shape)} instead of {list(wanted[wanted_name])}")
        elif stored.dtype not in FLOAT_TYPES:
            problems.append(f"{wanted_name} has type {stored.dtype} instead of one of {', '.join(FLOAT_TYPES)}")
        else:
            sources[wanted_name] = stored
            report.loaded.append(wanted_name)
    for name, stored in folder.tensors.items():
        if name in by_canonical or _TIED.get(name) in by_canonical:
            continue
        if name in _BUFFERS or name.startswith(heads):
            report.ignored.append(stored.name)
        else:
            problems.append(f"{stored.name} {list(stored.shape)} is unexpected")
    if problems:
        more = [f"and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
        listed = "; ".join(problems[:_MAX_LISTED] + more)
        raise IntegrityError(f"the weights do not match the settings: {listed}", where=folder.path)
    embedding = by_canonical[_PIECE_EMBEDDING]
    if embedding in sources:  # not if its shape is ignored
        _check_vocabulary(folder.path, wanted[embedding][0])
    return sources, report


def _head_is_absent(name: str, tensors: Iterable[str], heads: tuple[str, ...]) -> bool:
    """Whether `name` belongs to a head that is missing completely."""
    own = [head for head in heads if name.startswith(head)]
    return bool(own) and not any(other.startswith(own[0]) for other in tensors)


def _check_vocabulary(folder: Path, num_rows: int) -> None:
    """Raise IntegrityError if there is a vocab.txt with more pieces than the embedding has rows."""
    path = folder / VOCABULARY_FILE
    if path.is_file():
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
        if lines > num_rows:
            raise IntegrityError(f"has {lines:,} pieces, but the model's embedding has {num_rows:,} rows", where=path)


def _check_ties(folder: ModelFolder, sources: Mapping[str, StoredTensor]) -> None:
    """Raise IntegrityError if a tied tensor has a different value under its alias."""
    used = {canonical(name): stored for name, stored in sources.items()}
    for second, first in _TIED.items():
        other = folder.tensors.get(second)
        has_head = any(name.startswith("cls.predictions.") for name in used)
        if other is None or first not in used or other == used[first] or not has_head:
            continue
        if other.shape != used[first].shape or not torch.equal(*read_tensors((other, used[first]))):
            raise IntegrityError(
                f"{other.name} differs from {used[first].name}; models whose MLM decoder is not tied are not supported",
                where=folder.path,
            )


def _heads_of(names: Iterable[str]) -> str:
    """List the names; tensors of a head are replaced by the name of the head."""
    shown = [next((head[:-1] for head in HEADS if canonical(name).startswith(head)), name) for name in names]
    return ", ".join(dict.fromkeys(shown))
