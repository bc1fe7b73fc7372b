"""Corpus folders for `inspect` and `check`: a description, instances made from the corpus, and checks."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bertmill.cli.folders import check_hashes, histogram
from bertmill.config.commands import InspectSettings
from bertmill.corpus.facts import read_facts
from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.masking import NOT_SELECTED, MaskingSettings, VocabularyIds
from bertmill.corpus.objectives.base import Objective
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus, open_shard
from bertmill.corpus.statistics import summarize
from bertmill.errors import IntegrityError
from bertmill.storage import verify_manifest
from bertmill.text.printable import counted
from bertmill.text.tokenizer import BertTokenizer

_WRAPPING: Any = {"width": 100, "break_long_words": False, "break_on_hyphens": False}


def facts(path: Path) -> dict[str, Any]:
    """Return what `inspect` shows, from the manifest. Raises IntegrityError if a file has changed."""
    verify_manifest(path)
    return {"folder": str(path), **read_facts(path)}


def sentences(facts: dict[str, Any]) -> list[str]:
    """The facts as lines of text."""
    lines = [f"{facts['folder']} is a corpus: {summary(facts)}"]
    lines.append(f"vocabulary: {facts['vocabulary_size']:,} pieces, sha256 {facts['vocabulary_sha256']}")
    lines.append(f"words:      {facts['chinese_words'] or 'as split by WordPiece'}")
    lines.append(f"identity:   sha256 {facts['sha256']}")
    lines += summarize(facts)
    lines += ["sentences by length in pieces:", *histogram(facts["statistics"]["sentence_lengths"])]
    lines += ["documents by length in pieces:", *histogram(facts["statistics"]["document_lengths"])]
    return lines


def summary(facts: dict[str, Any]) -> str:
    """The size of a corpus in one line."""
    return (
        f"{counted(facts['documents'], 'document')}, {counted(facts['sentences'], 'sentence')}, "
        f"{counted(facts['pieces'], 'piece')} from {counted(facts['text_bytes'], 'byte')} of text"
    )


def checks(path: Path) -> dict[str, Callable[[], str]]:
    """The checks of `bertmill check` by name; each returns what it found, or raises."""
    facts = read_facts(path)  # a corpus that cannot be opened fails here
    return {
        "hashes": lambda: check_hashes(path),
        "shards": lambda: _shards(path, facts),
        "counts": lambda: _counts(path, facts),
        "vocabulary": lambda: _vocabulary(path),
    }


def _shards(path: Path, facts: dict[str, Any]) -> str:
    for number in range(facts["shards"]):
        open_shard(path, number, facts["vocabulary_size"])
    return f"the files of {counted(facts['shards'], 'shard')} are consistent, and all pieces are in the vocabulary"


def _counts(path: Path, facts: dict[str, Any]) -> str:
    corpus = Corpus(path, verify=False)
    counts = {"pieces": corpus.num_pieces, "sentences": corpus.num_sentences, "documents": corpus.num_documents}
    wrong = [f"{count:,} {name}, not {facts.get(name)}" for name, count in counts.items() if facts.get(name) != count]
    if wrong:
        raise IntegrityError(f"contains {', '.join(wrong)}", where=path)
    return "the numbers of pieces, sentences and documents match the manifest"


def _vocabulary(path: Path) -> str:
    corpus = Corpus(path, verify=False)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    corpus.require_vocabulary(tokenizer.wordpiece, corpus.vocabulary_folder)
    return "matches the corpus"


def instance_lines(path: Path, settings: InspectSettings) -> Iterator[str]:
    """The first instances of an epoch, as training would see them with this seed."""
    plan_settings = PlanSettings(settings.objective, settings.length)  # fails before the corpus is verified
    corpus = Corpus(path)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    masking = MaskingSettings(whole_words=settings.whole_words)
    with tempfile.TemporaryDirectory() as plan_folder:
        vocabulary = VocabularyIds.of(tokenizer)
        instances = Instances(corpus, vocabulary, Path(plan_folder), plan_settings, masking, seed=settings.seed)
        facts = instances.plan_epoch(0)
        size = f"{facts.counts['pieces'] / facts.num_instances:,.1f} pieces on average"
        count = f"{counted(facts.num_instances, 'instance')} in the first epoch"
        details = ", ".join([count, size, *instances.objective.describe_plan(facts)])
        yield f"{settings.objective}, length {settings.length}: {details}"
        yield from instances.objective.plan_remarks(facts, corpus.num_pieces)
        batch = instances.make_in_order(0, 0, min(settings.show, facts.num_instances))
    yield from show_instances(batch, instances.objective, tokenizer)


def show_instances(batch: InstanceBatch, objective: Objective, tokenizer: BertTokenizer) -> Iterator[str]:
    """The instances of a batch as lines of text: pieces, labels and segments.

    A selected piece is shown as the model sees it, followed by the piece to predict in ‹ ›: `[MASK]‹dog›`,
    `apple‹dog›` (random) or `dog‹dog›` (unchanged). An objective that predicts every piece shows no labels.
    """
    for number in range(len(batch.lengths)):
        instance = batch[number : number + 1]
        facts = [f"{len(instance.piece_ids)} pieces", *objective.describe_instance(instance)]
        yield f"instance {number + 1}: {', '.join(facts)}"
        pieces = _pieces(instance, tokenizer, with_labels=objective.shows_labels)
        for segment in range(1 + int(instance.segments[-1])):
            text = " ".join(piece for piece, own in zip(pieces, instance.segments, strict=True) if own == segment)
            name = f"  {objective.text_names[segment]}  " if objective.text_names else "  "
            yield from textwrap.wrap(text, initial_indent=name, subsequent_indent=" " * len(name), **_WRAPPING)


def _pieces(instance: InstanceBatch, tokenizer: BertTokenizer, *, with_labels: bool) -> list[str]:
    seen = tokenizer.convert_ids_to_tokens(instance.piece_ids.tolist())
    if not with_labels:
        return list(seen)
    labels = instance.labels.tolist()
    hidden = tokenizer.convert_ids_to_tokens([max(0, label) for label in labels])
    return [
        piece if label == NOT_SELECTED else f"{piece}‹{original}›"
        for piece, label, original in zip(seen, labels, hidden, strict=True)
    ]
