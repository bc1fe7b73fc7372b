"""The method of a fine-tuning run: the probe, training of all weights, or the better of the two.

1. Fit the probe to features of the frozen encoder (probe.py).
2. Plan: train all weights unless there are too few rows, or too little time. RUN/plan.json records the plan, so that a
   resumed run repeats it.
3. Train all weights, starting from the portable probe, where that helps. With dev rows, train once and compare on them.
   Without, train on two thirds of the rows and compare on the rest, for each third in turn until the difference is
   clear; then train the better model on all rows.
Every file is complete or absent, and everything else is a function of the data and the seed: a run that is killed
anywhere and resumed gives the same model.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from bertmill.checkpoint.store import remove_folder
from bertmill.checkpoint.tensors import read_all_tensors, write_tensors
from bertmill.config.commands import FinetuneSettings
from bertmill.inference.evaluation import Evaluation
from bertmill.inference.runner import stream_outputs
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.storage import read_json, write_file
from bertmill.tasks.base import Array, Example
from bertmill.text.printable import counted
from bertmill.training.advice import CHECK_ROWS, advice_from_losses
from bertmill.training.comparison import Candidate, Judged, difference
from bertmill.training.dataset import Dataset
from bertmill.training.features import Features
from bertmill.training.loop import Trainer, computing_in
from bertmill.training.models import has_own_head, model_to_train, model_with_head
from bertmill.training.probe import (
    FittedProbe,
    View,
    blank_view,
    encode_rows_for_probe,
    fit_probe,
    make_folds,
    max_targets,
    outputs_of,
    sample_examples,
)
from bertmill.training.progress import Beginning, Journal
from bertmill.training.runs import Run, prepare_model
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder
from bertmill.training.task_trainable import TaskTrainable
from bertmill.training.timing import seconds_per_step, shown_seconds
from bertmill.training.trainable import Phase
from bertmill.training.tuning_recipe import WARMUP_SHARE, ResolvedFinetuning, num_steps, steps_between

MIN_ROWS_TO_TRAIN = 100  # without dev rows, since comparing costs several trainings
NUM_TRAINED_FOLDS = 3
TRAINED_FOLD_SEED = 1  # not the folds of the probe
SAFETY = 1.25  # of the expected time, if there is a budget


class Plan(NamedTuple):
    """Whether to train all weights, for at most how many steps, and why not, or how long it should take."""

    trains: bool
    max_steps: int | None  # if a budget limits them
    reason: str


@dataclass
class Finetuning:
    """A fine-tuning run between reading its data and writing its model."""

    run: Run[FinetuneSettings]
    resolved: ResolvedFinetuning
    started: float  # time.monotonic()
    trainer: Trainer | None = None  # of the final model
    probe: FittedProbe | None = None
    dev_features: Features | None = None

    @property
    def data(self) -> Dataset:
        """The rows."""
        return self.resolved.data

    @property
    def journal(self) -> Journal:
        """Where progress is reported."""
        return self.run.journal

    def best(self) -> Candidate:
        """Fit and train according to the method, and return the best candidate."""
        probe = self._probe_candidate() if self._needs_probe() and self.run.ranks.is_first else None
        self.run.ranks.wait()
        plan = self._recorded_plan()
        if not plan.trains:
            assert probe is not None
            if plan.reason:
                self.journal.remark(f"kept the probe without training all weights: {plan.reason}")
            return self._refitted(probe)
        self.journal.remark(f"training all weights: {plan.reason}")
        rival = probe if self.resolved.method == "auto" else None
        if not self.data.dev:
            return self._cross_validated(plan, rival)
        trained = self._trained(plan)
        kept = trained if rival is None else self._better(rival, trained)
        return kept if kept.method == "full" else self._refitted(kept)

    # The probe

    def _needs_probe(self) -> bool:
        """Whether the method needs the probe, as a candidate or to start from."""
        task, method = self.data.task, self.resolved.method
        if not task.probe or has_own_head(self.resolved.model, task):
            return False
        return method != "full" or self.resolved.is_fitted

    def _probe_candidate(self) -> Candidate:
        resolved, data = self.resolved, self.data
        numbers = list(range(len(data.train)))
        if data.dev:
            limit = max_targets(data.task, [each.row for each in data.train], resolved.model)
            numbers = sample_examples(data.task, data.train, limit)
            if len(numbers) < len(data.train):
                self.journal.remark(f"the probe is fitted to a sample of {counted(len(numbers), 'row')}")
        examples = [data.train[number] for number in numbers]
        self.run.folder.features.mkdir(exist_ok=True)
        with self._computing():
            features = encode_rows_for_probe(
                resolved.model,
                data.task,
                {"train": examples, "dev": data.dev},
                portable_only=resolved.portable or resolved.method == "full",
                folder=self.run.folder.features,
                device=self.run.ranks.device,
                progress=lambda share: self.journal.preparing("encoding rows", share),
            )
        probe = fit_probe(
            data.task,
            examples,
            features["train"],
            judge_all=not data.dev,
            progress=lambda share: self.journal.preparing("fitting the probe", share),
        )
        self.probe, self.dev_features = probe, features.get("dev")
        outputs = self._probe_outputs(probe.best)
        judged = list(zip(data.dev or data.train, outputs, strict=True))
        losses = {name: round(view.validated.loss, 4) for name, view in probe.views.items()}
        facts = {"features": probe.best.name, "strength": probe.best.validated.strength, "losses": losses}
        candidate = self._candidate("probe", judged, lambda: self._model_of(probe.best), facts)
        how = "on dev" if data.dev else f"{len(probe.folds)}-fold cross-validation"
        if resolved.method != "full":
            features_shown = f"features: {probe.best.name}"
            self.journal.remark(f"probe: {candidate.shown(data.metric)}, {how}; {features_shown}")
        return candidate

    def _refitted(self, candidate: Candidate) -> Candidate:
        """The probe, fitted to the dev rows too unless the user has set them apart."""
        probe, more = self.probe, self.dev_features
        if probe is None or more is None or not self.data.refits:
            return candidate
        view = probe.best
        model = probe.fit_with(more, self.data.dev, view)
        return replace(candidate, make_model=lambda: self._model_of(replace(view, model=model)))

    def _probe_outputs(self, view: View) -> list[Array]:
        assert self.probe is not None
        if self.dev_features is not None:
            return outputs_of(self.data.task, view, self.dev_features)
        return self.probe.validated_outputs(view)

    def _model_of(self, view: View) -> BertPreTrainedModel:
        return model_with_head(
            self.resolved.model,
            self.data.task,
            view.model,
            view.name,
            is_portable=view.is_portable,
            dropout=self.resolved.dropout,
        )

    # The plan

    def _recorded_plan(self) -> Plan:
        """The recorded plan, or a new one, which is then recorded."""
        path = self.run.folder.plan
        if self.run.ranks.count > 1:  # nothing is left to decide
            return self._plan()
        if not path.exists():
            write_file(path, json.dumps(self._plan()._asdict(), indent=1) + "\n")
        content = read_json(path)
        return Plan(bool(content["trains"]), content["max_steps"], str(content["reason"]))

    def _plan(self) -> Plan:
        resolved, data = self.resolved, self.data
        steps = num_steps(resolved.epochs, len(data.train), resolved.batch_size)
        if resolved.method == "probe":
            return Plan(False, None, "")
        can_skip = resolved.method == "auto" and self.probe is not None
        if can_skip and not data.dev and len(data.train) < MIN_ROWS_TO_TRAIN:
            return Plan(False, None, f"fewer than {MIN_ROWS_TO_TRAIN} rows")
        model = model_to_train(resolved.model, data.task, dropout={}, seed=0).to(self.run.ranks.device)
        per_step = seconds_per_step(model, data.task, data.train, resolved.batch_size / self.run.ranks.count)
        # Without dev rows, each of the folds trains on a part of the rows.
        trainings = 1.0 if data.dev else 1 + NUM_TRAINED_FOLDS * (1 - 1 / NUM_TRAINED_FOLDS)
        seconds = steps * per_step * trainings
        if math.isfinite(resolved.budget):
            left = resolved.budget - (time.monotonic() - self.started)
            if seconds * SAFETY > left and can_skip:
                what = f"that would take about {shown_seconds(seconds)}, and {shown_seconds(max(0, left))} are left"
                return Plan(False, None, what)
            if seconds * SAFETY > left:
                max_steps = max(1, int(left / (per_step * trainings * SAFETY)))
                return Plan(True, max_steps, f"{max_steps:,} steps, as many as the budget allows")
        return Plan(True, None, f"{steps:,} steps, about {shown_seconds(seconds)}")

    # Training all weights

    def _trained(self, plan: Plan) -> Candidate:
        """Train on the training rows, and judge by the dev rows."""
        trainer = self._train(self.run.folder, self.journal, self.data, self._start(None), plan.max_steps)
        trainer.take_best()
        self.trainer = trainer
        return self._candidate("full", self._outputs(trainer, self.data.dev), lambda: _model_of(trainer), {})

    def _cross_validated(self, plan: Plan, rival: Candidate | None) -> Candidate:
        """Judge by the rows of folds that models of the other folds were not trained on, then train on all rows."""
        data = self.data
        folds = make_folds(data.task, data.train, NUM_TRAINED_FOLDS, TRAINED_FOLD_SEED)
        of_full: Judged = []
        of_rival: Judged = []
        for number, fold in enumerate(folds, start=1):
            self.journal.remark(f"fold {number} of {len(folds)}")
            of_full += self._fold_outputs(number, fold, plan)
            if rival is not None:
                of_rival += self._rival_outputs(fold)
                of_rows = [self._candidate("", judged, _no_model, {}) for judged in (of_rival, of_full)]
                if difference(of_rows[0], of_rows[1], data.metric).is_clear:
                    break
        trained = self._candidate("full", of_full, _no_model, {})
        if rival is not None:
            on_same_rows = self._candidate("probe", of_rival, rival.make_model, rival.facts)
            kept = self._better(on_same_rows, trained)
            if kept.method == "probe":
                return replace(rival, facts=kept.facts)
            trained = kept
        self.journal.remark("training all weights on all rows")
        trainer = self.trainer = self._train(self.run.folder, self.journal, data, self._start(None), plan.max_steps)
        return replace(trained, make_model=lambda: _model_of(trainer))

    def _fold_outputs(self, number: int, fold: Sequence[int], plan: Plan) -> Judged:
        """The outputs for the examples of a fold of a model that was trained on the others; kept in RUN/folds."""
        data = self.data
        folder = RunFolder(self.run.folder.folds / str(number))
        path = folder.path / "outputs.safetensors"
        judged = [data.train[each] for each in fold]
        if not path.exists():
            inside = _outside(fold, len(data.train))
            folder.path.mkdir(parents=True, exist_ok=True)
            part = replace(data, train=[data.train[each] for each in inside])
            journal = Journal(folder.log, self.journal.listener)
            trainer = self._train(folder, journal, part, self._start(inside), plan.max_steps)
            outputs = self._outputs(trainer, judged)
            write_tensors(path, {str(place): torch.from_numpy(output) for place, (_, output) in enumerate(outputs)})
        if folder.checkpoints.exists():
            remove_folder(folder.checkpoints)
        stored = read_all_tensors(path)
        return [(example, stored[str(place)].numpy()) for place, example in enumerate(judged)]

    def _rival_outputs(self, fold: Sequence[int]) -> Judged:
        """The outputs of the best probe, fitted to the other folds, for the examples of a fold."""
        assert self.probe is not None
        view = self.probe.best
        fitted = replace(view, model=self.probe.fit_to(_outside(fold, len(self.data.train)), view))
        outputs = outputs_of(self.data.task, fitted, self.probe.features)
        return [(self.data.train[each], outputs[each]) for each in fold]

    def _start(self, numbers: Sequence[int] | None) -> View | None:
        """What training starts from: the portable view, fitted to the examples `numbers` (None: to all)."""
        if not self.resolved.is_fitted:
            return None
        if self.probe is None:  # only the first rank has one, and shares its weights
            return blank_view(self.resolved.model, self.data.task)
        view = self.probe.portable
        return view if numbers is None else replace(view, model=self.probe.fit_to(numbers, view))

    def _train(
        self, folder: RunFolder, journal: Journal, data: Dataset, start: View | None, limit: int | None
    ) -> Trainer:
        resolved, ranks = self.resolved, self.run.ranks
        usual = num_steps(resolved.epochs, len(data.train), resolved.batch_size)
        steps = usual if limit is None else min(usual, limit)
        if start is None:
            model = self._model_to_train()
        else:
            model = self._model_of(start)
            journal.remark("the head starts from the probe")
        prepare_model(model, resolved, ranks)
        ranks.share_weights(model)
        settings = resolved.model_copy(update=steps_between(self.run.settings, len(data.train), resolved.epochs))
        schedule = Schedule(resolved.learning_rate, steps, warmup_share=WARMUP_SHARE)
        trainer = Trainer(model, schedule, settings, folder, ranks, journal)
        trainer.resume()
        journal.begin(Beginning(steps, dict(trainer.state.sums)))
        trainer.train([Phase(TaskTrainable(data, settings, ranks), 1.0)])
        return trainer

    def _model_to_train(self) -> BertPreTrainedModel:
        resolved, data = self.resolved, self.data
        model = model_to_train(resolved.model, data.task, dropout=resolved.dropout, seed=resolved.seed)
        self.journal.remark(str(model.load_report).replace("\n", "; "))
        return model

    def _outputs(self, trainer: Trainer, examples: Sequence[Example]) -> Judged:
        trainer.model.eval()
        with self._computing():
            return list(stream_outputs(self.data.task, trainer.model, examples, self.run.ranks.device))

    def _computing(self) -> AbstractContextManager[object]:
        return computing_in(self.resolved.precision, self.run.ranks.device)

    # Signals

    def signals(self, evaluation: Evaluation) -> Iterator[str]:
        """Warnings about a model that learned nothing, or that could still learn."""
        advice = ""
        if self.trainer is not None:
            advice = advice_from_losses(self.run.folder.log, self.data.task.guessing_loss(self.data.train))
        if evaluation.warning:
            yield f"{evaluation.warning} {advice or CHECK_ROWS}"
        elif advice:
            yield advice

    # Comparison

    def _candidate(
        self, method: str, judged: Judged, make_model: Callable[[], BertPreTrainedModel], facts: dict[str, Any]
    ) -> Candidate:
        return Candidate.of(method, self.data.task, judged, self.data.metric, make_model, facts)

    def _better(self, first: Candidate, second: Candidate) -> Candidate:
        """The candidate with the better metric; if both are equal, the second, which gains more from more rows."""
        metric = self.data.metric
        found = difference(first, second, metric)
        rows = counted(len(second.judged), "row")
        kept, name = (second, "the model with all weights trained") if found.value >= 0 else (first, "the probe")
        value = f"{metric.replace('_', ' ')} {second.metrics[metric]:.4f}"
        self.journal.remark(f"all weights trained: {value} ({found}) on {rows}; kept {name}")
        compared = {"metric": metric, **found._asdict(), "rows": len(second.judged)}
        return replace(kept, facts={**kept.facts, "compared": compared})


def _model_of(trainer: Trainer) -> BertPreTrainedModel:
    assert isinstance(trainer.model, BertPreTrainedModel)
    return trainer.model


def _no_model() -> BertPreTrainedModel:
    raise AssertionError("this candidate is only compared")


def _outside(fold: Sequence[int], count: int) -> list[int]:
    """The numbers below `count` that are not in a fold."""
    return sorted(set(range(count)).difference(fold))
