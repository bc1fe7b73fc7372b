"""Tests for `bertmill demo`: a complete quick demo, showing its results again, and recovery from kills."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertmill.demo.folder import MINILM, QUICK
from bertmill.demo.rows import Sizes
from tests.conftest import RunCommand
from tests.program import PROGRAM

# Kill the demo this many seconds after this file appears.
MOMENTS = (
    ("demo.json", 1.0),
    ("vocabulary", 0.2),
    ("pretrain/config.toml", 3.0),
    ("classify-random/config.toml", 1.0),
    ("measured/classify-pretrained.json", 0.2),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick demo takes a fifth of its time. The slow tests, of docs/demo.md too, run the real one."""
    rows = Sizes(classify=(70, 70), tag=(120, 60), pair=(40, 10), answer=(40, 20))
    tunings = tuple(replace(tuning, epochs=1) if tuning.start == MINILM else tuning for tuning in QUICK.tunings)
    monkeypatch.setattr("bertmill.demo.folder.QUICK", replace(QUICK, steps=60, rows=rows, tunings=tunings))


def read_results(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return results


@pytest.mark.usefixtures("small")
def test_a_demo_prints_a_table_and_predictions_and_writes_a_report(bertmill: RunCommand, tmp_path: Path) -> None:
    done = bertmill("demo", "--quick", "--out", "demo")
    assert done.returncode == 0, done.stderr
    assert "collecting the documentation of 7 installed libraries" in done.stderr
    results = read_results(tmp_path / "demo")
    assert len(results["documentation"]) == 7
    assert len(results["filled"]) == 4
    assert len(results["tasks"]) == 6
    assert set(results["seconds"]) >= {"documentation", "vocabulary", "corpus", "pretrain", "measure"}
    for result in [results["masked_words"], *results["tasks"].values()]:
        assert 0 <= result["low"] <= result["value"] <= result["high"] <= 1
        assert f"{result['value']:.1%}" in done.stdout
    assert results["masked_words"]["low"] > results["masked_words"]["baseline"]
    assert results["gain"]["low"] <= results["gain"]["value"] <= results["gain"]["high"]
    for text in (
        "[MASK]",
        "Gain on classify from pre-training",
        "Predictions for test rows:",
        "Report: demo/report.html",
    ):
        assert text in done.stdout
    assert sum(line.startswith("  bertmill ") for line in done.stdout.splitlines()) == 3
    assert (tmp_path / "demo/report.html").stat().st_size > 10_000
    assert not list((tmp_path / "demo").glob("*/checkpoints"))
    runs = {path.parent for path in (tmp_path / "demo").glob("*/config.toml")}
    assert len(runs) == 7
    assert {path.parent for path in (tmp_path / "demo").glob("*/report.html")} == runs

    again = bertmill("demo", "--quick", "--out", "demo", "--quiet")
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    other = bertmill("demo", "--out", "demo")
    assert other.returncode == 2
    assert other.stderr.startswith("bertmill: demo: contains a demo with different settings")


def test_a_folder_with_other_files_is_refused(bertmill: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    done = bertmill("demo", "--out", "mine")
    assert done.returncode == 2
    assert done.stderr == "bertmill: mine: is neither empty nor a demo folder; choose another folder\n"


@pytest.mark.slow
def test_a_demo_that_is_killed_five_times_gives_the_same_results(tmp_path: Path) -> None:
    command = [str(PROGRAM), "demo", "--quick", "--steps", "60", "--threads", "1", "--quiet", "--out"]
    subprocess.run([*command, "undisturbed"], cwd=tmp_path, check=True, capture_output=True)
    for name, seconds in MOMENTS:
        process = subprocess.Popen(
            [*command, "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not (tmp_path / "killed" / name).exists():
            assert process.poll() is None, f"the demo ended before it wrote {name}"
            time.sleep(0.02)
        time.sleep(seconds)
        process.kill()
        assert process.wait() == -9, f"the demo ended before it was killed after {name}"
    done = subprocess.run([*command, "killed"], cwd=tmp_path, check=True, capture_output=True, text=True)
    expected, found = (read_results(tmp_path / name) for name in ("undisturbed", "killed"))
    assert {**found, "seconds": {}} == {**expected, "seconds": {}}
    assert "Gain on classify from pre-training" in done.stdout
