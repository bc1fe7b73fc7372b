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

MODEL_NOTE = "bertmill.json"
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
    if settings.task != "classify" and (settings.class_weights or settings.label_smoothing or settings.multi_label):
        raise UsageError("--class-weights, --label-smoothing and --multi-label are for classify alone")
    if settings.task == "regress":
        return Regress(metric)
    if settings.task == "choose":
        return Choose(metric)
    if settings.multi_label and (settings.class_weights or settings.label_smoothing):
        raise UsageError("--class-weights and --label-smoothing are for one label per text")
    counts = labels_in(rows, settings.multi_label)
    weights = None if settings.class_weights is None else parse_class_weights(settings.class_weights, counts)
    return Classify(tuple(counts), settings.multi_label, weights, settings.label_smoothing, metric)


def _metric(settings: FinetuneSettings) -> str:
    assert settings.task is not None
    known = METRICS[settings.task + (" --multi-label" if settings.multi_label else "")]
    if settings.metric is None:
        return METRIC_OF_PRESET.get(settings.preset or "", known[0])
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
    if config.num_labels == 1 or config.problem_type == "regression":
        return Regress()
    labels = tuple(config.id2label[number] for number in range(config.num_labels))
    return Classify(labels, config.problem_type == MULTI_LABEL)
