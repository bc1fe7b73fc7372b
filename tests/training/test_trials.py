"""Tests for several fine-tuning runs: each matches a separate run, and the best one is kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from statistics import mean

import pytest
from safetensors.torch import load_file

from bertmill.cli.main import main
from bertmill.config.commands import FinetuneSettings
from bertmill.errors import IntegrityError
from bertmill.tasks import settings_for
from bertmill.training.progress import Listener
from bertmill.training.runs import Run
from bertmill.training.state import RunFolder
from bertmill.training.trials import PAPER_GRID, Trial, finetune_once_or_more
from tests.finetuned import finetune_words


def test_seeds_are_separate_runs_and_the_best_is_kept(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    several, alone = tmp_path / "several", tmp_path / "alone"
    settings = {"learning_rate": 2e-3, "epochs": 1}
    assert main(finetune_words(tiny, rows_file, several, seed=3, seeds=2, **settings)) == 0
    said = capsys.readouterr()
    assert said.out == f"{several / 'model'}\n"
    assert "trial 2 of 2: seed-4" in said.err
    assert "(2 seeds)" in said.err
    assert main(finetune_words(tiny, rows_file, alone, seed=4, **settings)) == 0
    of_alone, of_seed = (load_file(run / "model/model.safetensors") for run in (alone, several / "trials/seed-4"))
    assert all((of_alone[name] == of_seed[name]).all() for name in of_alone)
    trials = json.loads((several / "trials.json").read_text())
    assert [trial["seed"] for trial in trials] == [3, 4]
    best = max(trials, key=lambda trial: trial["dev"]["accuracy"])
    kept, model = (path.read_bytes() for path in (several / "trials" / best["name"] / "model/model.safetensors",
                                                  several / "model/model.safetensors"))  # fmt: skip
    assert kept == model
    assert not list(several.glob("trials/*/checkpoints"))
    shutil.rmtree(several / "trials")
    assert main(["finetune", "--out", str(several), "--resume"]) == 0
    assert f"{several} is already finished" in capsys.readouterr().err
    assert not (several / "trials").exists()


def disk_full(source: str, target: str, **_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)


def test_stopped_trials_are_resumed(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stopping(Listener):
        def remark(self, text: str) -> None:
            if text.startswith("trial 2"):
                raise KeyboardInterrupt

    out = tmp_path / "run"
    settings = settings_for("classify")(
        task="classify", model=str(tiny), train=rows_file, out=out, epochs=0.5, seeds=2, threads=1
    )
    with pytest.raises(KeyboardInterrupt):
        finetune_once_or_more(settings, Stopping())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "copyfile", disk_full)
        assert main(["finetune", "--out", str(out), "--resume"]) == 6
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{out / 'model'}: cannot be written: No space left on device" in error
    assert main(["finetune", "--out", str(out), "--resume"]) == 0
    assert f"{out / 'trials/seed-0'} is already finished" in capsys.readouterr().err
    assert (out / "model/config.json").exists()
    assert main(["finetune", "--out", str(out), "--resume", "--seeds", "3"]) == 2
    capsys.readouterr()
    assert main(["finetune", "--out", str(out), "--resume", "--epochs", "2"]) == 2
    what = f"{out}: has finished and is a run of several trials, so it cannot be extended"
    assert what in capsys.readouterr().err
    assert main(["finetune", "classify", "--out", str(out), "--model", str(tiny), "--train", str(rows_file)]) == 2


def test_all_trials_use_the_same_rows(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, other, out = tmp_path / "rows.tsv", tmp_path / "other.tsv", tmp_path / "run"
    rows.write_bytes(rows_file.read_bytes())
    other.write_bytes(rows_file.read_bytes() + b"one more film\tno\n")

    class Meddling(Listener):
        def remark(self, text: str) -> None:
            if text.startswith("trial 2"):
                rows.write_bytes(other.read_bytes())

    settings = settings_for("classify")(
        task="classify", model=str(tiny), train=rows, out=out, epochs=0.5, seeds=2, threads=1
    )
    with pytest.raises(IntegrityError, match="the train data differs from what the run started with"):
        finetune_once_or_more(settings, Meddling())
    resume = ["finetune", "--out", str(out), "--resume", "--quiet"]
    assert main([*resume, "--train", str(other)]) == 4
    moved = tmp_path / "moved.tsv"
    moved.write_bytes(rows_file.read_bytes())
    rows.unlink()
    assert main(resume) == 2
    assert f"{rows}: does not exist; set --train to its new location" in capsys.readouterr().err
    assert main([*resume, "--train", str(moved)]) == 0
    assert f'train = "{moved}"' in (out / "config.toml").read_text(encoding="utf-8")
    assert main([*resume, "--train", str(other)]) == 2  # of a finished run too
    assert "train cannot change" in capsys.readouterr().err


def test_the_grid_is_the_papers_and_the_best_mean_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = []

    def trained(_run: Run[FinetuneSettings], settings: FinetuneSettings, setting: str, _listener: Listener) -> Trial:
        seen.append((settings.batch_size, settings.learning_rate, settings.epochs, settings.seed))
        # One lucky seed of a bad setting, and a setting that is good with both seeds.
        score = {(16, 5e-5, 2, 0): 0.99, (32, 2e-5, 4, 0): 0.8, (32, 2e-5, 4, 1): 0.9}.get(seen[-1], 0.5)
        (settings.out / "model").mkdir(parents=True)
        (settings.out / "model/name").write_text(settings.out.name)
        return Trial(RunFolder(settings.out), setting, settings.seed, "accuracy", {"accuracy": score})

    monkeypatch.setattr("bertmill.training.trials._trial", trained)
    said: list[str] = []
    listener = Listener()
    monkeypatch.setattr(listener, "remark", said.append)
    settings = settings_for("classify")(
        task="classify", model="minilm", train=tmp_path / "rows.tsv", out=tmp_path / "run", grid="paper", seeds=2
    )
    model = finetune_once_or_more(settings, listener)
    assert model is not None
    assert len(seen) == 2 * len(PAPER_GRID["batch_size"]) * len(PAPER_GRID["learning_rate"]) * len(PAPER_GRID["epochs"])
    assert len(set(seen)) == len(seen)
    assert (model / "name").read_text() == "batch-32-rate-2e-05-epochs-4-seed-1"
    assert any(f"{mean([0.8, 0.9]):.4f} ± 0.0707" in line for line in said)


def test_a_start_that_fails_leaves_no_run(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(finetune_words(tiny, tmp_path / "typo.tsv", out, seeds=2)) == 2
    assert main(finetune_words(tiny, rows_file, out, seeds=2, grid="paper")) == 2  # --epochs is given
    assert main(finetune_words(tiny, rows_file, out, seeds=2, epochs=0.1)) == 0


def test_trials_need_a_single_process(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(finetune_words(tiny, rows_file, tmp_path / "run", seeds=2)) == 2
    assert "--seeds and --grid need a single process" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
