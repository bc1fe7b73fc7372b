"""Tests for the stages up to the corpus, on small packages: what they write, and that they run only once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bertmill.config.commands import DemoSettings
from bertmill.corpus.shards import Corpus
from bertmill.demo import preparation
from bertmill.demo.docstrings import plain
from bertmill.demo.documentation import collect_docs
from bertmill.demo.folder import Demo
from bertmill.demo.preparation import (
    build_training_corpus,
    collect_documentation,
    learn_pieces,
    sources_of,
    text_documents,
)
from bertmill.storage import read_json, verify_manifest
from bertmill.text.tokenizer import BertTokenizer
from tests.demo.factory import make_doc, write_library


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Demo:
    """A demo about two small libraries."""
    roots = {library: tmp_path / library for library in ("one", "two")}
    for library, root in roots.items():
        write_library(root, library, num_modules=20)
    monkeypatch.setattr(preparation, "installed_libraries", lambda: roots)
    out = tmp_path / "demo"
    out.mkdir()
    return Demo(DemoSettings(out=out, threads=1))


def silent(_read: int, _more: int) -> None:
    pass


def test_documentation_becomes_text_rows_vocabulary_and_corpus(demo: Demo) -> None:
    files = sources_of(demo)
    collect_documentation(demo, files, silent)
    verify_manifest(demo.documentation)
    train, heldout = (path.read_text(encoding="utf-8") for path in (demo.train_text, demo.heldout_text))
    assert not set(train.splitlines()) & set(heldout.splitlines()) - {""}
    prose = {plain(text) for doc in collect_docs(files, workers=1) for text in doc.text.paragraphs}
    assert set(train.splitlines()) - {""} < prose
    facts = read_json(demo.facts)
    assert list(facts) == ["one", "two"]
    assert facts["one"]["train_modules"] + facts["one"]["heldout_modules"] == 20
    assert facts["one"]["heldout_modules"] == 3
    for task in ("classify", "tag", "pair", "answer"):
        for part in ("train", "test"):
            assert demo.rows_of(task, part).stat().st_size
    learn_pieces(demo, silent)
    build_training_corpus(demo, silent)
    corpus = Corpus(demo.corpus)
    assert corpus.num_documents == train.count("\n\n")
    corpus.require_vocabulary(BertTokenizer.from_pretrained(demo.vocabulary).wordpiece, demo.vocabulary)


def test_existing_results_are_not_replaced(demo: Demo) -> None:
    for path in (demo.documentation, demo.vocabulary, demo.corpus):
        path.mkdir()
    collect_documentation(demo, [], silent)
    learn_pieces(demo, silent)
    build_training_corpus(demo, silent)
    assert not list(demo.documentation.iterdir())


def test_importing_the_command_does_not_load_torch_so_workers_can_be_forked() -> None:
    code = "import sys, bertmill.cli.demo; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_text_has_one_document_per_module_without_repeated_paragraphs() -> None:
    repeated = "This sentence occurs in every docstring."
    docs = [
        make_doc(f"The first object of all.\n\n{repeated}", module="lib.a.b"),
        make_doc(f"The second object of all.\n\n{repeated}\n\nToo short.", module="lib.a.b"),
        make_doc(repeated, module="lib.a.c"),
        make_doc("The third object of all.", module="lib.a.d"),
    ]
    assert list(text_documents(docs)) == [
        f"The first object of all.\n{repeated}\nThe second object of all.\n\n",
        "The third object of all.\n\n",
    ]
