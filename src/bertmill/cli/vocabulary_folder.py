"""What a vocabulary folder or file holds, in words, and everything about it that can be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertmill.cli.folders import check_hashes, histogram
from bertmill.corpus.shards import vocabulary_sha256
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.wordpiece import CONTINUATION

_UNUSED = "[unused"


def facts(path: Path) -> dict[str, Any]:
    """What `inspect` says."""
    tokenizer = BertTokenizer.from_pretrained(path)
    special = set(tokenizer.all_special_tokens)
    unused = {piece for piece in tokenizer.vocab if piece.startswith(_UNUSED)}
    ordinary = [piece for piece in tokenizer.vocab if piece not in special | unused]
    inner = [piece for piece in ordinary if piece.startswith(CONTINUATION)]
    lengths = [len(piece.removeprefix(CONTINUATION)) for piece in ordinary]
    counts = Counter(max(length, 1).bit_length() - 1 for length in lengths)
    return {
        "path": str(path),
        "pieces": tokenizer.vocab_size,
        "cased": not tokenizer.do_lower_case,
        "special": tokenizer.all_special_tokens,
        "unused": len(unused),
        "begin_a_word": len(ordinary) - len(inner),
        "go_on_a_word": len(inner),
        "characters": len(set("".join(piece.removeprefix(CONTINUATION) for piece in ordinary))),
        "lengths": [counts[power] for power in range(max(counts, default=-1) + 1)],
        "sha256": vocabulary_sha256(tokenizer.wordpiece),
    }


def sentences(facts: dict[str, Any]) -> list[str]:
    case = "cased" if facts["cased"] else "uncased"
    unused = f", {facts['unused']:,} unused" if facts["unused"] else ""
    return [
        f"{facts['path']} is a vocabulary of {facts['pieces']:,} pieces, {case}.",
        f"special:    {' '.join(facts['special'])}{unused}",
        f"pieces:     {facts['begin_a_word']:,} begin a word, {facts['go_on_a_word']:,} go on one ({CONTINUATION}); "
        f"{facts['characters']:,} different characters",
        f"sha256:     {facts['sha256']} (of pieces and settings)",
        "pieces by characters:",
        *histogram(facts["lengths"]),
    ]


def checks(path: Path) -> dict[str, Callable[[], str]]:
    """What `check` looks at; each says what it found or raises."""

    def tokenizer() -> str:
        num_pieces = len(BertTokenizer.from_pretrained(path))
        return f"its {num_pieces:,} pieces have an id each, and the special tokens are there"

    return {"hashes": lambda: check_hashes(path), "tokenizer": tokenizer}
