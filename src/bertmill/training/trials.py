"""Several fine-tuning runs on the same data, over seeds and over the paper's grid: their spread, and the best of them.

    RUN/config.toml           the settings of all trials, and hashes of the data
    RUN/trials/NAME/          one run folder per trial
    RUN/trials.json           the dev metrics of each trial
    RUN/model/                the best trial: the best seed of the setting with the best mean over seeds
A finished trial keeps its model, and checkpoints only if the settings say so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bertmill.checkpoint.names import read_metadata
from bertmill.config.commands import FinetuneSettings
from bertmill.config.reading import RUN_FILE
from bertmill.errors import BertmillError, UsageError
from bertmill.storage import new_folder, write_file
from bertmill.tasks import with_options
from bertmill.text.printable import counted
from bertmill.training.distributed import is_one_of_several
from bertmill.training.finetune import COMMAND, finetune, hash_sources
from bertmill.training.progress import Listener
from bertmill.training.runs import Run, open_run
from bertmill.training.state import RunFolder

PAPER_GRID: dict[str, tuple[float, ...]] = {
    "batch_size": (16, 32),
    "learning_rate": (5e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}
SHORT_NAMES = {"batch_size": "batch", "learning_rate": "rate", "epochs": "epochs"}


@dataclass(frozen=True)
class Trial:
    """A finished fine-tuning run: its folder, its point of the grid, its seed and its dev metrics."""

    folder: RunFolder
    setting: str  # the point of the grid; empty without a grid
    seed: int
    metric: str
    dev: dict[str, float]

    @property
    def score(self) -> float:
        """The metric that selects the best trial."""
        return self.dev[self.metric]


def finetune_once_or_more(settings: FinetuneSettings, listener: Listener) -> Path | None:
    """Fine-tune for every seed and grid point of `settings`; returns the folder of the best model."""
    if settings.seeds == 1 and settings.grid is None:
        return finetune(settings, listener)
    if is_one_of_several():
        raise UsageError("`seeds` and `grid` need a single process", remedy="start it without torchrun")
    if settings.method == "probe":
        raise UsageError("`seeds` and `grid` train all weights; a probe does not depend on them", remedy="omit them")
    if settings.budget is not None:
        raise UsageError("`budget` bounds a single run, not `seeds` or `grid`", remedy="omit it")
    folder = RunFolder(settings.out)
    fixed = [name for name in PAPER_GRID if settings.grid and name in settings.model_fields_set]
    if fixed and not folder.config.exists():
        listed = ", ".join(f"`{name}`" for name in fixed)
        raise UsageError(f"{listed} and `grid` are mutually exclusive", remedy="omit one or the other")
    with open_run(with_options(settings), COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        try:
            sources = hash_sources(run.settings)
            run.require_sources(sources)
            run.start({}, sources)  # each trial resolves the settings left open
            return _finetune_all(run, listener)
        except BertmillError:
            if run.is_new and not list(folder.trials.glob(f"*/{RUN_FILE}")):  # no trial has started
                folder.config.unlink(missing_ok=True)
                shutil.rmtree(folder.trials, ignore_errors=True)
            raise


def _finetune_all(run: Run[FinetuneSettings], listener: Listener) -> Path:
    settings, folder = run.settings, run.folder
    points = list(_points(settings))
    trials: list[Trial] = []
    for setting, values, seed in points:
        name = "-".join(filter(None, [setting.replace(" ", "-"), f"seed-{seed}"]))
        listener.remark(f"trial {len(trials) + 1} of {len(points)}: {name}")
        changes: dict[str, Any] = {
            **values,
            "seed": seed,
            "seeds": 1,
            "grid": None,
            "resume": True,
            "out": folder.trials / name,
            "method": "full",
        }
        trials.append(_trial(run, settings.model_copy(update=changes), setting, listener))
    best = _best(trials)
    for line in _lines(trials):
        listener.remark(line)
    listener.remark(f"the best is {best.folder.path.name}")
    metrics = [
        {"name": trial.folder.path.name, "setting": trial.setting, "seed": trial.seed, "dev": trial.dev}
        for trial in trials
    ]
    write_file(folder.trial_metrics, json.dumps(metrics, indent=1) + "\n")
    with new_folder(folder.model) as temporary:
        for file in best.folder.model.iterdir():  # copytree would replace the error of a full disk
            shutil.copyfile(file, temporary / file.name)
    return folder.model


def _points(settings: FinetuneSettings) -> Iterator[tuple[str, dict[str, float], int]]:
    """The name and values of each grid point, with each seed."""
    for values in product(*PAPER_GRID.values()) if settings.grid else [()]:
        named = dict(zip(PAPER_GRID, values, strict=True)) if values else {}
        setting = " ".join(f"{SHORT_NAMES[name]} {value:g}" for name, value in named.items())
        for seed in range(settings.seed, settings.seed + settings.seeds):
            yield setting, named, seed


def _trial(run: Run[FinetuneSettings], settings: FinetuneSettings, setting: str, listener: Listener) -> Trial:
    folder = RunFolder(settings.out)
    if folder.model.exists():
        listener.remark(f"{folder.path} is already finished")
    else:
        run.require_sources(hash_sources(settings))
        finetune(settings, listener)
    left = [folder.features, folder.folds, *([] if settings.keep_checkpoints else [folder.checkpoints])]
    for each in left:  # of a trial that was killed after it had finished
        shutil.rmtree(each, ignore_errors=True)
    metadata = read_metadata(folder.model)
    return Trial(folder, setting, settings.seed, metadata["metric"], metadata["dev"])


def _best(trials: list[Trial]) -> Trial:
    def mean_score(setting: str) -> float:
        return mean(trial.score for trial in trials if trial.setting == setting)

    return max(trials, key=lambda trial: (mean_score(trial.setting), trial.score))


def _lines(trials: list[Trial]) -> Iterator[str]:
    """The metrics of each setting: means over the seeds, with the standard deviation if there are several."""
    for setting, group in groupby(trials, key=lambda trial: trial.setting):
        of_setting = list(group)
        metrics = []
        for name in of_setting[0].dev:
            values = [trial.dev[name] for trial in of_setting]
            spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
            metrics.append(f"{name.replace('_', ' ')} {mean(values):.4f}{spread}")
        yield ": ".join(filter(None, [setting, f"{', '.join(metrics)} ({counted(len(of_setting), 'seed')})"]))
