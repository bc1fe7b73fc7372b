"""Tests for reading the data of a run: curves from its log, and errors for damaged or missing files."""

from __future__ import annotations

import json
import math
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.report.run_data import MAX_POINTS, _confusion, _training_curves, read_run_data


def log_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_curves_match_the_lines_of_the_log(pretrained_run: Path) -> None:
    data = read_run_data(pretrained_run)
    vocabulary_size = len((pretrained_run / "model/vocab.txt").read_text(encoding="utf-8").splitlines())
    lines = log_of(pretrained_run)
    trained = [line for line in lines if "progress" in line]
    for name in ("step", "loss", "mlm_loss", "rate"):
        assert data["training"][name] == [line[name] for line in trained]
    speed = data["training"]["pieces_per_second"][1]
    assert speed == pytest.approx(trained[1]["pieces"] / (trained[1]["seconds"] - trained[0]["seconds"]))
    evaluated = [line for line in lines if "progress" not in line]
    assert data["evaluated"]["step"] == [4, 8, 12]
    assert data["evaluated"]["mlm_loss"] == [line["heldout_mlm_loss"] for line in evaluated]
    assert data["references"]["uniform"] == pytest.approx(math.log(vocabulary_size))
    assert 2 < data["references"]["unigram"] < math.log(vocabulary_size)
    assert data["is_finished"]


def test_an_unfinished_run_has_curves_and_references(pretrained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pretrained_run, run, ignore=shutil.ignore_patterns("model", "evaluation.json"))
    data, whole = read_run_data(run), read_run_data(pretrained_run)
    assert not data["is_finished"]
    assert data["evaluation"] == {}
    assert (data["training"], data["references"]) == (whole["training"], whole["references"])


def test_a_truncated_last_line_is_ignored(pretrained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pretrained_run, run)
    with (run / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 1')
    assert read_run_data(run)["training"] == read_run_data(pretrained_run)["training"]


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"loss": 1}', '{"step": "1"}', '{"step": 1, "loss": "x"}', ""])
def test_the_error_for_a_damaged_log_names_the_line(line: str, pretrained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pretrained_run, run)
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    lines[2] = line
    (run / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"log.jsonl:3: is not a line of a training log"):
        read_run_data(run)


@pytest.mark.parametrize("name", ["config.toml", "evaluation.json", "model/bertmill.json"])
def test_the_error_for_a_damaged_file_names_the_file(name: str, pretrained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pretrained_run, run)
    (run / name).write_text("{", encoding="utf-8")
    with pytest.raises(BertmillError, match=name):
        read_run_data(run)


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a run folder \(config.toml is missing\)"):
        read_run_data(tmp_path)
    with pytest.raises(UsageError, match="not a run folder"):
        read_run_data(tmp_path / "absent")


@pytest.mark.parametrize(("number", "remedy"), [(2, "upgrade"), ('"x"', "restore")])
def test_a_run_of_another_version_is_refused(number: object, remedy: str, pretrained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(pretrained_run, run)
    content = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(content.replace("format = 1", f"format = {number}"), encoding="utf-8")
    with pytest.raises(IntegrityError, match=remedy):
        read_run_data(run)


@given(st.integers(1, 5 * MAX_POINTS))
def test_long_logs_are_averaged_to_few_points(count: int) -> None:
    lines = [
        {"step": step, "progress": 0.0, "loss": float(step % 7), "seconds": float(step)} for step in range(1, count + 1)
    ]
    curves = _training_curves(lines, MAX_POINTS)
    steps, losses = curves["step"], curves["loss"]
    assert len(steps) == len(losses) <= MAX_POINTS
    assert steps[-1] == count
    assert all(one is not None and other is not None and one < other for one, other in pairwise(steps))
    if count <= MAX_POINTS:
        assert losses == [line["loss"] for line in lines]
    assert all(loss is not None and 0 <= loss <= 6 for loss in losses)


def test_the_confusion_matrix_is_sparse_and_pairs_are_sorted() -> None:
    content = _confusion([[5, 2, 0], [0, 3, 4], [0, 0, 0]], ["a", "b", "c"])
    assert content["confusion"] == [(0, 0, 5), (0, 1, 2), (1, 1, 3), (1, 2, 4)]
    assert content["confused"][0] == {"expected": "b", "predicted": "c", "count": 4}
    many = _confusion([[1] * 120] * 120, [str(number) for number in range(120)])
    assert many["confusion"] == []
    assert len(many["confused"]) == 30
