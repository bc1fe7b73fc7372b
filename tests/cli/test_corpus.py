"""`bertmill corpus`."""

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from bertmill.storage import MANIFEST, read_json
from bertmill.text.printable import counted
from tests.cli.conftest import TEXT
from tests.conftest import RunCommand
from tests.program import PROGRAM


def test_it_prints_a_summary_and_statistics(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode() + b"bad \xff byte\n\x01\n")
    done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "corpus", "--workers", "2")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 documents, 5 sentences, ")
    assert [line.split(":")[0] for line in lines[1:]] == ["entropy", "unknown", "duplicates", "short", "instances"]
    assert done.stderr == "repaired: 1 invalid byte\ndropped: 1 sentence without pieces\n"
    quiet = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", "quiet", "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    assert json.loads((tmp_path / "corpus" / MANIFEST).read_text()) == json.loads(
        (tmp_path / "quiet" / MANIFEST).read_text()
    )


def test_the_encoding_of_files_can_be_set(bertmill: RunCommand, tmp_path: Path) -> None:
    for name, encoding in (("a.txt", "utf-8"), ("b.txt", "cp1252")):
        (tmp_path / name).write_bytes("Größe zählt.\n".encode(encoding))
    words = ["--vocab", "minilm", "--workers", "1", "--quiet", "--out"]
    expected = bertmill("corpus", "a.txt", *words, "a").stdout
    assert bertmill("corpus", "b.txt", *words, "b", "--encoding", "cp1252").stdout == expected


def test_documents_by_mode_and_records(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.jsonl").write_text('{"body": "One."}\n{"body": "Two.\\n\\nStill two."}\n')
    for mode, count in (("blank-line", 2), ("file", 1), ("record", 3)):
        done = bertmill("corpus", "a.txt", "--vocab", "minilm", "--out", mode, "--document", mode)
        assert done.stdout.startswith(f"{counted(count, 'document')}, ")
        assert ("warning:    the corpus is a single document" in done.stdout) == (count == 1)
    done = bertmill("corpus", "b.jsonl", "--vocab", "minilm", "--out", "jsonl", "--text-field", "body")
    assert done.stdout.startswith("2 documents, 3 sentences, ")


def test_a_vocabulary_file_and_the_vocabulary_of_a_corpus_can_be_used(
    bertmill: RunCommand, corpus: Path, tmp_path: Path
) -> None:
    for name in (corpus / "vocabulary", corpus / "vocabulary/vocab.txt"):
        assert bertmill("corpus", "a.txt", "--vocab", name, "--out", name.name).returncode == 0
        assert read_json(tmp_path / name.name / MANIFEST)["corpus"] == read_json(corpus / MANIFEST)["corpus"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["absent.txt", "--vocab", "minilm", "--out", "new"], 2, "absent.txt: no such file"),
        (["a.txt", "--vocab", "absent", "--out", "new"], 2, "is named 'absent'"),
        (["a.txt", "--vocab", "minilm", "--out", "corpus"], 2, "corpus: already exists"),
        (["a.txt", "--vocab", "minilm", "--out", "a.txt/new"], 2, "cannot be written: Not a directory"),
        (["a.txt", "--vocab", "minilm", "--out", "new", "--document", "page"], 2, "--document"),
        (["a.txt", "--vocab", "minilm", "--out", "new", "--workers", "0"], 2, "--workers"),
        (["blank.txt", "--vocab", "minilm", "--out", "new"], 3, "blank.txt: contains no text"),
        (["bad.jsonl", "--vocab", "minilm", "--out", "new"], 3, "bad.jsonl:1: is not JSON"),
        (["--vocab", "minilm", "--out", "new"], 2, "FILE… is required"),
    ],
)
def test_bad_input_gives_one_line_and_the_right_exit_code(
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
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, "corpus", "a.txt", "--vocab", "minilm", "--out", "corpus"],
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
    except OSError:  # the terminal was closed
        pass
    os.close(ours)
    assert process.wait() == 0
    assert b"MB/s" in shown
    assert b"left" in shown


@pytest.mark.parametrize(
    ("kind", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_gives_one_line_and_keeps_the_work(kind: signal.Signals, code: int, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 120_000)
    words = [PROGRAM, "corpus", "a.txt", "--vocab", "minilm", "--out", "corpus", "--workers", "2"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    records = tmp_path / ".corpus.partial/records"
    while process.poll() is None and not list(records.glob("*.json")):
        time.sleep(0.002)
    os.killpg(process.pid, kind)  # as a terminal sends it: to the workers too
    assert process.communicate(timeout=60)[1] == f"bertmill: {word}\n"
    assert process.returncode == code
    assert list(records.glob("shard-*.json"))
    assert not (tmp_path / "corpus").exists()
