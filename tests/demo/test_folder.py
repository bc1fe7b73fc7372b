"""Tests for the demo folder: which folders are accepted, continuing a demo, and its paths."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertmill.config.commands import DemoSettings
from bertmill.demo.folder import FULL, GAIN, MINILM, QUICK, Demo, Plan, open_demo
from bertmill.errors import IntegrityError, ResourceError, UsageError


def test_a_demo_is_only_continued_with_the_same_settings(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    with open_demo(DemoSettings(out=out, quick=True)) as demo:
        demo.add_seconds("corpus", 2.04)
    with open_demo(DemoSettings(out=out, quick=True, threads=1, quiet=True)) as demo:
        demo.add_seconds("corpus", 1.0)
        assert demo.read_seconds() == {"corpus": 3.0}
    for settings in (DemoSettings(out=out), DemoSettings(out=out, quick=True, steps=5)):
        with pytest.raises(UsageError, match=r"different settings \(quick=True, steps=None\)"), open_demo(settings):
            pass


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="neither empty nor a demo folder"), open_demo(DemoSettings(out=tmp_path)):
        pass
    with pytest.raises(UsageError, match="is a file"), open_demo(DemoSettings(out=tmp_path / "notes.txt")):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_demo_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text(json.dumps({"format": 2, "quick": False, "steps": None}))
    with pytest.raises(IntegrityError, match="upgrade bertmill"), open_demo(DemoSettings(out=tmp_path)):
        pass


def test_two_processes_cannot_use_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertmill.locks._LOCK_PATIENCE_S", 0.1)
    settings = DemoSettings(out=tmp_path / "demo")
    with open_demo(settings), pytest.raises(ResourceError, match="another process"), open_demo(settings):
        pass


def test_steps_replace_the_time_budget() -> None:
    assert Demo(DemoSettings()).plan == FULL
    plan = Demo(DemoSettings(steps=7)).plan
    assert (plan.steps, plan.budget_s) == (7, None)
    assert plan.encoder == FULL.encoder
    assert Demo(DemoSettings(quick=True)).plan == QUICK


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=["full", "quick"])
def test_pretrained_and_random_weights_are_fine_tuned_alike(plan: Plan) -> None:
    tunings = {tuning.name: tuning for tuning in plan.tunings}
    pretrained, random = (tunings[name] for name in GAIN)
    assert replace(pretrained, start="") == replace(random, start="")


def test_each_fine_tuning_starts_from_the_right_model(tmp_path: Path) -> None:
    demo = Demo(DemoSettings(out=tmp_path))
    starts = {tuning.name: demo.start_of(tuning) for tuning in demo.plan.tunings}
    assert starts["tag-pretrained"] == str(tmp_path / "pretrain/model")
    assert starts["tag-random"] == str(tmp_path / "random")
    assert starts["answer-minilm"] == MINILM
