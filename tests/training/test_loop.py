"""The training loop, mostly with trainables that only count."""

from __future__ import annotations

import json
import os
import signal
import time
import typing
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel
from safetensors.torch import load_file
from torch import Tensor, nn

from bertmill.batching.windows import Windows
from bertmill.config.fields import OnNonFinite
from bertmill.errors import NonFiniteError, StoppedError
from bertmill.training import loop
from bertmill.training.dataset import Dataset
from bertmill.training.distributed import Ranks
from bertmill.training.finetune import ResolvedFinetuning
from bertmill.training.loop import ResolvedTraining, Trainer
from bertmill.training.pretrain import ResolvedPretraining
from bertmill.training.progress import Journal, Listener
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder
from bertmill.training.trainable import Phase
from tests.training.pretraining import NanLossAt, log_of, pretrain


class CountingTrainable:
    """A batch is its own number; `taken` lists the batches whose loss was computed."""

    def __init__(self, not_finite: Sequence[int] = ()) -> None:
        self.not_finite = not_finite
        self.taken: list[int] = []

    def batches(self, start_step: int) -> Generator[int]:
        while True:
            yield start_step
            start_step += 1

    def micro_batches(self, batch: int) -> list[int]:
        return [batch]

    def counts(self, batch: int) -> dict[str, int]:
        return {"batches": 1}

    def loss(self, model: nn.Module, micro_batch: int, totals: Mapping[str, float]) -> tuple[Tensor, dict[str, float]]:
        self.taken.append(micro_batch)
        loss = model(torch.ones(1, 1)).sum() * (float("nan") if micro_batch in self.not_finite else 1.0)
        return loss, {"loss": float(loss.detach())}

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"]}

    evaluated_on = "heldout"

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {}

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [-figures["loss"]]

    def describe(self, batch: int) -> str:
        return f"batch {batch}"


def trainer_in(folder: Path, schedule: Schedule, *, ranks: Ranks | None = None, **settings: Any) -> Trainer:
    run = RunFolder(folder)
    journal = Journal(run.log, Listener())
    folder.mkdir(exist_ok=True)
    ranks = ranks or Ranks(torch.device("cpu"))
    resolved = ResolvedTraining(out=folder, **{"eval_every": 1000, "log_every": 50, **settings})
    return Trainer(nn.Linear(1, 1), schedule, resolved, run, ranks, journal)


def two_phases(first: CountingTrainable, second: CountingTrainable) -> list[Phase]:
    return [Phase(first, 0.5), Phase(second, 1.0)]


def one_phase(trainable: CountingTrainable) -> list[Phase]:
    return [Phase(trainable, 1.0)]


class WithASlowRank(Ranks):
    """Another rank has just taken a thousand seconds for a step."""

    def largest(self, values: Sequence[float]) -> list[float]:
        return [max(pair) for pair in zip(values, (0.0, 0.0, 1000.0), strict=False)]


def test_the_slowest_rank_decides_whether_there_is_time_for_another_step(tmp_path: Path) -> None:
    trainable = CountingTrainable()
    trainer_in(tmp_path, Schedule(0.1, seconds=2), ranks=WithASlowRank(torch.device("cpu"))).train(one_phase(trainable))
    assert trainable.taken == [0]


def test_reloading_a_checkpoint_of_an_earlier_phase_repeats_its_batches(tmp_path: Path) -> None:
    first, second = CountingTrainable(), CountingTrainable(not_finite=[1])
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=10), save_every=4, on_nonfinite="reload")
    trainer.train(two_phases(first, second))
    assert first.taken == [
        0,
        1,
        2,
        3,
        4,
        4,
    ]  # the checkpoint was saved at step 4, and the second phase starts at step 5
    assert second.taken == [0, 1, 0, 2, 3, 4]
    assert (trainer.state.phase, trainer.state.phase_start, trainer.state.left_out) == (1, 5, [6])


def test_the_first_step_of_a_phase_may_fail_too(tmp_path: Path) -> None:
    """The checkpoint to reload has the same step, but belongs to the previous phase."""
    first, second = CountingTrainable(), CountingTrainable(not_finite=[0])
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=10), save_every=5, on_nonfinite="reload")
    trainer.train(two_phases(first, second))
    assert first.taken == [0, 1, 2, 3, 4]
    assert second.taken == [0, 1, 2, 3, 4]
    assert (trainer.state.phase_start, trainer.state.left_out) == (5, [5])


class EvaluatedTrainable(CountingTrainable):
    """Evaluates to a given loss; may send a signal to this process during evaluation."""

    def __init__(self, loss: float, signal_number: int | None = None) -> None:
        super().__init__()
        self.measured_loss = loss
        self.signal_number = signal_number

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        if self.signal_number is not None:
            os.kill(os.getpid(), self.signal_number)
        return {"loss": self.measured_loss}


def test_a_signal_during_the_evaluation_at_the_end_of_a_phase_is_handled(tmp_path: Path) -> None:
    first, second = EvaluatedTrainable(1.0, signal.SIGTERM), CountingTrainable()
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=10), eval_every=5)
    with pytest.raises(StoppedError, match="stopped after step 6") as stopped:
        trainer.train(two_phases(first, second))
    assert stopped.value.exit_code == 143
    assert second.taken == [0]


def test_best_steps_of_different_phases_are_not_compared(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=10), keep=1, eval_every=1)
    trainer.train(two_phases(EvaluatedTrainable(1.0), EvaluatedTrainable(2.0)))
    assert (trainer.state.best_step, trainer.state.best_figures) == (6, {"loss": 2.0})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000006", "step-000010"]


def test_freed_memory_is_returned_regularly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(loop, "GIVE_BACK_EVERY_S", 0.0)
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=3))
    monkeypatch.setattr(loop, "give_back_freed_memory", lambda: given_back.append(trainer.state.step))
    trainer.train(one_phase(CountingTrainable()))
    assert given_back == [1, 2, 3]


def test_the_log_ends_with_the_last_step(tmp_path: Path) -> None:
    trainer_in(tmp_path, Schedule(0.1, steps=7), log_every=3).train(one_phase(CountingTrainable()))
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [3, 6, 7]


class TieBreakingTrainable(EvaluatedTrainable):
    """The metric is constant; the loss, which breaks ties, improves a little each time."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        self.measured_loss -= 0.01
        return {"loss": self.measured_loss}

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [0.5, -figures["loss"]]


def test_patience_ignores_tie_breakers_and_its_last_step_is_logged(tmp_path: Path) -> None:
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=100), log_every=50, eval_every=2, patience=3)
    trainer.train(one_phase(TieBreakingTrainable(1.0)))
    assert (trainer.state.step, trainer.state.best_step) == (8, 8)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [8]


@pytest.mark.parametrize("action", ["skip", "reload"])
def test_a_run_stops_if_every_step_from_some_point_on_fails(action: OnNonFinite, tmp_path: Path) -> None:
    trainable = CountingTrainable(not_finite=range(7, 100))
    trainer = trainer_in(tmp_path, Schedule(0.1, steps=100), save_every=5, on_nonfinite=action)
    with pytest.raises(NonFiniteError, match=r"step 17 .* lower the learning rate$"):
        trainer.train(one_phase(trainable))


def test_a_run_killed_before_its_first_checkpoint_restarts_its_log(tmp_path: Path) -> None:
    killed = trainer_in(tmp_path, Schedule(0.1, steps=9), log_every=1)
    with pytest.raises(NonFiniteError):
        killed.train(one_phase(CountingTrainable(not_finite=[5])))
    assert not (tmp_path / "checkpoints").exists()
    resumed = trainer_in(tmp_path, Schedule(0.1, steps=9), log_every=1)
    resumed.resume()
    assert resumed.state.step == 0
    resumed.train(one_phase(CountingTrainable()))
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 10))


def test_a_budget_is_not_exceeded_and_ends_with_a_rate_near_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class Lasting(CountingTrainable):
        def loss(self, *arguments: Any) -> tuple[Tensor, dict[str, float]]:
            nonlocal now
            now += 10
            return super().loss(*arguments)

    trainable = Lasting()
    trainer_in(tmp_path, Schedule(0.1, seconds=105), log_every=1).train(one_phase(trainable))
    assert trainable.taken == list(range(10))
    last = json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1])
    assert last["seconds"] == 100
    assert last["rate"] == pytest.approx(0.1 * (5 / 105) / 0.94)


def test_a_budget_includes_initial_weights_and_warm_up_starts_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class Lasting(CountingTrainable):
        def loss(self, *arguments: Any) -> tuple[Tensor, dict[str, float]]:
            nonlocal now
            now += 0.25
            return super().loss(*arguments)

    first = trainer_in(tmp_path, Schedule(0.1, seconds=60))
    first.save_initial_weights(50.0)
    resumed = trainer_in(tmp_path, Schedule(0.1, seconds=60), log_every=39)
    assert resumed.resume()
    for trainer in (first, resumed):
        assert (trainer.state.seconds, trainer.state.start_seconds) == (50.0, 50.0)
        assert trainer.schedule.progress(0, 50.0) == 0
        assert trainer.schedule.rate(0, 50.0) == 0
        assert trainer.schedule.rate(1, 50.25) == pytest.approx(0.1 * 0.025 / 0.06)
    trainable = Lasting()
    resumed.train(one_phase(trainable))
    assert trainable.taken == list(range(40))
    log = log_of(tmp_path)
    assert [line["seconds"] for line in log] == [59.75, 60]
    assert log[0]["progress"] == pytest.approx(0.975)


@pytest.mark.slow  # it measures time
def test_a_budget_ends_on_time_with_the_rate_at_zero(corpus: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    assert pretrain(corpus, tmp_path / "run", "--budget", "4s", "--log-every", 1) == 0
    last = log_of(tmp_path / "run")[-1]
    assert 3 < last["seconds"] <= 4.5  # the last step may be slower than the others
    assert last["rate"] < 0.1 * 0.001
    assert time.monotonic() - started < 20


def test_a_loss_that_is_not_a_number_stops_the_run(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    NanLossAt({7}, monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 12, "--save-every", 5) == 5
    message = capsys.readouterr().err.splitlines()[-1]
    assert "step 7 is not finite (8 instances" in message
    initial, checkpoint = sorted((tmp_path / "run/checkpoints").iterdir())
    assert (initial.name, checkpoint.name) == ("step-000000", "step-000005")
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "weights.safetensors").values())


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(("action", "steps_computed"), [("skip", 12), ("reload", 14)])
def test_a_non_finite_step_can_be_skipped(
    action: str, steps_computed: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = NanLossAt({7}, monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 12, "--save-every", 5, "--on-nonfinite", action) == 0
    assert losses.calls == steps_computed  # reloading step 5 repeats steps 5 and 6, but not 7
    state = json.loads((tmp_path / "run/checkpoints/step-000012/state.json").read_text(encoding="utf-8"))
    assert state["left_out"] == [7]


def test_a_run_that_always_fails_stops(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NanLossAt(set(range(100)), monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 40, "--on-nonfinite", "skip") == 5


def may_be_none(hint: Any) -> bool:
    return hint in (None, type(None)) or any(map(may_be_none, typing.get_args(hint)))


@pytest.mark.parametrize(
    "kind", [ResolvedTraining, ResolvedPretraining, ResolvedFinetuning, Windows, Schedule, Dataset]
)
def test_resolved_settings_have_no_optional_fields(kind: type[Any]) -> None:
    names = kind.model_fields if issubclass(kind, BaseModel) else kind.__dataclass_fields__
    hints = typing.get_type_hints(kind)
    assert names
    assert [name for name in names if hints[name] is Any or may_be_none(hints[name])] == []
    assert kind.model_config["frozen"] if issubclass(kind, BaseModel) else kind.__dataclass_params__.frozen
