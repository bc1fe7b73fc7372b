"""The first stages of the demo: turn documentation into text, labeled rows, a vocabulary and a corpus.

Nothing here imports torch, so worker processes can be forked. Each function does nothing if its result exists.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from bertmill.corpus.build import build_corpus
from bertmill.demo.docstrings import plain
from bertmill.demo.documentation import (
    Doc,
    SourceFile,
    collect_docs,
    find_sources,
    installed_libraries,
    shuffled,
    split_by_group,
)
from bertmill.demo.folder import Demo
from bertmill.demo.rows import write_rows
from bertmill.storage import new_folder
from bertmill.text.learning import learn_vocabulary
from bertmill.text.tokenizer import BertTokenizer

HELDOUT_SHARE = 0.15  # of the documentation of each library
MIN_WORDS = 4  # in a paragraph of the text

OnProgress = Callable[[int, int], object]  # bytes read in total, and bytes of text since the previous call


def sources_of(demo: Demo) -> list[SourceFile]:
    """The source files that the demo reads; UsageError if a library is not installed."""
    return find_sources(installed_libraries(), demo.plan.documentation_share)


def collect_documentation(demo: Demo, files: Sequence[SourceFile], on_progress: OnProgress) -> None:
    """Write text and rows, both split by module into a training part and a held-out part."""
    if demo.documentation.exists():
        return
    docs = collect_docs(files, workers=demo.settings.threads, on_progress=on_progress)
    train, heldout = split_by_group(docs, HELDOUT_SHARE)
    with new_folder(demo.documentation) as folder:
        train_text = "".join(text_documents(train))
        (folder / demo.train_text.name).write_text(train_text, encoding="utf-8")
        heldout_text = "".join(_first(text_documents(shuffled(heldout)), demo.plan.heldout_characters))
        (folder / demo.heldout_text.name).write_text(heldout_text, encoding="utf-8")
        (folder / demo.facts.name).write_text(json.dumps(_facts(train, heldout), indent=1) + "\n", encoding="utf-8")
        rows = folder / demo.rows.name
        rows.mkdir()
        write_rows(rows, train, heldout, demo.plan.rows)


def text_documents(docs: Iterable[Doc]) -> Iterator[str]:
    """Yield the prose of each run of docs from one module: a line per paragraph, then an empty line.

    Short paragraphs are skipped; a repeated paragraph is kept once.
    """
    known: set[str] = set()
    for _, of_module in groupby(docs, key=lambda doc: doc.module):
        lines = []
        for text in (plain(paragraph) for doc in of_module for paragraph in doc.text.paragraphs):
            if text.count(" ") >= MIN_WORDS - 1 and text not in known:
                known.add(text)
                lines.append(f"{text}\n")
        if lines:
            yield "".join(lines) + "\n"


def _first(texts: Iterable[str], num_characters: int) -> Iterator[str]:
    """Yield texts until they have `num_characters` in total."""
    for text in texts:
        yield text
        num_characters -= len(text)
        if num_characters <= 0:
            return


def _facts(train: Sequence[Doc], heldout: Sequence[Doc]) -> dict[str, Any]:
    """The number of documented objects, characters of prose and modules of each library."""
    facts: dict[str, dict[str, int]] = defaultdict(
        lambda: {"objects": 0, "characters": 0, "train_modules": 0, "heldout_modules": 0}
    )
    for split, docs in (("train_modules", train), ("heldout_modules", heldout)):
        for doc in docs:
            of_library = facts[doc.library]
            of_library["objects"] += 1
            of_library["characters"] += sum(len(plain(text)) for text in doc.text.paragraphs)
        for library, _ in {(doc.library, doc.group) for doc in docs}:
            facts[library][split] += 1
    return dict(facts)


def learn_pieces(demo: Demo, on_progress: OnProgress) -> None:
    """Learn a vocabulary from the training text."""
    if not demo.vocabulary.exists():
        learn_vocabulary(
            [str(demo.train_text)],
            demo.vocabulary,
            size=demo.plan.vocabulary_size,
            workers=demo.settings.threads,
            on_progress=on_progress,
        )


def build_training_corpus(demo: Demo, on_progress: OnProgress) -> None:
    """Build a corpus from the training text."""
    if not demo.corpus.exists():
        build_corpus(
            [str(demo.train_text)],
            BertTokenizer.from_pretrained(demo.vocabulary),
            demo.corpus,
            workers=demo.settings.threads,
            on_progress=on_progress,
        )
