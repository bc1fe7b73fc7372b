"""Which task is meant: by a command with its data, or by a model folder.

Of a folder, the class of the model and the kind of problem in its `config.json` tell it, whoever has made it; the
threshold below which a question has no answer, and how long answers may be, are in our own note.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertmill.checkpoint.names import MODEL_NOTE, model_note
from bertmill.config.commands import FinetuneSettings
from bertmill.config.reading import unknown_name
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.config import BertConfig
from bertmill.tasks.answer import USUAL_ANSWER_PIECES, AnswerQuestions
from bertmill.tasks.base import Task
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import MULTI_LABEL, Classify, labels_in, parse_class_weights
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.regress import Regress
from bertmill.tasks.tag import Tag
from bertmill.text.tokenizer import BertTokenizer

METRIC_OF_PRESET = {"cola": "matthews"}


def make_task(settings: FinetuneSettings, rows: Sequence[LabelledRow], tokenizer: BertTokenizer) -> Task:
    """The task that `settings` ask for, with the labels that are in the training rows."""
    file = str(settings.train)
    if settings.task == "regress":
        return Regress.for_rows(rows, file)
    if settings.task == "choose":
        return Choose()
    if settings.task == "tag":
        return Tag.for_rows(rows, file)
    if settings.task == "answer":
        return AnswerQuestions.for_rows(rows, tokenizer)
    counts = labels_in(rows, settings.multi_label, file)
    weights = None if settings.class_weights is None else parse_class_weights(settings.class_weights, counts)
    return Classify(tuple(counts), settings.multi_label, weights, settings.label_smoothing)


def choose_metric(settings: FinetuneSettings, task: Task) -> str:
    """By which the best checkpoint is chosen."""
    if settings.metric is None:
        of_preset = METRIC_OF_PRESET.get(settings.preset or "")
        return of_preset if of_preset in task.goals else task.goals[0]
    if settings.metric not in task.goals:
        raise unknown_name("metric", settings.metric, task.goals)
    return settings.metric


def task_of_folder(folder: Path) -> Task:
    """What the model of a folder was fine-tuned for; UsageError if that is nothing that is known here."""
    config = BertConfig.from_pretrained(folder)
    kinds = config.architectures or []
    labels = tuple(config.id2label[number] for number in range(config.num_labels))
    if "BertForMultipleChoice" in kinds:
        return Choose()
    if "BertForTokenClassification" in kinds:
        return Tag.of_labels(labels)
    if "BertForQuestionAnswering" in kinds:
        return _questions_of_folder(folder)
    if "BertForSequenceClassification" not in kinds:
        raise UsageError(
            "is not fine-tuned for a task", where=folder, remedy="fine-tune it first with `bertmill finetune`"
        )
    if config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1):
        return Regress()
    return Classify(labels, config.problem_type == MULTI_LABEL)


def _questions_of_folder(folder: Path) -> AnswerQuestions:
    """As our note of the folder says, if there is one; models of others answer every question."""
    note = model_note(folder)
    threshold, longest = note.get("null_threshold"), note.get("max_answer_pieces", USUAL_ANSWER_PIECES)
    if not isinstance(threshold, float | int | None) or not isinstance(longest, int) or longest < 1:
        what = "has a null_threshold or a max_answer_pieces that is no such number"
        raise IntegrityError(what, where=folder / MODEL_NOTE, remedy="fine-tune again")
    return AnswerQuestions(threshold, longest)
