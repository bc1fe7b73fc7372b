"""Which task is meant: by a command with its data, or by a model folder.

Of a folder, the class of the model and the kind of problem in its `config.json` tell it, whoever has made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertmill.config import FinetuneSettings, unknown_name
from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.tasks.base import Task
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import MULTI_LABEL, Classify, labels_in, parse_class_weights
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.regress import Regress

# By which the best checkpoint may be chosen: figures of which more is better.
METRICS = {
    "classify": ("accuracy", "f1", "matthews"),
    "classify --multi-label": ("micro_f1", "macro_f1", "all_right"),
    "regress": ("pearson", "spearman"),
    "choose": ("accuracy",),
}
METRIC_OF_PRESET = {"cola": "matthews"}


def make_task(settings: FinetuneSettings, rows: Sequence[LabelledRow]) -> Task:
    """The task that `settings` ask for, with the labels that are in the training rows."""
    metric = _metric(settings)
    if settings.task == "regress":
        return Regress(metric)
    if settings.task == "choose":
        return Choose(metric)
    counts = labels_in(rows, settings.multi_label, str(settings.train))
    weights = None if settings.class_weights is None else parse_class_weights(settings.class_weights, counts)
    return Classify(tuple(counts), settings.multi_label, weights, settings.label_smoothing, metric)


def _metric(settings: FinetuneSettings) -> str:
    assert settings.task is not None
    known = METRICS[settings.task + (" --multi-label" if settings.multi_label else "")]
    if settings.metric is None:
        of_preset = METRIC_OF_PRESET.get(settings.preset or "")
        return of_preset if of_preset in known else known[0]
    if settings.metric not in known:
        raise unknown_name("metric", settings.metric, known)
    return settings.metric


def task_of_folder(folder: Path) -> Task:
    """What the model of a folder was fine-tuned for; UsageError if that is nothing that is known here."""
    config = BertConfig.from_pretrained(folder)
    kinds = config.architectures or []
    if "BertForMultipleChoice" in kinds:
        return Choose()
    if "BertForSequenceClassification" not in kinds:
        raise UsageError(
            "is not fine-tuned for a task", where=folder, remedy="fine-tune it first with `bertmill finetune`"
        )
    if config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1):
        return Regress()
    labels = tuple(config.id2label[number] for number in range(config.num_labels))
    return Classify(labels, config.problem_type == MULTI_LABEL)
