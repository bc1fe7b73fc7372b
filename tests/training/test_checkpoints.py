"""Checkpoints of a training run: what is kept, and what cannot be restored."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from bertmill.cli.main import main
from bertmill.errors import IntegrityError
from bertmill.storage import write_manifest
from bertmill.training.schedule import Schedule
from tests.training.pretraining import pretrain
from tests.training.test_loop import CountingTrainable, EvaluatedTrainable, one_phase, trainer_in


def test_a_removed_best_step_is_forgotten(tmp_path: Path) -> None:
    """A better checkpoint replaced it and is damaged, so the run is back at a step before both."""
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=4), keep=9, save_every=1, eval_every=2)
    trainer.train(one_phase(EvaluatedTrainable(1.0)))
    assert trainer.state.best_step == 2
    shutil.rmtree(tmp_path / "checkpoints/step-000002")
    again = trainer_in(tmp_path, Schedule(0.1, steps=8), keep=9, save_every=1, eval_every=2)
    again.resume()
    assert again.state.best_step is None
    again.train(one_phase(EvaluatedTrainable(3.0)))
    again.take_best()
    assert (again.state.best_step, again.state.best_figures) == (6, {"loss": 3.0})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(1, 1, bias=False), r"bias is \(1,\) in the checkpoint and missing in the model"),
        (nn.Bilinear(1, 1, 1), r"weight is \(1, 1\) in the checkpoint and \(1, 1, 1\) in the model"),
        (nn.Sequential(nn.Linear(1, 1)), r"0.weight is missing in the checkpoint and \(1, 1\) in the model"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(model: nn.Module, message: str, tmp_path: Path) -> None:
    trainer_in(tmp_path, Schedule(0.1, steps=2)).train(one_phase(CountingTrainable()))
    other = trainer_in(tmp_path, Schedule(0.1, steps=2))
    other.model = model
    with pytest.raises(IntegrityError, match=f"step-000002/weights.safetensors: does not match the model: {message}"):
        other.resume()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def break_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:9] + b"?" + content[10:])


def drop_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    del tensors[sorted(tensors)[0]]
    save_file(tensors, path)


def widen_a_tensor(path: Path) -> None:
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("weight"))
    save_file({**tensors, name: torch.zeros(3, 3)}, path)


def change_the_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 20', '"step": 19'))


def change_a_type(path: Path) -> None:
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": "long", "x": '))


def change_a_sum(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "sums": {"examples": "many"}}))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing file", "missing manifest", "broken header"])
def test_a_damaged_checkpoint_is_skipped(
    damage: str, half_a_run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    expected = (run / "checkpoints/step-000020/weights.safetensors").read_bytes()
    broken = run / "checkpoints/step-000020/weights.safetensors"
    if damage == "truncated":
        broken.write_bytes(expected[:-10])
    elif damage == "flipped":
        broken.write_bytes(expected[:-10] + bytes([expected[-10] ^ 1]) + expected[-9:])
    elif damage == "missing file":
        broken.unlink()
    elif damage == "broken header":
        break_header(broken)
        (broken.parent / "manifest.json").unlink()
        write_manifest(broken.parent)
    else:
        (broken.parent / "manifest.json").unlink()
    assert main(["pretrain", "--out", str(run), "--resume"]) == 0
    messages = capsys.readouterr().err.splitlines()
    assert len([line for line in messages if line.startswith("skipped checkpoint: ")]) == 1
    assert "resumed from step 15" in messages
    assert broken.read_bytes() == expected


DAMAGES = [
    *[(file, damage) for file in ("weights", "optimizer") for damage in (cut, break_header, drop_a_tensor)],
    ("optimizer", widen_a_tensor),
    *[("state", damage) for damage in (change_the_step, change_a_type, change_a_sum)],
]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_a_checkpoint_that_is_damaged_although_its_manifest_fits_is_skipped(
    file: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    settings = {"keep": 2, "save_every": 1, "log_every": 1}
    trainer_in(tmp_path, Schedule(0.1, steps=20), **settings).train(one_phase(CountingTrainable()))
    newest = tmp_path / "checkpoints/step-000020"
    path = newest / ("state.json" if file == "state" else f"{file}.safetensors")
    expected = {name: (newest / f"{name}.safetensors").read_bytes() for name in ("weights", "optimizer")}
    before = path.read_bytes()
    damage(path)
    assert path.read_bytes() != before
    (newest / "manifest.json").unlink()
    write_manifest(newest)
    again, remarks = trainer_in(tmp_path, Schedule(0.1, steps=20), **settings), []
    again.journal.remark = remarks.append
    assert again.resume()
    assert again.state.step == 19
    assert [remark.startswith(f"skipped checkpoint: {newest}") for remark in remarks] == [True, False]
    again.train(one_phase(CountingTrainable()))
    assert {name: (newest / f"{name}.safetensors").read_bytes() for name in expected} == expected


def test_it_is_an_error_if_all_checkpoints_are_damaged(
    half_a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    for state in run.glob("checkpoints/*/state.json"):
        state.write_text("{}", encoding="utf-8")
        (state.parent / "manifest.json").unlink()
        write_manifest(state.parent)
    assert main(["pretrain", "--out", str(run), "--resume"]) == 4
    assert "state.json" in capsys.readouterr().err


def test_a_full_disk_keeps_the_last_checkpoint(half_a_run: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21));"
    program = f"{limit} import sys; from bertmill.cli.main import main; sys.exit(main(sys.argv[1:]))"
    run = shutil.copytree(half_a_run, tmp_path / "run")
    shutil.rmtree(run / "checkpoints/step-000020")
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    assert before
    resume = ["pretrain", "--out", str(run), "--resume", "--quiet"]
    done = subprocess.run([sys.executable, "-c", program, *resume], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    assert main(resume) == 0


@pytest.mark.parametrize("action", ["stop", "skip", "reload"])
def test_non_finite_weights_are_never_saved(
    action: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 8, "--learning-rate", 1e39, "--on-nonfinite", action) == 5
    assert "lower the learning rate" in capsys.readouterr().err
    assert not (run / "model").exists()
    assert [path.name for path in run.glob("checkpoints/*")] == ["step-000000"]  # the initial weights
