"""The command line of the benchmarks: arguments, errors, table and JSON lines."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import BENCHMARKS
from benchmarks.__main__ import main
from benchmarks.measure import Row
from bertmill.errors import DataError

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def no_data_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERTMILL_DATA", raising=False)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """Replace the benchmark `tokenizer` with one that records its arguments and yields two fixed rows."""
    calls: list[tuple[Path, int]] = []

    def measure(data: Path, rounds: int) -> Iterator[Row]:
        calls.append((data, rounds))
        yield Row("tokenizer", "toy", "MB/s", 3000.0, 1500.0, "a rival", 1.5)
        yield Row("tokenizer", "toy without target", "MB/s", 1.0, 4.0, "a rival")

    monkeypatch.setitem(sys.modules, "benchmarks.tokenizer", SimpleNamespace(measure=measure))
    return calls


def error_of(capsys: pytest.CaptureFixture[str], *words: str | Path, exit_code: int = 2) -> str:
    """Run the program, which must fail, and return its only line on standard error."""
    with pytest.raises(SystemExit) as exit_:
        main(list(map(str, words)))
    assert exit_.value.code == exit_code
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("measuring ")]
    assert len(lines) == 1
    return lines[0]


def test_every_benchmark_is_a_module_with_a_measure_function() -> None:
    for name in BENCHMARKS:
        source = (ROOT / f"benchmarks/{name}.py").read_text(encoding="utf-8")
        assert "\ndef measure(data: Path, rounds: int) -> Iterator[Row]:\n" in source


def test_the_package_does_not_depend_on_the_benchmarks_or_their_data() -> None:
    forbidden = ("BERTMILL_DATA", "../shared", "import benchmarks", "from benchmarks")
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not [words for words in forbidden if words in source], path


def test_the_table_has_one_line_per_row(
    toy: list[tuple[Path, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tokenizer", "--data", str(tmp_path)])
    assert toy == [(tmp_path, 3)]
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["what", "bertmill", "rival", "ratio", "target", "rival"]
    assert lines[0].split() == ["tokenizer:", "toy", "3,000.0", "1,500.0", "MB/s", "2.00", "≥", "1.5", "a", "rival"]
    assert lines[1].split() == ["tokenizer:", "toy", "without", "target", "1.0", "4.0", "MB/s", "0.25", "a", "rival"]


def test_json_lines_have_the_fields_of_a_row_and_the_ratio(
    toy: list[tuple[Path, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--json", "--rounds", "7", "tokenizer", "--data", str(tmp_path)])
    assert toy == [(tmp_path, 7)]
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "benchmark": "tokenizer",
        "what": "toy",
        "unit": "MB/s",
        "ours": 3000.0,
        "theirs": 1500.0,
        "rival": "a rival",
        "target": 1.5,
        "ratio": 2.0,
    }
    assert second["target"] is None


def test_the_data_folder_defaults_to_the_environment_variable(
    toy: list[tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTMILL_DATA", str(tmp_path))
    main(["tokenizer", "--rounds", "1"])
    assert toy == [(tmp_path, 1)]


@pytest.mark.parametrize("words", [[], ["--data", ""]], ids=["no flag", "empty"])
def test_without_a_data_folder_nothing_runs(
    words: list[str], toy: list[tuple[Path, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    message = "benchmarks: no data folder; pass --data DIR or set BERTMILL_DATA"
    assert error_of(capsys, "tokenizer", *words) == message
    assert not toy


def test_the_error_names_a_data_folder_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{tmp_path}/absent: no such folder" in error_of(capsys, "tokenizer", "--data", tmp_path / "absent")


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'tokeniser'; did you mean tokenizer?" in error_of(capsys, "tokeniser", "--data", tmp_path)
    assert "'zzz'; choose from tokenizer, vocab, " in error_of(capsys, "zzz", "--data", tmp_path)


@pytest.mark.parametrize("rounds", ["0", "-1", "none", "1.5"])
def test_rounds_must_be_a_positive_integer(rounds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = error_of(capsys, "tokenizer", "--data", tmp_path, f"--rounds={rounds}")
    assert f"--rounds: must be an integer of at least 1 (got '{rounds}')" in message


def test_the_error_names_an_unknown_flag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--jsn" in error_of(capsys, "tokenizer", "--data", tmp_path, "--jsn")


def test_the_error_names_a_missing_package_before_anything_runs(
    toy: list[tuple[Path, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BENCHMARKS, "predict", ("no_such_rival",))
    message = error_of(capsys, "tokenizer", "predict", "--data", tmp_path)
    assert message == "benchmarks: predict needs the package no_such_rival; run: pip install -e '.[bench]'"
    assert not toy


def test_the_error_names_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = error_of(capsys, "answer", "--data", tmp_path)
    assert message == f"benchmarks: answer needs the file {tmp_path}/squad2/dev-half.json"


def test_a_bertmill_error_is_one_line_with_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(data: Path, rounds: int) -> Iterator[Row]:
        raise DataError("has no text", where="a.txt")

    monkeypatch.setitem(sys.modules, "benchmarks.tag", SimpleNamespace(measure=measure))
    assert error_of(capsys, "tag", "--data", tmp_path, exit_code=3) == "benchmarks: tag: a.txt: has no text"


def test_the_program_runs_as_a_module(tiny_data: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "tokenizer", "--data", tiny_data, "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == "measuring tokenizer …\n"
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert [row["what"] for row in rows] == ["ids only", "with offsets"]
    assert all(row["ours"] > 0 and row["theirs"] > 0 for row in rows)
