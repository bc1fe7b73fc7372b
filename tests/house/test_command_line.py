"""The program as a whole: help, speed of start, settings from flags and files, errors and exit codes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bertmill.cli.main import COMMANDS, main
from bertmill.errors import BertmillError, DataError, IntegrityError, NonFiniteError, ResourceError, UsageError
from tests.conftest import RunCommand


def test_help_lists_every_command(bertmill: RunCommand) -> None:
    done = bertmill("--help")
    assert done.returncode == 0
    for command, summary in COMMANDS.items():
        assert command in done.stdout
        assert summary in done.stdout


def test_help_answers_in_under_half_a_second(bertmill: RunCommand) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        bertmill("--help")
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help_imports_no_torch(words: list[str]) -> None:
    code = f"import sys; from bertmill.cli.main import main; main({words!r}); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "usage: bertmill" in done.stdout


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


def test_a_missing_or_broken_settings_file_is_one_line(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("a = [")
    for name in ("absent.toml", "broken.toml"):
        done = bertmill("demo", "--config", name)
        assert done.returncode == 2
        assert done.stderr.startswith(f"bertmill: {name}: ")
        assert len(done.stderr.splitlines()) == 1


def test_a_required_flag_that_is_missing_is_named(bertmill: RunCommand) -> None:
    done = bertmill("tokenize", "--text", "x")
    assert done.returncode == 2
    assert "--model is required" in done.stderr


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a line of text\n" * 20_000)
    program = Path(sys.executable).with_name("bertmill")
    command = f"{program} tokenize --model minilm {tmp_path}/long.txt | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("piece")
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("shell", "code", "message"),
    [
        ("demo > /dev/full", 6, "standard output: No space left on device"),
        ("tokenize --model minilm --text a >&-", 0, ""),
        ("tokenize --model minilm - <&-", 2, "standard input is closed"),
        ("tokenize --model minilm $(printf 'a%.0s' {1..300})", 2, "File name too long"),
        ("tokenize --model '' --text a", 2, "the name of the model is empty"),
        ("demo more", 2, "'more' is one argument too many"),
    ],
)
def test_what_the_shell_can_do_wrong_is_one_line(shell: str, code: int, message: str) -> None:
    program = Path(sys.executable).with_name("bertmill")
    done = subprocess.run(["bash", "-c", f"{program} {shell}"], capture_output=True, text=True)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == (1 if message else 0)


def test_python_m_bertmill_is_the_same_program() -> None:
    done = subprocess.run([sys.executable, "-m", "bertmill", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("bertmill ")


def test_each_error_has_the_exit_code_of_the_contract() -> None:
    codes = {kind: kind.exit_code for kind in (UsageError, DataError, IntegrityError, NonFiniteError, ResourceError)}
    assert list(codes.values()) == [2, 3, 4, 5, 6]
    assert all(issubclass(kind, BertmillError) for kind in codes)


def test_a_message_says_where_what_and_what_to_do() -> None:
    error = DataError("has no label", where="train.tsv:7", remedy="add one")
    assert str(error) == "train.tsv:7: has no label; add one"


def test_a_default_of_one_is_no_yes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "to this norm (default: 1.0)" in text
    assert "(0: none) (default: 1)" in text
