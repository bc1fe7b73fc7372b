"""Fine-tuning defaults: the learning rate by the size of the model, the duration by the task and the number of rows.

docs/fine-tuning.md explains them, and docs/benchmarks.md has the measurements.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import InstanceOf

from bertmill.batching.windows import Windows
from bertmill.config.commands import FinetuneSettings
from bertmill.model.config import BertConfig
from bertmill.training.dataset import Dataset
from bertmill.training.loop import ResolvedTraining
from bertmill.training.recipe import nearest_size
from bertmill.training.schedule import steps_of_epochs

# Peak learning rates of a model whose head is fitted already, and of one whose head is random.
FITTED_RATES = {"tiny": 1e-3, "mini": 3e-4, "small": 5e-5, "medium": 5e-5, "base": 3e-5, "large": 2e-5}
RANDOM_RATES = {"tiny": 1e-3, "mini": 5e-4, "small": 3e-4, "medium": 1e-4, "base": 5e-5, "large": 3e-5}
# Epochs up to these numbers of rows.
FITTED_EPOCHS = ((1000, 5.0), (math.inf, 3.0))
RANDOM_EPOCHS = ((1000, 16.0), (5000, 8.0), (math.inf, 3.0))
EPOCHS_OF_RARE_CLASSES = 8.0  # with a fitted head
RARE_CLASS = 50  # rows per class; below it, EPOCHS_OF_RARE_CLASSES applies
QUICK_SIZES = ("tiny", "mini")  # train for twice as many epochs with a fitted head
MIN_STEPS = 200  # with a random head, so that the loss can fall
PATIENCE = 3
WARMUP_SHARE = 0.1
LINES = 20  # of the log, for a short run
MAX_LOG_EVERY = 50


class ResolvedFinetuning(ResolvedTraining):
    """The resolved settings of a fine-tuning run, with its data."""

    model: str
    method: Literal["auto", "probe", "full"]
    portable: bool
    budget: float  # infinite without one
    learning_rate: float
    epochs: float
    has_probe: bool  # whether the task has a probe for this model
    is_fitted: bool  # whether training starts from the probe
    dropout: dict[str, float]  # replaces values of config.json, by name
    windows: InstanceOf[Windows]
    data: InstanceOf[Dataset]  # includes the metric


def learning_rate(settings: FinetuneSettings, config: BertConfig, *, is_fitted: bool) -> float:
    """The given peak learning rate, or the default for the size of the model."""
    rates = FITTED_RATES if is_fitted else RANDOM_RATES
    return settings.learning_rate or rates[nearest_size(config)]


def epochs(
    settings: FinetuneSettings, config: BertConfig, num_rows: int, num_outputs: int, *, is_fitted: bool
) -> float:
    """The given number of epochs, or the default for the model, the rows and the outputs of the head."""
    if settings.epochs is not None:
        return settings.epochs
    if not is_fitted:
        return max(_up_to(RANDOM_EPOCHS, num_rows), MIN_STEPS * settings.batch_size / num_rows)
    has_rare_classes = num_outputs > 1 and num_rows < RARE_CLASS * num_outputs
    usual = EPOCHS_OF_RARE_CLASSES if has_rare_classes else _up_to(FITTED_EPOCHS, num_rows)
    return usual * (2 if nearest_size(config) in QUICK_SIZES else 1)


def _up_to(table: tuple[tuple[float, float], ...], num_rows: int) -> float:
    return next(epochs for limit, epochs in table if num_rows <= limit)


def num_steps(epochs: float, num_rows: int, batch_size: int) -> int:
    """The number of steps of a training on this number of rows."""
    return steps_of_epochs(epochs, [num_rows / batch_size], [1.0])


def patience(settings: FinetuneSettings) -> int | None:
    """The given patience; by default PATIENCE, or None if the user has set the duration."""
    return settings.patience or (PATIENCE if settings.epochs is None else None)


def steps_between(settings: FinetuneSettings, num_rows: int, epochs: float) -> dict[str, int]:
    """The given steps between evaluations and log lines; by default an epoch and a twentieth of the steps."""
    steps = num_steps(epochs, num_rows, settings.batch_size)
    return {
        "eval_every": settings.eval_every or math.ceil(num_rows / settings.batch_size),
        "log_every": settings.log_every or min(MAX_LOG_EVERY, max(1, steps // LINES)),
    }
