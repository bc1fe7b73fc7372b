"""The probe: a regularized linear model on features of the frozen encoder, chosen by cross-validation.

Every task that can have a probe names its class (model/probe.py), which has one portable feature, the only one that an
ordinary Hugging Face folder can express. The others are used only if their loss is clearly smaller.
Training all weights starts from the portable model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bertmill.model.config import BertConfig
from bertmill.model.probe import Probe
from bertmill.model.registry import MODEL_CLASSES
from bertmill.randomness import Permutation
from bertmill.rows.row import Row
from bertmill.rows.split import split_into_folds
from bertmill.tasks.base import AnyTask, Array, Example, Targets
from bertmill.training.features import Features
from bertmill.training.linear_models import (
    MAX_COMPONENTS,
    Components,
    Floats,
    LinearModel,
    Validated,
    cross_validate,
    fit,
    validate,
)

NUM_FOLDS = 5
MARGIN = 0.02  # of the loss of the portable feature, within which it is preferred
MAX_ROWS = 20_000  # that a probe is fitted to; words for `tag`
MAX_BYTES = 1 << 29  # of features
MAX_PRODUCT = 5_000_000_000  # rows × components × outputs, which limits the time of a fit
ONE_FOLD_PRODUCT = 50_000_000  # above it, features and strengths are chosen on the first fold only
FOLD_SEED = 0  # the folds do not depend on the training seed


@dataclass(frozen=True)
class FittedFeature:
    """A feature with its best linear model."""

    name: str
    is_portable: bool
    validated: Validated  # on the folds
    model: LinearModel  # fitted to all rows

    @property
    def loss(self) -> float:
        """The mean loss on rows that the model was not fitted to."""
        return self.validated.loss


@dataclass(frozen=True)
class FittedProbe:
    """The features of the encoder for a task, each with a linear model, and which of them is best."""

    task: AnyTask
    fitted: dict[str, FittedFeature]
    portable: FittedFeature
    best: FittedFeature
    features: Features
    targets: Targets
    weights: Targets | None
    num_folds: int

    def validated_outputs(self, feature: FittedFeature) -> list[Array]:
        """The outputs for every training example, each from a model of the other folds."""
        return _per_example(self.task, feature.validated.outputs, self.features.sizes)

    def fit_to(self, numbers: Sequence[int], feature: FittedFeature) -> LinearModel:
        """The model of a feature, fitted to the examples `numbers` only."""
        rows = _rows_of(numbers, self.features.sizes)
        weights = None if self.weights is None else self.weights[rows]
        return self._fit(self.features.of(feature.name).numpy()[rows], self.targets[rows], weights, feature)

    def fit_with(self, features: Features, examples: Sequence[Example], feature: FittedFeature) -> LinearModel:
        """The model of a feature, fitted to further examples too."""
        rows = np.concatenate([each.of(feature.name).numpy() for each in (self.features, features)])
        targets = np.concatenate([self.targets, *map(self.task.targets, examples)])
        weights = self.task.target_weights(examples)
        both = None if self.weights is None or weights is None else np.concatenate([self.weights, weights])
        return self._fit(rows, targets, both, feature)

    def _fit(self, rows: Floats, targets: Targets, weights: Targets | None, feature: FittedFeature) -> LinearModel:
        with threadpool_limits(torch.get_num_threads(), "blas"):
            found = Components.of(rows)
            kind, outputs = self.task.target_kind, num_outputs(self.task)
            return found.restored(fit(kind, found.rows, targets, outputs, feature.validated.strength, weights))


def fits(task: AnyTask, rows: Sequence[Row], model: str) -> bool:
    """Whether a probe can be fitted to all rows, in bounded memory and time."""
    return sum(map(task.num_targets, rows)) <= max_targets(task, rows, model)


def max_targets(task: AnyTask, rows: Sequence[Row], model: str, *, portable_only: bool = False) -> int:
    """The number of targets that a probe may be fitted to."""
    names = feature_names(task, rows, portable_only=portable_only)
    num_features = sum(_kind_of(task).feature_sizes(BertConfig.from_pretrained(model), names).values())
    of_product = MAX_PRODUCT // (min(num_features, MAX_COMPONENTS) * num_outputs(task))
    return min(MAX_ROWS, MAX_BYTES // (4 * num_features), max(num_outputs(task), of_product))


def sample_examples(task: AnyTask, examples: Sequence[Example], num_rows: int) -> list[int]:
    """The numbers of examples with about `num_rows` rows: all of them, or a random sample with every target."""
    sizes = [task.num_targets(example.row) for example in examples]
    if sum(sizes) <= num_rows:
        return list(range(len(examples)))
    order = Permutation(len(examples), FOLD_SEED, "rows of the probe")(np.arange(len(examples))).tolist()
    inside = np.cumsum([sizes[number] for number in order]) <= num_rows
    chosen = [number for number, is_inside in zip(order, inside, strict=True) if is_inside]
    known = {each for number in chosen for each in _distinct(examples[number])}
    for number in order[len(chosen) :]:
        if not known.issuperset(_distinct(examples[number])):
            chosen.append(number)
            known.update(_distinct(examples[number]))
    return sorted(chosen)


def _distinct(example: Example) -> set[float]:
    """The targets of an example, if there are few different ones: classes, but not label sets or numbers."""
    target = np.ravel(example.target)
    return set(target.tolist()) if target.dtype.kind == "i" else set()


def fit_probe(
    task: AnyTask,
    examples: Sequence[Example],
    features: Features,
    *,
    judge_all: bool,
    progress: Callable[[float], None],
) -> FittedProbe:
    """Fit a linear model to each feature of the examples, and choose one by its loss.

    With `judge_all`, there are validated outputs for all examples.
    """
    targets = np.concatenate([task.targets(example) for example in examples])
    weights = task.target_weights(examples)
    folds = make_folds(task, examples, NUM_FOLDS, FOLD_SEED)
    product = len(targets) * min(features.rows.shape[1], MAX_COMPONENTS) * num_outputs(task)
    rows_of_folds = [_rows_of(fold, features.sizes) for fold in folds]
    choosing = rows_of_folds if product <= ONE_FOLD_PRODUCT else rows_of_folds[:1]
    fitted: dict[str, FittedFeature] = {}
    portable_name = _kind_of(task).PORTABLE
    with threadpool_limits(torch.get_num_threads(), "blas"):
        for number, name in enumerate(features.columns):
            found = Components.of(features.of(name).numpy())
            arguments = (task.target_kind, found.rows, targets, num_outputs(task))
            validated = cross_validate(*arguments, choosing, weights)
            model = found.restored(fit(*arguments, validated.strength, weights))
            fitted[name] = FittedFeature(name, name == portable_name, validated, model)
            progress((number + 1) / len(features.columns))
    portable = fitted[portable_name]
    best = min(fitted.values(), key=lambda feature: feature.loss)
    if not _is_clearly_smaller(best.validated.losses, portable.validated.losses):
        best = portable
    if judge_all and len(choosing) < len(folds):
        with threadpool_limits(torch.get_num_threads(), "blas"):
            rows = Components.of(features.of(best.name).numpy()).rows
            strength = best.validated.strength
            of_all = validate(task.target_kind, rows, targets, num_outputs(task), rows_of_folds, strength, weights)
        best = replace(best, validated=of_all)
    return FittedProbe(task, fitted, portable, best, features, targets, weights, len(folds))


def zero_head(model: str, task: AnyTask) -> FittedFeature:
    """The portable feature with a linear model of zeros."""
    kind = _kind_of(task)
    (size,) = kind.feature_sizes(BertConfig.from_pretrained(model), [kind.PORTABLE]).values()
    count = num_outputs(task)
    none = np.zeros((0, count))
    head = LinearModel(np.zeros((count, size), np.float32), np.zeros(count, np.float32))
    return FittedFeature(kind.PORTABLE, True, Validated(1.0, none, none[:, 0]), head)


def _is_clearly_smaller(losses: Floats, others: Floats) -> bool:
    """Whether the mean of `losses` is smaller by more than MARGIN and a standard error of the difference."""
    differences = others - losses
    error = differences.std() / len(differences) ** 0.5
    return bool(differences.mean() > max(MARGIN * others.mean(), error))


def make_folds(task: AnyTask, examples: Sequence[Example], num_folds: int, seed: int) -> list[list[int]]:
    """The numbers of the examples of each fold. Rows with the same text share a fold, unless all have the same text."""
    folds = split_into_folds([each.row for each in examples], num_folds, seed, task.split_key)
    if len(folds) > 1:
        return folds
    return [list(range(start, len(examples), num_folds)) for start in range(min(num_folds, len(examples)))]


def outputs_of(task: AnyTask, feature: FittedFeature, features: Features) -> list[Array]:
    """The outputs of a linear model for the examples with these features."""
    return _per_example(task, feature.model.outputs(features.of(feature.name).numpy()), features.sizes)


def _kind_of(task: AnyTask) -> type[Probe]:
    kind = MODEL_CLASSES[task.probe]
    assert issubclass(kind, Probe)
    return kind


def feature_names(task: AnyTask, rows: Sequence[Row], *, portable_only: bool) -> list[str]:
    """The features to try; those of pairs only if most rows are pairs."""
    kind = _kind_of(task)
    if portable_only:
        return [kind.PORTABLE]
    num_pairs = sum(len(row.texts) > 1 for row in rows)
    return [name for name in kind.FEATURES if name not in kind.OF_PAIRS or 2 * num_pairs > len(rows)]


def _rows_of(numbers: Sequence[int], sizes: Sequence[int]) -> NDArray[np.int64]:
    """The numbers of the rows of some examples, given the number of rows of each example."""
    ends = np.cumsum(sizes)
    return np.concatenate([np.arange(ends[number] - sizes[number], ends[number]) for number in numbers])


def _per_example(task: AnyTask, outputs: Floats, sizes: Sequence[int]) -> list[Array]:
    """Outputs by row of features as outputs by example: a matrix per sentence, or a vector per sequence."""
    rows = outputs.astype(np.float32)
    return np.split(rows, np.cumsum(sizes)[:-1]) if _kind_of(task).PER_PIECE else list(rows)


def num_outputs(task: AnyTask) -> int:
    """The number of outputs of a linear model."""
    return BertConfig().with_settings(**task.folder_entries().config).num_labels
