"""Vocabulary folders and files for `inspect` and `check`: a description and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertmill.checkpoint.files import TOKENIZER_FILES
from bertmill.cli.folders import check_hashes, histogram
from bertmill.corpus.shards import vocabulary_sha256
from bertmill.storage import renew_manifest
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.tokenizer_files import require_same_pieces
from bertmill.text.wordpiece import CONTINUATION

_UNUSED = "[unused"


def facts(path: Path) -> dict[str, Any]:
    """What `inspect` shows."""
    tokenizer = BertTokenizer.from_pretrained(path)
    special = set(tokenizer.all_special_tokens)
    unused = {piece for piece in tokenizer.vocab if piece.startswith(_UNUSED)}
    ordinary = [piece for piece in tokenizer.vocab if piece not in special | unused]
    inner = [piece for piece in ordinary if piece.startswith(CONTINUATION)]
    lengths = [len(piece.removeprefix(CONTINUATION)) for piece in ordinary]
    counts = Counter(max(length, 1).bit_length() - 1 for length in lengths)
    return {
        "path": str(path),
        "pieces": len(tokenizer),
        "cased": not tokenizer.do_lower_case,
        "special": tokenizer.all_special_tokens,
        "unused": len(unused),
        "initial_pieces": len(ordinary) - len(inner),
        "continuation_pieces": len(inner),
        "characters": len(set("".join(piece.removeprefix(CONTINUATION) for piece in ordinary))),
        "lengths": [counts[power] for power in range(max(counts, default=-1) + 1)],
        "sha256": vocabulary_sha256(tokenizer.wordpiece),
    }


def sentences(facts: dict[str, Any]) -> list[str]:
    """The facts as lines of text."""
    case = "cased" if facts["cased"] else "uncased"
    unused = f", {facts['unused']:,} unused" if facts["unused"] else ""
    return [
        f"{facts['path']} is a vocabulary of {facts['pieces']:,} pieces, {case}.",
        f"special:    {' '.join(facts['special'])}{unused}",
        f"pieces:     {facts['initial_pieces']:,} start a word, {facts['continuation_pieces']:,} continue one "
        f"({CONTINUATION}); "
        f"{facts['characters']:,} distinct characters",
        f"sha256:     {facts['sha256']} (of pieces and settings)",
        "pieces by characters:",
        *histogram(facts["lengths"]),
    ]


def checks(path: Path) -> dict[str, Callable[[], str]]:
    """The checks of `bertmill check` by name; each returns what it found, or raises."""

    def tokenizer() -> str:
        if path.is_dir():
            require_same_pieces(path)
        num_pieces = len(BertTokenizer.from_pretrained(path, check_hashes=False))
        return f"{num_pieces:,} pieces with one id each, including all special tokens"

    return {"hashes": lambda: check_hashes(path), "tokenizer": tokenizer}


def accept(path: Path) -> None:
    """Record the present content of the files in the manifest."""
    renew_manifest(path, TOKENIZER_FILES)
