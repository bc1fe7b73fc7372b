"""`bertmill inspect` and `bertmill check` of a corpus."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertmill.storage import MANIFEST, read_json, write_manifest
from tests.conftest import RunCommand


def test_inspect_says_what_a_corpus_is(bertmill: RunCommand, corpus: Path) -> None:
    done = bertmill("inspect", corpus)
    assert done.returncode == 0
    for words in (
        "is a corpus: 2 documents, 4 sentences, 16 pieces from 75 bytes of text",
        "vocabulary: 30,522 pieces, sha256 ",
        "entropy:    2.",
        "sentences by pieces:",
        "documents by pieces:",
        "4–7  3  ████████████████████████████████████████",
    ):
        assert words in done.stdout
    assert json.loads(bertmill("inspect", corpus, "--json").stdout)["sentences"] == 4


def with_right_hashes(folder: Path, **facts: object) -> None:
    write_manifest(folder, facts={"corpus": {**read_json(folder / MANIFEST)["corpus"], **facts}})


def flip_a_bit(folder: Path) -> None:
    path = folder / "shard-00000.words"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


def put_a_piece_out_of_range(folder: Path) -> None:
    path = folder / "shard-00000.pieces"
    pieces = np.fromfile(path, "<u2")
    pieces[3] = 40_000
    path.write_bytes(pieces.tobytes())
    with_right_hashes(folder)


def drop_a_document(folder: Path) -> None:
    path = folder / "shard-00000.documents"
    path.write_bytes(path.read_bytes()[4:])
    with_right_hashes(folder)


def change_the_vocabulary(folder: Path) -> None:
    path = folder / "vocabulary/tokenizer_config.json"
    path.write_text(path.read_text().replace('"do_lower_case": true', '"do_lower_case": false'))
    with_right_hashes(folder)


def test_inspect_does_not_describe_files_that_have_changed(bertmill: RunCommand, corpus: Path) -> None:
    flip_a_bit(corpus)
    done = bertmill("inspect", str(corpus))
    assert (done.returncode, done.stdout) == (4, "")
    assert "is not what was written" in done.stderr


def test_check_finds_nothing_wrong_with_a_good_corpus(bertmill: RunCommand, corpus: Path) -> None:
    done = bertmill("check", corpus)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["ok", "hashes:"],
        ["ok", "shards:"],
        ["ok", "counts:"],
        ["ok", "vocabulary:"],
    ]


@pytest.mark.parametrize(
    ("spoil", "wrong", "words"),
    [
        (flip_a_bit, "hashes", "shard-00000.words is not what was written"),
        (put_a_piece_out_of_range, "shards", "holds the piece 40000, but the vocabulary has 30,522"),
        (drop_a_document, "counts", "it holds 1 documents, not 2"),
        (change_the_vocabulary, "vocabulary", "is not the vocabulary of the corpus"),
    ],
)
def test_check_names_what_is_wrong(
    bertmill: RunCommand, corpus: Path, spoil: Callable[[Path], None], wrong: str, words: str
) -> None:
    spoil(corpus)
    done = bertmill("check", corpus)
    assert done.returncode == 4
    assert f"WRONG  {wrong}: " in done.stdout
    assert words in done.stdout
    assert f"1 of 4 checks failed: {wrong}" in done.stderr


def test_a_corpus_without_its_facts_is_one_line(bertmill: RunCommand, corpus: Path) -> None:
    with_right_hashes(corpus, statistics=None)
    done = bertmill("inspect", corpus)
    assert done.returncode == 4
    assert "has no corpus statistics" in done.stderr
    write_manifest(corpus, facts={"corpus": {}})
    for command in ("inspect", "check"):
        done = bertmill(command, corpus)
        assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
