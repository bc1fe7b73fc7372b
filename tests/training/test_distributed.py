"""Several processes train one model."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.training.pretraining import log_of, pretrain

TWO_RANKS = (Path(__file__).with_name("forked_ranks.py"), 2)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
FLAGS = ("--batch-size", 9, "--dropout", 0, "--learning-rate", 1e-4)


def ranks(program: Sequence[object], corpus: Path, out: Path, *flags: object) -> subprocess.CompletedProcess[str]:
    """Pre-train with a program that starts several ranks."""
    fixed = ("--corpus", corpus, "--out", out, "--size", "tiny", "--length", 32, "--threads", 1)
    words = [sys.executable, *program, "pretrain", *fixed, *flags]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


def assert_same_training(one: Path, other: Path) -> None:
    weights = [load_file(run / "model/model.safetensors") for run in (one, other)]
    for name, tensor in weights[0].items():
        assert (tensor - weights[1][name]).abs().max() <= 1e-5, name
    for ours, theirs in zip(log_of(one), log_of(other), strict=True):
        assert ours["pieces"] == theirs["pieces"]
        assert ours["mlm_loss"] == pytest.approx(theirs["mlm_loss"], abs=1e-4)


@pytest.mark.usefixtures("kept")
def test_ranks_share_the_work_and_their_number_may_change(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = (*FLAGS, "--steps", 8, "--log-every", 2, "--save-every", 2, "--keep", 9)
    assert pretrain(corpus, tmp_path / "one", *common) == 0
    done = ranks(TWO_RANKS, corpus, tmp_path / "two", *common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model") == 1  # only the first rank prints
    assert_same_training(tmp_path / "one", tmp_path / "two")
    # Two ranks until step 2, one until 4, two to the end.
    run = shutil.copytree(tmp_path / "two", tmp_path / "changing")
    go_back(run, 2)
    capsys.readouterr()
    assert pretrain(corpus, run, *common, "--resume") == 0
    assert "resumed from step 2" in capsys.readouterr().err
    go_back(run, 4)
    assert "resumed from step 4" in ranks(TWO_RANKS, corpus, run, *common, "--resume").stderr
    assert_same_training(tmp_path / "one", run)


def go_back(run: Path, last_step: int) -> None:
    """Turn a finished run into one that was stopped after `last_step`."""
    shutil.rmtree(run / "model")
    for checkpoint in (run / "checkpoints").iterdir():
        if checkpoint.name > f"step-{last_step:06d}":
            shutil.rmtree(checkpoint)


NAN_ON_SECOND_RANK = """
import os, sys, time
from pathlib import Path
from bertmill import storage
from bertmill.cli.main import main
from bertmill.training.objective_trainable import ObjectiveTrainable

original, calls, rank = ObjectiveTrainable.loss, [], int(os.environ["RANK"])

def loss_or_nan(*arguments):
    loss, sums = original(*arguments)
    calls.append(0)
    return (loss * float("nan") if rank == 1 and len(calls) == 8 else loss), sums

ObjectiveTrainable.loss = loss_or_nan
code = main(sys.argv[1:])
here = Path(__file__).parent
(here / f"code-{rank}").write_text(str(code))
for _ in range(600):  # torchrun kills the other rank when one fails: wait until both have written their code
    if len(list(here.glob("code-*"))) == 2:
        break
    time.sleep(0.1)
sys.stderr.flush()
os._exit(code)  # torch rarely aborts when Python shuts down, and torchrun would report that instead
"""


def test_a_non_finite_loss_on_one_rank_stops_all_ranks(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(NAN_ON_SECOND_RANK, encoding="utf-8")
    flags = (*FLAGS, "--steps", 12, "--save-every", 5)
    done = ranks((*TORCHRUN, tmp_path / "rank.py"), corpus, tmp_path / "run", *flags)
    assert [(tmp_path / f"code-{rank}").read_text() for rank in (0, 1)] == ["5", "5"]
    # Both ranks write to the same stream, so their lines may be interleaved.
    assert len(re.findall(r"step 7 is not finite \([45] instances that begin with the pieces \[", done.stderr)) == 2
    assert done.stderr.count("no update was made") == 2
    assert done.returncode == 1  # of torchrun, whose report has the code of the rank
    assert re.search(r"exitcode *: 5", done.stderr)
    initial, checkpoint = sorted((tmp_path / "run/checkpoints").iterdir())
    assert (initial.name, checkpoint.name) == ("step-000000", "step-000005")
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "weights.safetensors").values())


@pytest.mark.parametrize("size", ["abc", "2"])
def test_a_world_size_without_torchrun_is_refused(
    size: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 2
    assert "WORLD_SIZE is" in capsys.readouterr().err
