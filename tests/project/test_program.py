"""Running the program in the test process gives the same results as the installed program and restores all state."""

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import RunCommand
from tests.program import capture


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["tokenize", "--model", "minilm", "-", "--json"], b"caf\xc3\xa9 \xff\n"),
        (["tokenize", "--model", "absent", "--text", "a"], b""),
        (["vocab", "--help"], b""),
        ([], b""),
    ],
    ids=["standard input", "an error", "help", "no command"],
)
def test_both_ways_to_run_the_program_give_the_same_result(
    bertmill: RunCommand, bertmill_process: RunCommand, words: list[str], stdin: bytes
) -> None:
    here, there = (run(*words, stdin=stdin) for run in (bertmill, bertmill_process))
    assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def test_process_state_is_restored(tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        files = [os.fstat(number) for number in range(3)]
        places = [(status.st_dev, status.st_ino) for status in files]
        streams = sys.stdin, sys.stdout, sys.stderr
        return Path.cwd(), dict(os.environ), handlers, torch.get_num_threads(), places, streams

    def change() -> int:
        os.environ["CHANGED"] = "yes"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        torch.set_num_threads(torch.get_num_threads() + 1)
        os.chdir("/")
        return 7

    before = state()
    assert capture(change, tmp_path).returncode == 7
    assert state() == before


def test_all_output_is_captured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def write() -> None:
        assert Path.cwd() == tmp_path
        assert sys.stdin.read() == "given"
        print("by Python")
        sys.stdout.flush()
        os.system("echo by a child; echo its error >&2")
        sys.exit(3)

    done = capture(write, tmp_path, b"given")
    assert (done.returncode, done.stdout, done.stderr) == (3, "by Python\nby a child\n", "its error\n")
    assert capfd.readouterr() == ("", "")


def test_unexpected_errors_are_raised(tmp_path: Path) -> None:
    streams = sys.stdout, sys.stderr
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 // 0, tmp_path)
    assert (sys.stdout, sys.stderr) == streams
