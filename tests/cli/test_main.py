"""The program as a whole: help, startup time, settings from flags and files, errors and exit codes."""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertmill.cli.main import COMMANDS, main
from tests.conftest import RunCommand
from tests.program import PROGRAM


def test_help_lists_every_command(bertmill: RunCommand) -> None:
    done = bertmill("--help")
    assert done.returncode == 0
    for command, summary in COMMANDS.items():
        assert command in done.stdout
        assert summary in done.stdout


@pytest.mark.slow  # a loaded machine takes longer
def test_help_is_printed_in_under_half_a_second(bertmill_process: RunCommand) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        bertmill_process("--help")
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.5


def test_help_imports_no_torch() -> None:
    code = f"""
import sys
from bertmill.cli.main import main
for words in [["--help"], *([command, "--help"] for command in {list(COMMANDS)!r})]:
    assert main(words) == 0
    assert "torch" not in sys.modules, words
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: bertmill") == 1 + len(COMMANDS)


def test_the_installed_program_runs_every_command(bertmill_process: RunCommand, tmp_path: Path) -> None:
    """Runs each command in a new process; other tests run commands in their own process."""
    sentences = [f"the {animal} is {mood} today" for animal in ("cat", "dog", "cow") for mood in ("happy", "sad")]
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join(sentences) for _ in range(10)))
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{'sad' in text}\n" for text in sentences))
    small = ["--size", "tiny", "--steps", "2", "--length", "16", "--batch-size", "4"]
    commands = {
        "vocab": ["a.txt", "--out", "vocabulary", "--size", "60"],
        "tokenize": ["--model", "vocabulary", "--text", "cat"],
        "corpus": ["a.txt", "--vocab", "vocabulary", "--out", "corpus"],
        "pretrain": ["--corpus", "corpus", "--out", "run", *small],
        "fill": ["run/model", "the [MASK] is happy today"],
        "finetune": ["classify", "--model", "run/model", "--train", "rows.tsv", "--out", "tuned", "--epochs", "1"],
        "evaluate": ["tuned/model", "rows.tsv"],
        "predict": ["tuned/model", "--text", "the cow is happy today"],
        "inspect": ["tuned/model"],
        "check": ["tuned/model"],
        "report": ["tuned"],
    }
    assert set(commands) == set(COMMANDS) - {"demo", "download"}  # test_demo.py and test_download.py run them
    for command, words in commands.items():
        done = bertmill_process(command, *words)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout


def test_no_command_is_a_usage_error_and_an_unknown_one_gets_a_suggestion(bertmill: RunCommand) -> None:
    assert bertmill().returncode == 2
    done = bertmill("tokenise")
    assert done.returncode == 2
    assert "did you mean tokenize?" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_all_problems_of_flags_and_file_are_reported_together(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "inspect.toml").write_text("lenth = 3\nquiet = 'perhaps'\n")
    done = bertmill("inspect", "minilm", "--show", "none", "--jsn", "--config", "inspect.toml")
    assert done.returncode == 2
    assert "unknown flag --jsn; did you mean --json?" in done.stderr
    assert "inspect.toml: unknown key lenth; did you mean length?" in done.stderr
    assert "inspect.toml: quiet: input should be a valid boolean" in done.stderr
    assert "--show: input should be a valid integer" in done.stderr
    assert "got 'none'" in done.stderr


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_flags_win_over_the_file(mark: str, bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(f'{mark}model = "minilm"\ntext = ["from the file"]\njson = true\n')
    from_file = bertmill("tokenize", "--config", "settings.toml")
    assert '"text": "from the file"' in from_file.stdout
    from_flags = bertmill("tokenize", "--config", "settings.toml", "--text", "from the flag", "--no-json")
    assert "from the file" not in from_flags.stdout
    assert "flag" in from_flags.stdout
    assert "{" not in from_flags.stdout


def test_a_missing_or_broken_settings_file_gives_one_line(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("a = [")
    for name in ("absent.toml", "broken.toml"):
        done = bertmill("demo", "--config", name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"bertmill: {name}: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_missing_required_flag_is_named(bertmill: RunCommand) -> None:
    done = bertmill("tokenize", "--text", "x")
    assert done.returncode == 2
    assert "--model is required" in done.stderr


def test_a_reader_that_exits_early_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a line of text\n" * 20_000)
    command = f"{PROGRAM} tokenize --model minilm {tmp_path}/long.txt | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("piece")
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ("tokenize --model minilm --text a > /dev/full", 6, "standard output: No space left on device"),
        ("tokenize --model minilm --text a >&-", 0, ""),
        ("tokenize --model minilm - <&-", 2, "standard input is closed"),
    ],
)
def test_unusable_standard_streams_give_one_line(shell: str, code: int, message: str) -> None:
    done = subprocess.run(["bash", "-c", f"{PROGRAM} {shell}"], capture_output=True, text=True)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == (1 if message else 0)


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_predictions_for_a_closed_standard_output_are_dropped(closed: str, classifier: Path) -> None:
    command = f"{PROGRAM} predict {classifier} --text good {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tokenize", "--model", "minilm", "a" * 300], "File name too long"),
        (["tokenize", "--model", "", "--text", "a"], "the model name is empty"),
        (["demo", "more"], "unexpected argument 'more'"),
    ],
    ids=["a long name", "an empty name", "one more argument"],
)
def test_a_wrong_argument_gives_one_line(bertmill: RunCommand, words: list[str], message: str) -> None:
    done = bertmill(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "file", "code"),
    [
        (errno.EIO, None, 6),
        (errno.EAGAIN, None, 6),
        (errno.EIO, "rows.csv", 6),
        (errno.EACCES, "rows.csv", 2),
        (errno.ENOENT, "rows.csv", 2),
    ],
)
def test_a_failed_write_has_exit_code_6_and_an_unusable_name_2(
    bertmill: RunCommand, monkeypatch: pytest.MonkeyPatch, number: int, file: str | None, code: int
) -> None:
    def fail(_settings: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr("bertmill.cli.check.run", fail)
    done = bertmill("check", "folder")
    assert done.returncode == code
    assert done.stderr == f"bertmill: {file or 'standard output'}: {os.strerror(number)}\n"


def test_control_characters_in_the_name_of_a_file_that_fails_are_escaped(
    bertmill: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_settings: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a\x1b[1m\n.csv")

    monkeypatch.setattr("bertmill.cli.check.run", fail)
    assert bertmill("check", "folder").stderr == "bertmill: a\\x1b[1m\\n.csv: Input/output error\n"


def test_python_m_bertmill_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "bertmill", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("bertmill ")


def test_a_default_of_one_is_not_shown_as_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "to this norm (default: 1.0)" in text
    assert "0 disables prefetching (default: 1)" in text
