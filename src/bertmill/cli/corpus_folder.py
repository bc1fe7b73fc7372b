"""What a corpus folder holds, in words, and everything about it that can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bertmill.cli.bars import histogram
from bertmill.cli.folders import check_hashes
from bertmill.corpus.shards import Corpus, open_shard, read_facts
from bertmill.corpus.statistics import summarize
from bertmill.errors import IntegrityError
from bertmill.storage import MANIFEST, verify_manifest
from bertmill.text.tokenizer import BertTokenizer


def facts(path: Path) -> dict[str, Any]:
    """What `inspect` says: what the manifest says, counted when it was built, if its files are still the same."""
    verify_manifest(path)
    facts = {"folder": str(path), **read_facts(path)}
    if not isinstance(facts.get("statistics"), dict):
        raise IntegrityError("has no corpus statistics", where=path / MANIFEST, remedy="build the corpus again")
    return facts


def sentences(facts: dict[str, Any]) -> list[str]:
    lines = [f"{facts['folder']} is a corpus: {summary(facts)}"]
    lines.append(f"vocabulary: {facts['vocabulary_size']:,} pieces, sha256 {facts['vocabulary_sha256']}")
    lines.append(f"words:      {facts['chinese_words'] or 'as WordPiece has them'}")
    lines.append(f"identity:   sha256 {facts['sha256']}")
    lines += summarize(facts)
    lines += ["sentences by pieces:", *histogram(facts["statistics"]["sentence_lengths"])]
    lines += ["documents by pieces:", *histogram(facts["statistics"]["document_lengths"])]
    return lines


def summary(facts: dict[str, Any]) -> str:
    return (
        f"{facts['documents']:,} documents, {facts['sentences']:,} sentences, {facts['pieces']:,} pieces "
        f"from {facts['text_bytes']:,} bytes of text"
    )


def checks(path: Path) -> dict[str, Callable[[], str]]:
    """What `check` looks at; each says what it found or raises."""
    facts = read_facts(path)  # what cannot be opened at all is an error at once
    return {
        "hashes": lambda: check_hashes(path),
        "shards": lambda: _shards(path, facts),
        "counts": lambda: _counts(path, facts),
        "vocabulary": lambda: _vocabulary(path),
    }


def _shards(path: Path, facts: dict[str, Any]) -> str:
    for number in range(facts["shards"]):
        open_shard(path, number, facts["vocabulary_size"])
    return f"the files of each ({facts['shards']}) fit together, and all pieces are in the vocabulary"


def _counts(path: Path, facts: dict[str, Any]) -> str:
    corpus = Corpus(path, verify=False)
    counted = {"pieces": corpus.num_pieces, "sentences": corpus.num_sentences, "documents": corpus.num_documents}
    wrong = [f"{count:,} {name}, not {facts.get(name)}" for name, count in counted.items() if facts.get(name) != count]
    if wrong:
        raise IntegrityError(f"it holds {', '.join(wrong)}", where=path)
    return "pieces, sentences and documents are as many as it says"


def _vocabulary(path: Path) -> str:
    corpus = Corpus(path, verify=False)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    corpus.require_vocabulary(tokenizer.wordpiece, corpus.vocabulary_folder)
    return "is the one that the corpus was made with"
