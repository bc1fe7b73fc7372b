"""`bertmill vocab`."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertmill.cli.main import main
from tests.conftest import RunCommand
from tests.program import PROGRAM

LINES = "".join(f"the quick brown fox number {number} jumps over the lazy dog\n" for number in range(300))


def test_it_prints_what_was_learned_and_the_folder_is_a_vocabulary(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    done = bertmill("vocab", "a.txt", "--out", "v", "--size", "80", "--workers", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Wrote v: 80 pieces, uncased."
    assert lines[2] == "alphabet:  36 characters, none dropped"
    assert lines[3].startswith("held out: ")
    assert lines[3].endswith("0.000% of the pieces [UNK]")
    assert "learning from" in done.stderr
    pieces = bertmill("tokenize", "--model", "v", "--text", "Quick fox", "--json").stdout
    assert json.loads(pieces)["pieces"] == ["[CLS]", "quick", "fox", "[SEP]"]


def test_json_has_the_same_facts_and_quiet_prints_nothing_else(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": line}) + "\n" for line in LINES.splitlines()))
    done = bertmill("vocab", "a.jsonl", "--out", "v", "--text-field", "body", "--size", "80", "--json", "--quiet")
    facts = json.loads(done.stdout)
    assert facts["pieces"] == 80
    assert facts["held_out"]["coverage"] == 1
    assert done.stderr == ""


def test_the_encoding_of_files_can_be_set(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(("größe " + LINES).encode("cp1252"))
    words = ["vocab", "a.txt", "--out", "v", "--cased", "--alphabet", "200", "--size", "80", "--workers", "1"]
    done = bertmill(*words, "--encoding", "cp1252")
    assert done.returncode == 0, done.stderr
    assert {"##ß", "##ö"} <= set((tmp_path / "v/vocab.txt").read_text(encoding="utf-8").split("\n"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a.txt", "--out", "exists"], 2, "exists: already exists"),
        (["absent.txt", "--out", "v"], 2, "absent.txt: no such file"),
        (["--out", "v"], 2, "FILE… is required"),
        (["empty.txt", "--out", "v"], 3, "empty.txt: contains no text"),
        (["a.txt", "--out", "v", "--size", "20"], 2, "size 20 is too small"),
        (["a.txt", "--out", "v", "--size", "3"], 2, "--size: input should be greater than or equal to 6"),
        (["a.txt", "--out", "a.txt/v"], 2, "a.txt/v: cannot be written: Not a directory"),
        (["a.txt"], 2, "--out is required"),
    ],
)
def test_bad_input_gives_one_line_and_leaves_nothing(
    bertmill: RunCommand, tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "exists").mkdir()
    done = bertmill("vocab", *words, "--quiet")
    assert message in done.stderr
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt", "empty.txt", "exists"}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_full_disk_gives_one_line_and_leaves_nothing(tmp_path: Path, workers: str) -> None:
    (tmp_path / "a.txt").write_text(" ".join(f"word{number}" for number in range(20_000)))
    command = f"ulimit -f 64; {PROGRAM} vocab a.txt --out v --workers {workers} --quiet"  # files of up to 64 kB
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == "bertmill: v: cannot be written: File too large; free some space and try again\n"
    assert done.returncode == 6
    assert {path.name for path in tmp_path.iterdir()} == {"a.txt"}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_gives_one_line_and_leaves_nothing(tmp_path: Path, workers: str) -> None:
    words = [PROGRAM, "vocab", "-", "--out", "v", "--workers", workers]
    process = subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(LINES.encode() * 1000)
    process.stdin.flush()  # more would come
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.002)
    process.terminate()
    assert process.communicate(timeout=60)[1] == b"bertmill: terminated\n"
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


def test_a_full_standard_error_does_not_undo_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_bytes(LINES.encode() + b"\xff\n")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        words = ["vocab", str(tmp_path / "a.txt"), "--out", str(tmp_path / "v"), "--size", "80", "--workers", "1"]
        assert main(words) == 0
        assert main(["tokenize", "--model", str(tmp_path / "v"), str(tmp_path / "a.txt")]) == 0
        words = ["corpus", str(tmp_path / "a.txt"), "--vocab", str(tmp_path / "v"), "--out", str(tmp_path / "c")]
        assert main([*words, "--workers", "1"]) == 0
    assert (tmp_path / "v/vocab.txt").exists()
    assert (tmp_path / "c/manifest.json").exists()


def test_a_folder_is_printed_without_control_characters(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(LINES)
    done = bertmill("vocab", "a.txt", "--out", "v\x1b", "--size", "80", "--workers", "1")
    assert done.stdout.startswith("Wrote v\\x1b: 80 pieces")
