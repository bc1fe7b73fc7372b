"""The training loop, the only one: pre-training and fine-tuning differ in the lessons they bring.

A step: this rank's part of the global batch, cut into micro-batches; the gradients of all, each divided by the counts
of the whole global batch, so that cutting and sharing change nothing but rounding; the sum over ranks; the norm,
which must be finite; AdamW. Everything random is a function of (seed, step, …), so a training that is stopped
anywhere and resumed from a checkpoint goes through the same bits.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from bertmill.checkpoint.store import (
    STATE,
    Checkpoint,
    checkpoint_path,
    load_checkpoint,
    newest_whole,
    remove_checkpoints,
    save_checkpoint,
    saved_steps,
)
from bertmill.config.commands import TrainingSettings
from bertmill.config.fields import Precision
from bertmill.errors import IntegrityError, NonFiniteError, StoppedError
from bertmill.machine import give_back_freed_memory
from bertmill.model.dropout import keyed_dropout
from bertmill.training.distributed import Ranks
from bertmill.training.optimizer import (
    clip_gradients,
    gradient_norm,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)
from bertmill.training.progress import Journal
from bertmill.training.schedule import Schedule
from bertmill.training.signals import StopWish
from bertmill.training.state import RunFolder, State

MAX_SKIPPED_IN_A_ROW = 10
GIVE_BACK_EVERY_S = 60.0  # freed memory; steps of other sizes leave more and more of it between what is in use


class Lessons(Protocol):
    """What is learnt: batches, their losses, and how well it went. A batch is whatever the lessons understand."""

    @property
    def measured_on(self) -> str:
        """What the data is called that is not trained on; figures in the log begin with it."""

    def batches(self, start_step: int) -> Generator[Any]:
        """This rank's part of the global batch of every step from `start_step` on."""

    def parts(self, batch: Any) -> Sequence[Any]:
        """A batch cut into micro-batches."""

    def counts(self, batch: Any) -> Mapping[str, float]:
        """What the losses of this batch are to be divided by, once summed over all ranks."""

    def loss(self, model: nn.Module, part: Any, totals: Mapping[str, float]) -> tuple[Tensor, Mapping[str, float]]:
        """A micro-batch's share of the step's loss, and sums for the log."""

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Readable figures, `loss` among them, out of sums over steps."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Figures on data that is not trained on; nothing if there is no such data."""

    def score(self, figures: Mapping[str, float]) -> list[float]:
        """How good the figures of an evaluation are: the first number that differs decides, larger is better."""

    def name_of(self, batch: Any) -> str:
        """How a person finds this batch again."""


class Phase(NamedTuple):
    """A part of a training with lessons of its own."""

    lessons: Lessons
    end: float  # how far the training has come when it ends; the last one ends with the training


class Trainer:
    """A model in training: its optimizer and state, and the folder that holds them between two processes."""

    def __init__(
        self,
        model: nn.Module,
        schedule: Schedule,
        settings: TrainingSettings,
        run: RunFolder,
        ranks: Ranks,
        journal: Journal,
        *,
        eval_every: int,
        patience: int | None = None,
    ) -> None:
        """With `patience` the training ends after so many evaluations without a better score."""
        self.model = model
        self.schedule = schedule
        self.settings = settings
        self.run = run
        self.ranks = ranks
        self.journal = journal
        self.eval_every = eval_every
        self.patience = patience
        self.optimizer = make_optimizer(model, settings.weight_decay)
        self.state = State()
        self._resumed_from: int | None = None
        self._gave_back = time.monotonic()

    def train(self, phases: Sequence[Phase]) -> None:
        """Take steps to the end of the training, from the phase on that its state is in.

        StoppedError when a signal came and the step was saved; NonFiniteError when a loss or gradient is no number.
        """
        self._started = time.monotonic() - self.state.seconds  # as if this process had trained all of it
        with StopWish() as wish:
            while not self._is_over():
                while self._phase_is_over(phases):
                    self._begin_next_phase()
                batches = phases[self.state.phase].lessons.batches(self.state.step - self.state.phase_start)
                with closing(batches):
                    self._take_steps(phases, batches, wish)

    def _phase_is_over(self, phases: Sequence[Phase]) -> bool:
        """Whether there is another one to go on with."""
        phase = self.state.phase
        return phase + 1 < len(phases) and self._progress() >= phases[phase].end

    def _begin_next_phase(self) -> None:
        state = self.state
        state.phase, state.phase_start = state.phase + 1, state.step
        self._forget_best()  # figures on instances of another length cannot be compared

    def _forget_best(self) -> None:
        self.state.best_step, self.state.best_score, self.state.best_figures = None, None, {}

    def _take_steps(self, phases: Sequence[Phase], batches: Iterator[Any], wish: StopWish) -> None:
        """To the end of the phase, or to a step that is left out, when the training may be back at a checkpoint."""
        lessons = phases[self.state.phase].lessons
        while not self._is_over() and not self._phase_is_over(phases):
            step_started = time.monotonic()
            batch = next(batches)
            if self.state.step not in self.state.left_out and not self._learn(lessons, batch):
                self._go_on_after_nonfinite(lessons.name_of(batch))
                return
            self.state.step += 1
            # Ranks that disagreed on these would not stop at the same step, and wait for each other forever.
            exit_code, self.state.seconds, self.state.seconds_of_step = self.ranks.largest(
                [wish.exit_code, self._seconds(), time.monotonic() - step_started]
            )
            self._keep_records(lessons, is_stopping=exit_code > 0)
            if exit_code:
                raise StoppedError(f"stopped after step {self.state.step:,}, which is saved", int(exit_code))
            if time.monotonic() - self._gave_back >= GIVE_BACK_EVERY_S:
                give_back_freed_memory()
                self._gave_back = time.monotonic()

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _progress(self) -> float:
        return self.schedule.progress(self.state.step, self.state.seconds)

    def _is_over(self) -> bool:
        state = self.state
        if self.patience is not None and state.evaluations_since_best >= self.patience:
            return True
        return self.schedule.is_over(state.step, state.seconds, state.seconds_of_step)

    def _learn(self, lessons: Lessons, batch: Any) -> bool:
        """One update of the weights; False, and no update, if the loss or a gradient is not finite."""
        state, settings = self.state, self.settings
        self.model.train()
        self.optimizer.zero_grad()
        counts = lessons.counts(batch)
        totals = dict(zip(counts, self.ranks.sum(list(counts.values())), strict=True))
        sums: Counter[str] = Counter()
        for number, part in enumerate(lessons.parts(batch)):
            key = (settings.seed, state.step, self.ranks.rank, number)
            with keyed_dropout(*key), computing_in(settings.precision, self.ranks.device):
                loss, part_sums = lessons.loss(self.model, part, totals)
            loss.backward()
            sums.update(part_sums)
        self.ranks.add_gradients(self.model)
        sums = Counter(dict(zip(sums, self.ranks.sum(list(sums.values())), strict=True)))
        norm = gradient_norm(self.model)
        if not all(map(math.isfinite, [norm, *sums.values()])):
            return False
        clip_gradients(self.model, norm, settings.max_gradient_norm)
        set_rate(self.optimizer, self.schedule.rate(state.step, state.seconds))
        self.optimizer.step()
        state.sums.update(sums)
        return True

    def _go_on_after_nonfinite(self, batch_name: str) -> None:
        """Leave the step out when it comes again, at once or from the checkpoint on that the training goes back to."""
        step, wish = self.state.step, self.settings.on_nonfinite
        what = f"the loss or a gradient of step {step:,} is not finite ({batch_name})"
        left_out = [*self.state.left_out, step]
        # Counted in steps, since after going back there are good ones before the next that fails.
        fails_always = all(step - back in left_out for back in range(MAX_SKIPPED_IN_A_ROW + 1))
        if wish == "stop" or fails_always:
            remedy = "look at that batch, lower the learning rate" + ", or use --on-nonfinite skip" * (wish == "stop")
            raise NonFiniteError(f"{what}; no update was made", where=self.run.path, remedy=remedy)
        if wish == "reload":
            self._restore_newest()
        self.state.left_out = left_out
        self.journal.remark(f"{what}; it is left out, going on from step {self.state.step:,}")

    def _keep_records(self, lessons: Lessons, is_stopping: bool) -> None:
        """What is due after a step, and at the end: a line in the log, an evaluation, a checkpoint."""
        step, settings = self.state.step, self.settings
        self.journal.step(self._figures(lessons))
        if self._is_over() or step % settings.log_every == 0:
            self._log(lessons)
        if self._is_over() or step % self.eval_every == 0:
            self._evaluate(lessons)
            (self.state.seconds,) = self.ranks.largest([self._seconds()])  # which measuring has taken too
            if self._is_over() and self.state.sums:  # patience or time has ended with it
                self._log(lessons)
        is_best = self.state.best_step == step
        if is_best or is_stopping or self._is_over() or step % settings.save_every == 0:
            self._save()

    def _figures(self, lessons: Lessons) -> dict[str, Any]:
        state = self.state
        return {
            "step": state.step,
            "progress": self._progress(),
            "seconds": round(state.seconds, 3),
            **(lessons.summary(state.sums) if state.sums else {}),
        }

    def _log(self, lessons: Lessons) -> None:
        state = self.state
        rate = self.schedule.rate(max(0, state.step - 1), state.seconds)
        self.journal.write({**self._figures(lessons), "rate": rate})
        state.sums.clear()

    def _evaluate(self, lessons: Lessons) -> None:
        """Measure on data that is not trained on; remember the best step."""
        state = self.state
        self.model.eval()
        with torch.no_grad(), computing_in(self.settings.precision, self.ranks.device):
            figures = lessons.evaluate(self.model)
        # The first rank's figures are everybody's: ranks that disagreed on the best step would wait forever.
        agreed = self.ranks.sum([value if self.ranks.is_first else 0.0 for value in figures.values()])
        state.heldout = dict(zip(figures, agreed, strict=True))
        if not all(map(math.isfinite, agreed)):
            raise NonFiniteError(
                f"measured after step {state.step:,}, the model's answers are not finite: {state.heldout}",
                where=self.run.path,
                remedy="lower the learning rate",
            )
        if state.heldout:
            self.journal.write(
                {"step": state.step, **{f"{lessons.measured_on}_{name}": each for name, each in state.heldout.items()}}
            )
            score = lessons.score(state.heldout)
            state.evaluations_since_best += 1
            if state.best_score is None or score[0] > state.best_score[0]:  # what only breaks a tie tires patience
                state.evaluations_since_best = 0
            if state.best_score is None or score > state.best_score:
                state.best_score, state.best_step, state.best_figures = score, state.step, state.heldout

    def _save(self) -> None:
        """Write a checkpoint of this step, and let go of old ones; every checkpoint is finite."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
            raise NonFiniteError(
                f"after step {self.state.step:,} there are weights that are not finite; they are not saved",
                where=self.run.path,
                remedy="lower the learning rate",
            )
        if self.ranks.is_first:
            weights = {name: parameter.detach() for name, parameter in self.model.named_parameters()}
            optimizer = optimizer_tensors(self.optimizer, self.model)
            save_checkpoint(self.run.checkpoints, self.state.step, Checkpoint(weights, optimizer, self.state.to_json()))
            kept = set(saved_steps(self.run.checkpoints)[-self.settings.keep :])
            remove_checkpoints(self.run.checkpoints, kept | {self.state.best_step, self._resumed_from})
        self.ranks.wait()

    def take_best(self) -> None:
        """Give the model the weights of the step with the best score, if there was an evaluation."""
        if self.state.best_step is not None and self.state.best_step != self.state.step:
            best = load_checkpoint(checkpoint_path(self.run.checkpoints, self.state.best_step))
            self.model.load_state_dict(dict(best.weights), strict=False)

    def resume(self) -> None:
        """Go on from the newest whole checkpoint; if there is none, the training begins, and so does its log."""
        if not self._restore_newest():
            self.journal.cut(0)
            return
        self._resumed_from = self.state.step
        self.journal.remark(f"resumed from step {self.state.step:,}")

    def _restore_newest(self) -> bool:
        step, checkpoint, remarks = newest_whole(self.run.checkpoints)
        self.ranks.wait()  # nobody removes what another one still reads
        for remark in remarks:
            self.journal.remark(remark)
        if step is None or checkpoint is None:
            if remarks:
                raise IntegrityError("no checkpoint is whole", where=self.run.checkpoints, remedy="start again")
            return False
        self._refuse_other_weights(checkpoint.weights, checkpoint_path(self.run.checkpoints, step))
        self.model.load_state_dict(dict(checkpoint.weights), strict=False)  # weights that are tied are saved once
        restore_optimizer(self.optimizer, self.model, checkpoint.optimizer)
        self.state = State.from_json(checkpoint.state, checkpoint_path(self.run.checkpoints, step) / STATE)
        if self.ranks.is_first:
            # Newer ones are not whole, and would be in the way when their step comes again.
            remove_checkpoints(
                self.run.checkpoints, {saved for saved in saved_steps(self.run.checkpoints) if saved <= step}
            )
            self.journal.cut(step)
        self.ranks.wait()
        if self.state.best_step not in (None, *saved_steps(self.run.checkpoints)):
            self._forget_best()  # it went when a better one came, which is broken: the next evaluation decides
        return True

    def _refuse_other_weights(self, saved: Mapping[str, Tensor], where: Path) -> None:
        """IntegrityError unless a checkpoint has exactly the weights of this model."""
        theirs = {name: tuple(tensor.shape) for name, tensor in saved.items()}
        ours = {name: tuple(parameter.shape) for name, parameter in self.model.named_parameters()}
        for name in [*ours, *theirs]:
            if ours.get(name) != theirs.get(name):
                raise IntegrityError(
                    f"is of another model: the shape of {name} is {theirs.get(name, 'missing')}, "
                    f"in the model {ours.get(name, 'missing')}",
                    where=where,
                    remedy="begin a new run",
                )


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
