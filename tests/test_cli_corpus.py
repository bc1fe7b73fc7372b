"""`bertmill corpus`, and `inspect` and `check` of what it writes, started as a user starts them."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertmill.cli import progress
from bertmill.storage import MANIFEST, read_json, write_manifest
from tests.conftest import RunCommand

TEXT = "The first line. It has two sentences.\nThe second line.\n\nAnother document.\n"


@pytest.fixture
def corpus(bertmill: RunCommand, tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(TEXT)
    done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "corpus")
    assert done.returncode == 0, done.stderr
    return tmp_path / "corpus"


def test_what_was_made_is_said(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode() + b"bad \xff byte\n\x01\n")
    done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "corpus", "--workers", "2")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 documents, 5 sentences, ")
    assert [line.split(":")[0] for line in lines[1:]] == ["entropy", "unknown", "duplicates", "short", "instances"]
    assert done.stderr == "repaired: 1 bad bytes\ndropped: 1 sentences without pieces\n"
    quiet = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "quiet", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    assert json.loads((tmp_path / "corpus" / MANIFEST).read_text()) == json.loads(
        (tmp_path / "quiet" / MANIFEST).read_text()
    )


def test_documents_by_mode_and_records(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.jsonl").write_text('{"body": "One."}\n{"body": "Two.\\n\\nStill two."}\n')
    for mode, count in (("blank-line", 2), ("file", 1), ("record", 3)):
        done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", mode, "--document", mode)
        assert done.stdout.startswith(f"{count} documents, ")
        assert ("warning:    this is a single document" in done.stdout) == (count == 1)
    done = bertmill("corpus", "b.jsonl", "--vocab", "minilm", "--out", "jsonl", "--text-field", "body")
    assert done.stdout.startswith("2 documents, 3 sentences, ")


def test_a_vocabulary_file_and_the_vocabulary_of_a_corpus_do_as_well(
    bertmill: RunCommand, corpus: Path, tmp_path: Path
) -> None:
    for name in (corpus / "vocabulary", corpus / "vocabulary/vocab.txt"):
        assert bertmill("corpus", "a.txt", "--vocab", name, "--out", name.name).returncode == 0
        assert read_json(tmp_path / name.name / MANIFEST)["corpus"] == read_json(corpus / MANIFEST)["corpus"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent.txt", "--vocab", "minilm", "--out", "new"], 2, "absent.txt: there is no such file"),
        (["a.txt", "--vocab", "absent", "--out", "new"], 2, "no model folder 'absent'"),
        (["a.txt", "--vocab", "minilm", "--out", "corpus"], 2, "corpus: exists already"),
        (["a.txt", "--vocab", "minilm", "--out", "a.txt/new"], 2, "cannot be written: Not a directory"),
        (["a.txt", "--vocab", "minilm", "--out", "new", "--document", "page"], 2, "--document"),
        (["a.txt", "--vocab", "minilm", "--out", "new", "--workers", "0"], 2, "--workers"),
        (["blank.txt", "--vocab", "minilm", "--out", "new"], 3, "blank.txt: there is no text in it"),
        (["bad.jsonl", "--vocab", "minilm", "--out", "new"], 3, "bad.jsonl:1: is not JSON"),
        (["--vocab", "minilm", "--out", "new"], 2, "no text is given"),
    ],
)
def test_bad_input_is_one_line_and_the_right_exit_code(
    bertmill: RunCommand, corpus: Path, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "blank.txt").write_text("\n\n")
    (tmp_path / "bad.jsonl").write_text("{\n")
    done = bertmill("corpus", *words)
    assert message in done.stderr
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / ".new.partial").exists()


def test_on_a_terminal_there_is_a_bar(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 60_000)
    program = Path(sys.executable).with_name("bertmill")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [program, "corpus", "a.txt", "--vocab", "minilm", "--out", "corpus"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # how the end of a terminal looks
        pass
    os.close(ours)
    assert process.wait() == 0
    assert b"MB/s" in shown
    assert b"left" in shown


def test_where_there_is_no_terminal_there_are_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([100.0, 104.0, 110.0, 115.0, 120.0, 200.0, 210.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(moments))
    with progress.ProgressLine("corpus", 4_000_000, quiet=False) as line:
        line.update(500_000, 2_000_000)  # too early for a line
        line.update(1_000_000, 2_000_000)
        line.update(1_500_000, 2_000_000)
        line.update(2_000_000, 2_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "corpus: 4 MB of text, 0.4 MB/s, 25% done, 0:30 left",
        "corpus: 8 MB of text, 0.4 MB/s, 50% done, 0:20 left",
    ]
    with progress.ProgressLine("corpus", None, quiet=False) as line:  # a pipe
        line.update(500_000, 5_000_000)
    assert capsys.readouterr().err == "corpus: 5 MB of text, 0.5 MB/s\n"


@pytest.mark.parametrize(
    ("kind", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_is_one_line_and_the_work_is_kept(kind: signal.Signals, code: int, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 120_000)
    program = Path(sys.executable).with_name("bertmill")
    words = [program, "corpus", "a.txt", "--vocab", "minilm", "--out", "corpus", "--workers", "2"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    notes = tmp_path / ".corpus.partial/notes"
    while process.poll() is None and not list(notes.glob("*.json")):
        time.sleep(0.002)
    os.killpg(process.pid, kind)  # as a terminal sends it: to the workers too
    assert process.communicate(timeout=60)[1] == f"bertmill: {word}\n"
    assert process.returncode == code
    assert list(notes.glob("shard-*.json"))
    assert not (tmp_path / "corpus").exists()


# inspect and check


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


def test_inspect_and_check_know_vocabularies(bertmill: RunCommand, corpus: Path, tmp_path: Path) -> None:
    for path in (corpus / "vocabulary", corpus / "vocabulary/vocab.txt"):
        done = bertmill("inspect", path)
        assert f"{path} is a vocabulary of 30,522 pieces, uncased." in done.stdout
        assert "994 unused" in done.stdout
        assert bertmill("check", path).returncode == 0
    facts = json.loads(bertmill("inspect", corpus / "vocabulary", "--json").stdout)
    assert facts["sha256"] == read_json(corpus / MANIFEST)["corpus"]["vocabulary_sha256"]
    assert facts["begin_a_word"] + facts["go_on_a_word"] + facts["unused"] + 5 == sum(facts["lengths"]) + 999 == 30_522
    (tmp_path / "empty").mkdir()
    assert "is neither a model nor a vocabulary nor a corpus" in bertmill("inspect", "empty").stderr


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


def test_an_argument_is_not_offered_as_a_flag(bertmill: RunCommand, tmp_path: Path) -> None:
    assert "did you mean" not in bertmill("inspect", "--folder", str(tmp_path)).stderr


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
