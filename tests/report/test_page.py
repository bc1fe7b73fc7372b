"""Tests for the HTML file: it is self-contained, its data is valid and its size is bounded."""

from __future__ import annotations

import json
import random
import re
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bertmill.report.page import render, write_report, write_run_report
from tests.report.conftest import HOSTILE

MAX_PAGE_BYTES = 5_000_000


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    content: dict[str, Any] = json.loads(match[1])
    return content


def test_every_run_writes_a_report(pretrained_run: Path, finished: Path, tagger: Path, answerer: Path) -> None:
    for run, command in (
        (pretrained_run, "pretrain"),
        (finished, "finetune"),
        (tagger.parent, "finetune"),
        (answerer.parent, "finetune"),
    ):
        page = (run / "report.html").read_text(encoding="utf-8")
        (data,) = data_of(page)["runs"]
        assert (data["name"], data["command"]) == (run.name, command)
        assert data["evaluation"]["attention"]
        assert len(page) < MAX_PAGE_BYTES


def test_a_report_loads_no_other_files(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert "script-src 'unsafe-inline'" not in page
    without_namespace = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://|src=|@import|url\(", without_namespace)


def test_user_texts_stay_inside_the_data(hostile_run: Path) -> None:
    page = (hostile_run / "report.html").read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    (data,) = data_of(page)["runs"]
    assert HOSTILE in data["evaluation"]["worst"][0]["text"]


def test_a_placeholder_in_the_data_is_not_replaced() -> None:
    page = render({"version": "/*SCRIPT*/ /*STYLE*/ \u2028", "runs": []})
    assert data_of(page)["version"] == "/*SCRIPT*/ /*STYLE*/ \u2028"


def test_several_runs_share_a_report(finished: Path, pretrained_run: Path, tmp_path: Path) -> None:
    write_report([finished, pretrained_run], tmp_path / "both.html")
    runs = data_of((tmp_path / "both.html").read_text(encoding="utf-8"))["runs"]
    assert [run["name"] for run in runs] == [f"{run.parent.name}/run" for run in (finished, pretrained_run)]


def test_the_report_of_a_run_with_trials_has_all_trials(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("seed-1", "seed-0"):
        shutil.copytree(finished, run / "trials" / name)
    shutil.copy(finished / "config.toml", run)
    write_run_report(run)
    runs = data_of((run / "report.html").read_text(encoding="utf-8"))["runs"]
    assert [each["name"] for each in runs] == ["seed-0", "seed-1"]


@pytest.fixture(scope="module")
def large_run(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with 100,000 lines in its log, 77 classes and long texts."""
    run = tmp_path_factory.mktemp("large") / "large"
    shutil.copytree(finished, run)
    draw = random.Random(0)
    lines = (
        {
            "step": step,
            "progress": step / 1e5,
            "seconds": step / 10,
            "loss": 3 + draw.random(),
            "pieces": 4096.0,
            "rate": 1e-4,
        }
        for step in range(1, 100_001)
    )
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    evaluation = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    labels = [f"class number {number}" for number in range(77)]
    evaluation["classes"] = [
        {"label": label, "precision": 0.5, "recall": 0.5, "f1": 0.5, "rows": 40} for label in labels
    ]
    evaluation["confusion"] = [[draw.randrange(3) for _ in labels] for _ in labels]
    row = {
        "place": "rows.tsv:1",
        "id": None,
        "text": "word " * 100_000,
        "expected": "a",
        "shown": "b 0.9000",
    }
    evaluation["worst"] = [row] * 20
    (run / "evaluation.json").write_text(json.dumps(evaluation), encoding="utf-8")
    return run


def test_a_long_run_with_many_classes_stays_small(large_run: Path) -> None:
    write_run_report(large_run)
    assert (large_run / "report.html").stat().st_size < 1_000_000


def test_a_page_of_many_runs_stays_below_5_mb(large_run: Path, answerer: Path, tmp_path: Path) -> None:
    run = tmp_path / "large"
    shutil.copytree(large_run, run)
    with (run / "log.jsonl").open(encoding="utf-8") as log:
        lines = list(islice(log, 25_000))  # the whole log would only take longer to read: ten of these have 30 MB
    (run / "log.jsonl").write_text("".join(lines), encoding="utf-8")
    write_report([run] * 10 + [answerer.parent] * 10, tmp_path / "many.html")
    assert (tmp_path / "many.html").stat().st_size < MAX_PAGE_BYTES


def test_runs_with_the_same_name_are_told_apart_by_their_folders(finished: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name / "run")
    write_report([tmp_path / "a/run", tmp_path / "b/run"], tmp_path / "both.html")
    runs = data_of((tmp_path / "both.html").read_text(encoding="utf-8"))["runs"]
    assert [run["name"] for run in runs] == ["a/run", "b/run"]


def test_a_number_that_is_not_finite_does_not_damage_the_page(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    with (run / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 999, "progress": 1.0, "seconds": 9.0, "loss": NaN, "pieces": 1.0, "rate": 0.0}\n')
    write_run_report(run)
    (data,) = data_of((run / "report.html").read_text(encoding="utf-8"))["runs"]
    assert data["training"]["loss"][-1] is None
