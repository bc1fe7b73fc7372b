"""Tests for `bertmill report`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import RunCommand


def test_it_writes_the_report_of_a_run_into_its_folder(bertmill: RunCommand, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "report.html").unlink()
    done = bertmill("report", "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "run/report.html\n", "")
    assert (run / "report.html").read_text(encoding="utf-8") == (finished / "report.html").read_text(encoding="utf-8")


def test_it_writes_the_report_of_several_runs_into_the_current_folder(
    bertmill: RunCommand, finished: Path, tmp_path: Path
) -> None:
    assert bertmill("report", finished, finished).stdout == "report.html\n"
    assert bertmill("report", finished, "--out", "other.html").stdout == "other.html\n"
    assert (tmp_path / "report.html").stat().st_size > (tmp_path / "other.html").stat().st_size


def test_the_report_of_several_runs_does_not_overwrite_another_one(
    bertmill: RunCommand, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "report.html").write_text("something else")
    done = bertmill("report", finished, finished)
    assert (done.returncode, done.stderr) == (
        2,
        "bertmill: report.html: already exists; name the file to write with --out\n",
    )
    assert (tmp_path / "report.html").read_text() == "something else"
    assert bertmill("report", finished, finished, "--out", "report.html").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "RUN… is required: run folders"),
        (["."], 2, "bertmill: .: not a run folder (config.toml is missing)"),
        (["absent"], 2, "bertmill: absent: not a run folder (config.toml is missing)"),
    ],
)
def test_bad_input_gives_one_line(words: list[str], code: int, message: str, bertmill: RunCommand) -> None:
    done = bertmill("report", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_report_of_a_run_with_trials_shows_the_trials(bertmill: RunCommand, finished: Path, tmp_path: Path) -> None:
    for name in ("seed-0", "seed-1"):
        shutil.copytree(finished, tmp_path / "run/trials" / name)
    shutil.copy(finished / "config.toml", tmp_path / "run")
    assert bertmill("report", "run").stdout == "run/report.html\n"
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert '"name":"seed-0"' in page
    assert '"name":"seed-1"' in page


def test_a_damaged_log_is_one_line(bertmill: RunCommand, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run/log.jsonl").write_text("[" * 100_000 + "\n", encoding="utf-8")
    done = bertmill("report", "run")
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    assert "run/log.jsonl:1: is not a line of a training log" in done.stderr
