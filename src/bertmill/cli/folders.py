"""The folder that `inspect` or `check` describes: a model, a vocabulary or a corpus.

Each kind has a module with the functions of `Describer`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from bertmill.checkpoint.files import CONFIG_FILE, PIPELINE_FILE, VOCABULARY_FILE
from bertmill.corpus.facts import is_corpus
from bertmill.errors import UsageError
from bertmill.storage import MANIFEST, verify_manifest

Facts = dict[str, Any]
_BAR_WIDTH = 40


class Describer(Protocol):
    """The interface of a module that describes one kind of folder."""

    def facts(self, path: Path) -> Facts:
        """What `inspect --json` prints."""

    def sentences(self, facts: Facts) -> list[str]:
        """The facts as lines of text."""

    def checks(self, path: Path) -> dict[str, Callable[[], str]]:
        """The checks of `bertmill check` by name; each returns what it found, or raises."""

    def accept(self, path: Path) -> None:
        """Record the present hashes of the files in the manifest. Not for corpora, which are identified by theirs."""


def describer_for(path: Path) -> Describer:
    """The module for this kind of folder, imported on demand: the one for models imports torch."""
    return cast(Describer, importlib.import_module(f"bertmill.cli.{_kind(path)}_folder"))


def _kind(path: Path) -> str:
    if path.is_dir() and is_corpus(path):
        return "corpus"
    if (path / CONFIG_FILE).exists():
        return "model"
    if path.is_file() or (path / VOCABULARY_FILE).exists() or (path / PIPELINE_FILE).exists():
        return "vocabulary"
    raise UsageError("is not a model, vocabulary or corpus", where=path)


def check_hashes(path: Path) -> str:
    """Compare all files with the hashes in the manifest."""
    if not (path / MANIFEST).is_file():
        return f"no {MANIFEST} (other programs do not write one), so changes cannot be detected"
    verify_manifest(path)
    return f"every file matches {MANIFEST}"


def histogram(counts: Sequence[int]) -> list[str]:
    """One line per power of two: lengths from 2^i to 2^(i+1) - 1, their count, and a bar."""
    labels = [f"{1 << i}" if i == 0 else f"{1 << i}–{(2 << i) - 1}" for i in range(len(counts))]
    width = max(map(len, labels), default=0)
    digits = max((len(f"{count:,}") for count in counts), default=0)
    most = max(counts, default=0)
    first = next((i for i, count in enumerate(counts) if count), 0)
    return [
        f"  {label:>{width}}  {count:>{digits},}  {'█' * -(-_BAR_WIDTH * count // most)}".rstrip()
        for label, count in list(zip(labels, counts, strict=True))[first:]
    ]
