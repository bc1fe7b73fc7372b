"""Checkpoints of a training: what is kept, and what cannot be restored."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch import nn

from bertmill.errors import IntegrityError
from bertmill.training.schedule import Schedule
from tests.training.test_loop import CountingTrainable, EvaluatedTrainable, one_phase, trainer_in


def test_a_best_step_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """As where a better one came, which is broken now: the training is back before it, and its best was removed."""
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=4), keep=9, save_every=1)
    trainer.eval_every = 2
    trainer.train(one_phase(EvaluatedTrainable(1.0)))
    assert trainer.state.best_step == 2
    shutil.rmtree(tmp_path / "checkpoints/step-000002")
    again = trainer_in(tmp_path, Schedule(0.1, steps=8), keep=9, save_every=1)
    again.eval_every = 2
    again.resume()
    assert again.state.best_step is None
    again.train(one_phase(EvaluatedTrainable(3.0)))
    again.take_best()
    assert (again.state.best_step, again.state.best_figures) == (6, {"loss": 3.0})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(1, 1, bias=False), r"the shape of bias is \(1,\), in the model missing"),
        (nn.Bilinear(1, 1, 1), r"the shape of weight is \(1, 1\), in the model \(1, 1, 1\)"),
        (nn.Sequential(nn.Linear(1, 1)), r"the shape of 0.weight is missing, in the model \(1, 1\)"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(model: nn.Module, message: str, tmp_path: Path) -> None:
    trainer_in(tmp_path, Schedule(0.1, steps=2)).train(one_phase(CountingTrainable()))
    other = trainer_in(tmp_path, Schedule(0.1, steps=2))
    other.model = model
    with pytest.raises(IntegrityError, match=f"step-000002: is of another model: {message}"):
        other.resume()
