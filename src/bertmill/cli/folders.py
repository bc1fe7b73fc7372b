"""Which kind of folder a name on the command line stands for: `inspect` and `check` take every kind.

The words for a kind are in a module of their own with `facts(path)`, `sentences(facts)` and `checks(path)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from bertmill.checkpoint.names import CONFIG_FILE, find_model
from bertmill.corpus.shards import is_corpus
from bertmill.errors import UsageError
from bertmill.storage import MANIFEST, verify_manifest
from bertmill.text.tokenizer_files import PIPELINE_FILE
from bertmill.text.vocabulary import VOCABULARY_FILE

Facts = dict[str, Any]
_BAR_WIDTH = 40


class Describer(Protocol):
    """What can be said about one kind of folder."""

    def facts(self, path: Path) -> Facts: ...
    def sentences(self, facts: Facts) -> list[str]: ...
    def checks(self, path: Path) -> dict[str, Callable[[], str]]: ...


def find_folder(name: str) -> Path:
    """A folder of any kind, a vocabulary file, or the folder of an installed model."""
    return Path(name) if Path(name).is_file() else find_model(name)


def describer_for(path: Path) -> Describer:
    """The module that knows this kind of folder; it is imported now, since models bring torch with them."""
    return cast(Describer, importlib.import_module(f"bertmill.cli.{_kind(path)}_folder"))


def _kind(path: Path) -> str:
    if path.is_dir() and is_corpus(path):
        return "corpus"
    if (path / CONFIG_FILE).exists():
        return "model"
    if path.is_file() or (path / VOCABULARY_FILE).exists() or (path / PIPELINE_FILE).exists():
        return "vocabulary"
    raise UsageError("is neither a model nor a vocabulary nor a corpus", where=path)


def check_hashes(path: Path) -> str:
    """The first thing that `check` looks at in every kind of folder."""
    if not (path / MANIFEST).is_file():
        return f"there is no {MANIFEST} (other programs write none), so changed bytes would not be noticed"
    verify_manifest(path)
    return f"every file is what {MANIFEST} says"


def histogram(counts: Sequence[int]) -> list[str]:
    """One line per power of two: lengths from 2^i to 2^(i+1) - 1, how many there are, and a bar."""
    labels = [f"{1 << i}" if i == 0 else f"{1 << i}–{(2 << i) - 1}" for i in range(len(counts))]
    width = max(map(len, labels), default=0)
    digits = max((len(f"{count:,}") for count in counts), default=0)
    most = max(counts, default=0)
    first = next((i for i, count in enumerate(counts) if count), 0)
    return [
        f"  {label:>{width}}  {count:>{digits},}  {'█' * -(-_BAR_WIDTH * count // most)}".rstrip()
        for label, count in list(zip(labels, counts, strict=True))[first:]
    ]
