"""The method of a fine-tuning run: the probe, training of all weights, or the better of the two.

1. Fit the probe to features of the frozen encoder (probe.py).
2. Plan: train all weights unless there are too few rows, or too little time. RUN/method.json records the plan, so that
   a resumed run repeats it.
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
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from bertmill.checkpoint.store import remove_folder
from bertmill.checkpoint.tensors import read_all_tensors, write_tensors
from bertmill.config.commands import FinetuneSettings
from bertmill.inference.evaluation import Evaluation
from bertmill.inference.runner import stream_outputs
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.storage import read_json, write_file
from bertmill.tasks.base import Example
from bertmill.text.printable import counted
from bertmill.training.advice import CHECK_ROWS, advice_from_losses
from bertmill.training.comparison import Judged, Result, difference
from bertmill.training.dataset import Dataset
from bertmill.training.features import Features, damaged, encode_examples, load_encoder
from bertmill.training.loop import Trainer, computing_in
from bertmill.training.models import model_to_train, model_with_head
from bertmill.training.probe import (
    FittedFeature,
    FittedProbe,
    feature_names,
    fit_probe,
    fits,
    make_folds,
    max_targets,
    outputs_of,
    sample_examples,
    zero_head,
)
from bertmill.training.progress import Beginning, Journal
from bertmill.training.runs import Run, prepare_model
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder
from bertmill.training.task_trainable import TaskTrainable
from bertmill.training.timing import seconds_per_step, shown_seconds
from bertmill.training.trainable import Phase
from bertmill.training.tuning_recipe import WARMUP_SHARE, ResolvedFinetuning, num_steps, steps_between

MIN_ROWS_TO_TRAIN = 100  # words for `tag`; without dev rows, since comparing costs several trainings
MIN_ROWS_TO_STOP = 200  # words for `tag`; a clear difference on fewer rows does not end the comparison early
NUM_TRAINED_FOLDS = 3
TRAINED_FOLD_SEED = 1  # not the folds of the probe
SAFETY = 1.25  # a budget must cover this multiple of the expected time
OVERHEAD_S = 2.0  # of a training, for checkpoints and evaluation


class Candidate(NamedTuple):
    """A method with its result, what makes its model, and facts about it for bertmill.json."""

    method: str
    result: Result
    make_model: Callable[[], BertPreTrainedModel]
    facts: dict[str, Any]


class Plan(NamedTuple):
    """Whether to train all weights, for at most how many steps, and why not, or how long it should take."""

    trains: bool
    max_steps: Annotated[int, Field(ge=1)] | None  # if a budget limits them
    reason: str


@dataclass
class Finetuning:
    """A fine-tuning run between reading its data and writing its model."""

    run: Run[FinetuneSettings]
    resolved: ResolvedFinetuning
    started: float  # time.monotonic()
    trainer: Trainer | None = None  # of the final model
    probe: FittedProbe | None = None

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
        resolved, of_probe = self.resolved, None
        if self.run.ranks.is_first and resolved.has_probe and (resolved.method != "full" or resolved.is_fitted):
            self.probe = self._fitted_probe()
            of_probe = None if resolved.method == "full" else self._judged_probe(self.probe)
        self.run.ranks.wait()
        plan = self._recorded_plan()
        if not plan.trains:
            if of_probe is None:
                raise damaged(self.run.folder.method)
            if plan.reason:
                self.journal.remark(f"kept the probe without training all weights: {plan.reason}")
            return self._refitted(of_probe)
        self.journal.remark(f"training all weights: {plan.reason}")
        if resolved.is_fitted:
            self.journal.remark("the head starts from the probe")
        if not self.data.dev:
            return self._cross_validated(plan, of_probe)
        trained = self._trained(plan)
        if of_probe is None:
            return trained
        is_better, facts = self._compare(of_probe.result, trained.result)
        kept = trained if is_better else self._refitted(of_probe)
        return kept._replace(facts={**kept.facts, **facts})

    # The probe

    def _fitted_probe(self) -> FittedProbe:
        resolved, data = self.resolved, self.data
        portable_only = resolved.portable or resolved.method == "full"
        examples = data.train
        if data.dev:
            limit = max_targets(data.task, [each.row for each in examples], resolved.model, portable_only=portable_only)
            examples = [examples[number] for number in sample_examples(data.task, examples, limit)]
            if len(examples) < len(data.train):
                self.journal.remark(f"the probe is fitted to a sample of {counted(len(examples), 'row')}")
        names = feature_names(data.task, [each.row for each in data.train], portable_only=portable_only)
        return fit_probe(
            data.task,
            examples,
            self._features("train", examples, names),
            judge_all=not data.dev and resolved.method != "full",
            progress=lambda share: self.journal.preparing("fitting the probe", share),
        )

    def _features(self, part: str, examples: Sequence[Example], names: Sequence[str]) -> Features:
        """The features `names` of examples, kept as `part` in RUN/features."""
        task, device = self.data.task, self.run.ranks.device
        self.run.folder.features.mkdir(exist_ok=True)
        with self._computing():
            return encode_examples(
                load_encoder(self.resolved.model, task, names, device),
                task,
                examples,
                self.run.folder.features,
                part,
                lambda share: self.journal.preparing("encoding rows", share),
            )

    def _judged_probe(self, probe: FittedProbe) -> Candidate:
        data, best = self.data, probe.best
        if data.dev:
            judged = self._outputs(self._model_of(best).to(self.run.ranks.device), data.dev)
        else:
            judged = list(zip(data.train, probe.validated_outputs(best), strict=True))
        losses = {name: round(feature.loss, 4) for name, feature in probe.fitted.items()}
        facts = {"features": best.name, "strength": best.validated.strength, "losses": losses}
        result = Result.of(data.task, judged, data.metric)
        how = "on dev" if data.dev else f"{probe.num_folds}-fold cross-validation"
        listed = ", ".join(f"{name} {loss}" for name, loss in losses.items())
        self.journal.remark(f"probe: {result.shown(data.metric)}, {how}; features: {best.name} (losses: {listed})")
        return Candidate("probe", result, lambda: self._model_of(best), facts)

    def _refitted(self, candidate: Candidate) -> Candidate:
        """The probe, fitted to the dev rows too, unless the user has set them apart or there are too many rows."""
        probe, data = self.probe, self.data
        assert probe is not None
        both = [each.row for each in [*data.train, *data.dev]]
        if not data.refits or not fits(data.task, both, self.resolved.model):
            return candidate
        best = probe.best
        model = probe.fit_with(self._features("dev", data.dev, [best.name]), data.dev, best)
        return candidate._replace(make_model=lambda: self._model_of(replace(best, model=model)))

    def _model_of(self, feature: FittedFeature) -> BertPreTrainedModel:
        return model_with_head(
            self.resolved.model,
            self.data.task,
            feature.model,
            feature.name,
            is_portable=feature.is_portable,
            dropout=self.resolved.dropout,
        )

    # The plan

    def _recorded_plan(self) -> Plan:
        """The recorded plan, or a new one, which is then recorded."""
        path = self.run.folder.method
        if self.run.ranks.count > 1:  # nothing is left to decide
            return self._plan()
        if not path.exists():
            write_file(path, json.dumps(self._plan()._asdict(), indent=1) + "\n")
        try:
            return TypeAdapter(Plan).validate_python(read_json(path))
        except ValidationError:
            raise damaged(path) from None

    def _plan(self) -> Plan:
        resolved, data = self.resolved, self.data
        steps = num_steps(resolved.epochs, len(data.train), resolved.batch_size)
        if resolved.method == "probe":
            return Plan(False, None, "")
        can_skip = resolved.method == "auto" and self.probe is not None
        num_targets = sum(data.task.num_targets(example.row) for example in data.train)
        if can_skip and not data.dev and num_targets < MIN_ROWS_TO_TRAIN:
            return Plan(False, None, f"only {counted(num_targets, 'row')}")
        model = model_to_train(resolved.model, data.task, dropout={}, seed=0).to(self.run.ranks.device)
        per_step = seconds_per_step(model, data.task, data.train, resolved.batch_size / self.run.ranks.count)
        # Without dev rows, each of the folds trains on a part of the rows.
        trainings = 1.0 if data.dev else 1 + NUM_TRAINED_FOLDS * (1 - 1 / NUM_TRAINED_FOLDS)
        overhead = OVERHEAD_S * (1 if data.dev else 1 + NUM_TRAINED_FOLDS)
        seconds = steps * per_step * trainings + overhead
        what = "" if data.dev else f"{NUM_TRAINED_FOLDS + 1} trainings of up to "
        if math.isfinite(resolved.budget):
            left = resolved.budget - (time.monotonic() - self.started)
            if seconds * SAFETY > left and can_skip:
                longest = shown_seconds(seconds * SAFETY)
                return Plan(False, None, f"that may take {longest}, and {shown_seconds(max(0, left))} are left")
            if seconds * SAFETY > left:
                max_steps = max(1, int((left / SAFETY - overhead) / (per_step * trainings)))
                return Plan(True, max_steps, f"{what}{max_steps:,} steps, as many as the budget allows")
        return Plan(True, None, f"{what}{steps:,} steps, about {shown_seconds(seconds)}")

    # Training all weights

    def _trained(self, plan: Plan) -> Candidate:
        """Train on the training rows, and judge by the dev rows."""
        trainer = self._train(self.run.folder, self.journal, self.data, self._start(None), plan.max_steps)
        trainer.take_best()
        self.trainer = trainer
        result = Result.of(self.data.task, self._outputs(trainer.model, self.data.dev), self.data.metric)
        return Candidate("full", result, lambda: _model_of(trainer), {})

    def _cross_validated(self, plan: Plan, of_probe: Candidate | None) -> Candidate:
        """Judge by the rows of folds that models of the other folds were not trained on, then train on all rows."""
        data = self.data
        folds = make_folds(data.task, data.train, NUM_TRAINED_FOLDS, TRAINED_FOLD_SEED)
        judged: Judged = []
        judged_probe: Judged = []
        for number, fold in enumerate(folds, start=1):
            self.journal.remark(f"fold {number} of {len(folds)}")
            judged += self._fold_outputs(number, fold, plan)
            if of_probe is not None:
                judged_probe += self._probe_fold_outputs(fold)
                results = [Result.of(data.task, each, data.metric) for each in (judged_probe, judged)]
                num_targets = sum(data.task.num_targets(example.row) for example, _ in judged)
                if num_targets >= MIN_ROWS_TO_STOP and difference(results[0], results[1], data.metric).is_clear:
                    break
        result = Result.of(data.task, judged, data.metric)
        facts: dict[str, Any] = {}
        if of_probe is not None:
            is_better, facts = self._compare(Result.of(data.task, judged_probe, data.metric), result)
            if not is_better:
                return of_probe._replace(facts={**of_probe.facts, **facts})
        self.journal.remark("training all weights on all rows")
        trainer = self.trainer = self._train(self.run.folder, self.journal, data, self._start(None), plan.max_steps)
        return Candidate("full", result, lambda: _model_of(trainer), facts)

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
            outputs = self._outputs(trainer.model, judged)
            write_tensors(path, {str(place): torch.from_numpy(output) for place, (_, output) in enumerate(outputs)})
        if folder.checkpoints.exists():
            remove_folder(folder.checkpoints)
        stored = read_all_tensors(path)
        if set(stored) != {str(place) for place in range(len(judged))} or not all(map(_is_finite, stored.values())):
            raise damaged(path)
        return [(example, stored[str(place)].numpy()) for place, example in enumerate(judged)]

    def _probe_fold_outputs(self, fold: Sequence[int]) -> Judged:
        """The outputs of the best probe, fitted to the other folds, for the examples of a fold."""
        probe = self.probe
        assert probe is not None
        fitted = replace(probe.best, model=probe.fit_to(_outside(fold, len(self.data.train)), probe.best))
        outputs = outputs_of(self.data.task, fitted, probe.features)
        return [(self.data.train[each], outputs[each]) for each in fold]

    def _start(self, numbers: Sequence[int] | None) -> FittedFeature | None:
        """What training starts from: the portable feature, fitted to the examples `numbers` (None: to all)."""
        if not self.resolved.is_fitted:
            return None
        if self.probe is None:  # only the first rank has one, and shares its weights
            return zero_head(self.resolved.model, self.data.task)
        portable = self.probe.portable
        return portable if numbers is None else replace(portable, model=self.probe.fit_to(numbers, portable))

    def _train(
        self, folder: RunFolder, journal: Journal, data: Dataset, start: FittedFeature | None, limit: int | None
    ) -> Trainer:
        """Train on `data`, which may be a part of the rows; all rows would take at most `limit` steps."""
        resolved, ranks = self.resolved, self.run.ranks
        steps = num_steps(resolved.epochs, len(data.train), resolved.batch_size)
        if limit is not None:
            steps = max(1, min(steps, limit * len(data.train) // len(self.data.train)))
        model = self._model_to_train(journal) if start is None else self._model_of(start)
        prepare_model(model, resolved, ranks)
        ranks.share_weights(model)
        settings = resolved.model_copy(update=steps_between(self.run.settings, len(data.train), resolved.epochs))
        schedule = Schedule(resolved.learning_rate, steps, warmup_share=WARMUP_SHARE)
        trainer = Trainer(model, schedule, settings, folder, ranks, journal)
        trainer.resume()
        journal.begin(Beginning(steps, dict(trainer.state.sums)))
        trainer.train([Phase(TaskTrainable(data, settings, ranks), 1.0)])
        return trainer

    def _model_to_train(self, journal: Journal) -> BertPreTrainedModel:
        resolved, data = self.resolved, self.data
        model = model_to_train(resolved.model, data.task, dropout=resolved.dropout, seed=resolved.seed)
        if journal is self.journal:  # once, not for every fold
            journal.remark(str(model.load_report).replace("\n", "; "))
        return model

    def _outputs(self, model: nn.Module, examples: Sequence[Example]) -> Judged:
        model.eval()
        with self._computing():
            return list(stream_outputs(self.data.task, model, examples, self.run.ranks.device))

    def _computing(self) -> AbstractContextManager[object]:
        return computing_in(self.resolved.precision, self.run.ranks.device)

    # Signals

    def signals(self, kept: Candidate, evaluation: Evaluation) -> Iterator[str]:
        """Warnings about a model that learned nothing, or that could still learn."""
        advice = ""
        if kept.method == "full" and self.trainer is not None:
            is_stalled = self.trainer.state.evaluations_since_best >= self.resolved.patience
            guessing_loss = self.data.task.guessing_loss(self.data.train)
            advice = advice_from_losses(self.run.folder.log, guessing_loss, is_stalled=is_stalled)
        if evaluation.warning:
            yield f"{evaluation.warning} {advice or CHECK_ROWS}"
        elif advice:
            yield advice

    # Comparison

    def _compare(self, of_probe: Result, trained: Result) -> tuple[bool, dict[str, Any]]:
        """Whether training all weights is better, and the comparison.

        If both are equally good, it is: it gains more from the rows that were held out.
        """
        metric = self.data.metric
        found = difference(of_probe, trained, metric)
        errors = self.data.task.error_metrics  # decide a tie
        is_better = found.value > 0 or (
            found.value == 0 and all(trained.metrics[each] <= of_probe.metrics[each] for each in errors)
        )
        num_rows = len(trained.judged)
        values = [f"{each.metrics[metric]:.4f}" for each in (of_probe, trained)]
        self.journal.remark(
            f"{metric.replace('_', ' ')} on the same {counted(num_rows, 'row')}: probe {values[0]}, "
            f"all weights trained {values[1]} ({found}{'' if found.is_clear else ', no clear difference'}); "
            f"kept {'the model with all weights trained' if is_better else 'the probe'}"
        )
        return is_better, {"compared": {"metric": metric, **found._asdict(), "rows": num_rows}}


def _model_of(trainer: Trainer) -> BertPreTrainedModel:
    assert isinstance(trainer.model, BertPreTrainedModel)
    return trainer.model


def _is_finite(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and bool(tensor.isfinite().all())


def _outside(fold: Sequence[int], count: int) -> list[int]:
    """The numbers below `count` that are not in a fold."""
    return sorted(set(range(count)).difference(fold))
