"""The training loop of pre-training and fine-tuning, which differ only in their trainables.

A step:
1. Cut this rank's part of the global batch into micro-batches.
2. Add up their gradients, each divided by the counts of the whole global batch. Micro-batches and ranks therefore
   change nothing except rounding and dropout masks.
3. Sum the gradients over ranks. Their norm must be finite.
4. Clip the gradients and update the weights with AdamW.
Everything random is a function of (seed, step, …), so a run that is stopped anywhere and resumed from a checkpoint is
bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from bertmill.config.fields import Precision
from bertmill.config.training_settings import TrainingFields
from bertmill.errors import NonFiniteError, StoppedError
from bertmill.machine import give_back_freed_memory
from bertmill.model.dropout import keyed_dropout
from bertmill.training.checkpoints import CheckpointKeeper, forget_best
from bertmill.training.distributed import Ranks
from bertmill.training.optimizer import clip_gradients, gradient_norm, make_optimizer, set_rate
from bertmill.training.progress import Journal
from bertmill.training.schedule import Schedule
from bertmill.training.signals import StopSignal
from bertmill.training.state import RunFolder, State
from bertmill.training.trainable import Phase, Trainable

MAX_SKIPPED_IN_A_ROW = 10
GIVE_BACK_EVERY_S = 60.0  # return freed memory to the system: steps of varying size fragment it


class ResolvedTraining(TrainingFields, extra="ignore", allow_inf_nan=True):
    """The resolved settings of a training run; settings that do not apply are infinite, zero or empty."""

    precision: Literal["fp32", "bf16"] = "fp32"  # open_run resolves auto
    log_every: int
    eval_every: int
    patience: float = math.inf  # stop after this many evaluations without improvement


@dataclass
class Trainer:
    """Trains a model; the run folder stores its weights, optimizer and state."""

    model: nn.Module
    schedule: Schedule
    settings: ResolvedTraining
    run: RunFolder
    ranks: Ranks
    journal: Journal

    def __post_init__(self) -> None:
        self.optimizer = make_optimizer(self.model, self.settings.weight_decay)
        self.checkpoints = CheckpointKeeper(self.run.checkpoints, self.ranks, self.journal, self.settings.keep)
        self.state = State()
        self._gave_back = time.monotonic()

    def train(self, phases: Sequence[Phase]) -> None:
        """Train from the current state to the end of the last phase.

        Raises StoppedError after a stop signal, with the step saved, and NonFiniteError if a loss or gradient is not
        finite.
        """
        self._started = time.monotonic() - self.state.seconds  # as if this process had trained from the start
        with StopSignal() as stop_signal:
            while not self._is_over():
                while self._phase_is_over(phases):
                    self._begin_next_phase()
                batches = phases[self.state.phase].trainable.batches(self.state.step - self.state.phase_start)
                with closing(batches):
                    self._take_steps(phases, batches, stop_signal)

    def _phase_is_over(self, phases: Sequence[Phase]) -> bool:
        """Whether the current phase has ended and another follows."""
        phase = self.state.phase
        return phase + 1 < len(phases) and self._progress() >= phases[phase].end

    def _begin_next_phase(self) -> None:
        state = self.state
        state.phase, state.phase_start = state.phase + 1, state.step
        forget_best(state)  # metrics of different phases are not comparable

    def _take_steps(self, phases: Sequence[Phase], batches: Iterator[Any], stop_signal: StopSignal) -> None:
        """Train to the end of the phase, or up to a non-finite step, which may have reloaded a checkpoint."""
        trainable = phases[self.state.phase].trainable
        while not self._is_over() and not self._phase_is_over(phases):
            step_started = time.monotonic()
            batch = next(batches)
            if self.state.step not in self.state.left_out and not self._learn(trainable, batch):
                self._go_on_after_nonfinite(trainable.describe(batch))
                return
            self.state.step += 1
            # All ranks must agree on these, or they would stop at different steps and wait for each other forever.
            exit_code, self.state.seconds, self.state.seconds_of_step = self.ranks.largest(
                [stop_signal.exit_code, self._seconds(), time.monotonic() - step_started]
            )
            self._keep_records(trainable, is_stopping=exit_code > 0)
            if exit_code:
                raise StoppedError(f"stopped after step {self.state.step:,}; a checkpoint was saved", int(exit_code))
            if time.monotonic() - self._gave_back >= GIVE_BACK_EVERY_S:
                give_back_freed_memory()
                self._gave_back = time.monotonic()

    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _progress(self) -> float:
        return self.schedule.progress(self.state.step, self.state.seconds)

    def _is_over(self) -> bool:
        state = self.state
        is_stalled = state.evaluations_since_best >= self.settings.patience
        return is_stalled or self.schedule.is_over(state.step, state.seconds, state.seconds_of_step)

    def _learn(self, trainable: Trainable, batch: Any) -> bool:
        """Update the weights once. Returns False, without an update, if the loss or a gradient is not finite."""
        state, settings = self.state, self.settings
        self.model.train()
        self.optimizer.zero_grad()
        counts = trainable.counts(batch)
        totals = dict(zip(counts, self.ranks.sum(list(counts.values())), strict=True))
        sums: Counter[str] = Counter()
        for number, micro_batch in enumerate(trainable.micro_batches(batch)):
            key = (settings.seed, state.step, self.ranks.rank, number)
            with keyed_dropout(*key), computing_in(settings.precision, self.ranks.device):
                loss, its_sums = trainable.loss(self.model, micro_batch, totals)
            loss.backward()
            sums.update(its_sums)
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
        """Handle a non-finite step as the settings say: skip it, reload a checkpoint and skip it, or raise."""
        step, action = self.state.step, self.settings.on_nonfinite
        what = f"the loss or a gradient of step {step:,} is not finite ({batch_name})"
        left_out = [*self.state.left_out, step]
        # Count step numbers, not attempts: after a reload, good steps precede the next one that fails.
        fails_always = all(step - back in left_out for back in range(MAX_SKIPPED_IN_A_ROW + 1))
        if action == "stop" or fails_always:
            remedy = "inspect the batch or lower the learning rate"
            remedy += ", or set on_nonfinite to skip" if action == "stop" else ""
            raise NonFiniteError(f"{what}; no update was made", where=self.run.path, remedy=remedy)
        if action == "reload":
            self.state = self.checkpoints.restore_newest(self.model, self.optimizer) or self.state
        self.state.left_out = left_out
        self.journal.remark(f"{what}; skipping it and continuing from step {self.state.step:,}")

    def _keep_records(self, trainable: Trainable, is_stopping: bool) -> None:
        """Write what is due after a step and at the end: a log line, an evaluation, a checkpoint."""
        step, settings = self.state.step, self.settings
        self.journal.step(self._figures(trainable))
        if self._is_over() or step % settings.log_every == 0:
            self._log(trainable)
        if self._is_over() or step % settings.eval_every == 0:
            self._evaluate(trainable)
            (self.state.seconds,) = self.ranks.largest([self._seconds()])  # includes the evaluation
            if self._is_over() and self.state.sums:  # the evaluation ended the run
                self._log(trainable)
        is_best = self.state.best_step == step
        if is_best or is_stopping or self._is_over() or step % settings.save_every == 0:
            self.checkpoints.save(self.model, self.optimizer, self.state)

    def _figures(self, trainable: Trainable) -> dict[str, Any]:
        state = self.state
        return {
            "step": state.step,
            "progress": self._progress(),
            "seconds": round(state.seconds, 3),
            **(trainable.figures(state.sums) if state.sums else {}),
        }

    def _log(self, trainable: Trainable) -> None:
        state = self.state
        rate = self.schedule.rate(max(0, state.step - 1), state.seconds)
        self.journal.write({**self._figures(trainable), "rate": rate})
        state.sums.clear()

    def _evaluate(self, trainable: Trainable) -> None:
        """Evaluate on data that is not trained on, and record the best step."""
        state = self.state
        self.model.eval()
        with torch.no_grad(), computing_in(self.settings.precision, self.ranks.device):
            metrics = trainable.evaluate(self.model)
        # All ranks use the metrics of the first: if they disagreed on the best step, they would wait forever.
        agreed = self.ranks.sum([value if self.ranks.is_first else 0.0 for value in metrics.values()])
        state.heldout = dict(zip(metrics, agreed, strict=True))
        if not all(map(math.isfinite, agreed)):
            what = f"the metrics after step {state.step:,} are not finite: {state.heldout}"
            raise NonFiniteError(what, where=self.run.path, remedy="lower the learning rate")
        if state.heldout:
            named = {f"{trainable.evaluated_on}_{name}": value for name, value in state.heldout.items()}
            self.journal.write({"step": state.step, **named})
            score = trainable.score(state.heldout)
            state.evaluations_since_best += 1
            if state.best_score is None or score[0] > state.best_score[0]:  # tie-breakers do not reset patience
                state.evaluations_since_best = 0
            if state.best_score is None or score > state.best_score:
                state.best_score, state.best_step, state.best_figures = score, state.step, state.heldout

    def take_best(self) -> None:
        """Load the weights of the step with the best score, if there was an evaluation."""
        if self.state.best_step not in (None, self.state.step):
            self.checkpoints.load_weights(self.model, self.state.best_step)

    def resume(self) -> bool:
        """Continue from the newest intact checkpoint. Without one, clears the log and returns False."""
        state = self.checkpoints.restore_newest(self.model, self.optimizer)
        if state is None:
            self.journal.cut(0)
            return False
        self.state = state
        self.schedule = replace(self.schedule, start_seconds=state.start_seconds)
        self.checkpoints.resumed_from = self.state.step
        self.journal.remark(f"resumed from step {self.state.step:,}")
        return True

    def save_initial_weights(self, seconds: float) -> None:
        """Save weights that took `seconds` to compute, so that a resumed run does not compute them again.

        A time budget includes these seconds; warm-up and phases start after them.
        """
        (seconds,) = self.ranks.largest([seconds])
        self.state.seconds = self.state.start_seconds = seconds
        self.schedule = replace(self.schedule, start_seconds=seconds)
        self.checkpoints.save(self.model, self.optimizer, self.state)


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Compute in `precision` while the block runs: autocast for bf16."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
