"""The registry of tasks. A new task is one file, or one folder, and one line in TASKS."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import create_model

from bertmill.checkpoint.names import METADATA_FILE, find_model, read_metadata
from bertmill.config.commands import FinetuneSettings, PredictSettings
from bertmill.config.reading import unknown_name
from bertmill.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from bertmill.model.config import BertConfig
    from bertmill.tasks.base import AnyTask

TASKS = {  # name → "module:class", imported when first used
    "classify": "bertmill.tasks.classify:Classify",
    "regress": "bertmill.tasks.regress:Regress",
    "choose": "bertmill.tasks.choose:Choose",
    "tag": "bertmill.tasks.tag.task:Tag",
    "answer": "bertmill.tasks.answer.task:AnswerQuestions",
}

PRETRAINED = "pretrain"  # recorded by pre-training, which is not a task


def load_task(name: str) -> type[AnyTask]:
    """The class of a task; UsageError if there is no task of this name."""
    if name not in TASKS:
        raise unknown_name("task", name, list(TASKS))
    return cast("type[AnyTask]", pkgutil.resolve_name(TASKS[name]))


def settings_for(task: str) -> type[FinetuneSettings]:
    """The settings of `finetune` with the options of a task, under the name and docstring of the task, for help."""
    kind = load_task(task)
    bases: Any = (FinetuneSettings, kind.Options)
    return cast("type[FinetuneSettings]", create_model(task, __base__=bases, __doc__=getdoc(kind)))


def predict_settings_for(*tasks: str) -> type[PredictSettings]:
    """The settings of `predict` together with the options of some tasks."""
    options = dict.fromkeys(load_task(task).PredictOptions for task in tasks)
    bases: Any = (PredictSettings, *(each for each in options if each.model_fields))
    joined = create_model("PredictSettings", __base__=bases, __doc__=PredictSettings.__doc__)
    return cast("type[PredictSettings]", joined)


def with_options(settings: FinetuneSettings) -> FinetuneSettings:
    """The same settings with the defaults of the task's options, unless they have options already."""
    if isinstance(settings, load_task(settings.task).Options):
        return settings
    return settings_for(settings.task)(**settings.model_dump(exclude_unset=True))


def task_of_model(model: str) -> AnyTask:
    """The task of a model folder or of an installed model."""
    from bertmill.model.config import BertConfig  # it imports torch

    folder = find_model(model)
    return task_of_folder(BertConfig.from_pretrained(folder), read_metadata(folder), folder)


def task_of_folder(config: BertConfig, metadata: Mapping[str, Any], folder: Path) -> AnyTask:
    """The task that a model folder was fine-tuned for: the one it records, else the one that its head suggests."""
    recorded = metadata.get("task")
    is_recorded = recorded not in (None, PRETRAINED)
    for name in TASKS:
        kind = load_task(name) if recorded == name or not is_recorded else None
        if kind and has_head(config, kind) and (task := kind.from_folder(config, metadata)):
            return task
    if is_recorded:
        what = f"records the task {recorded!r}, which is unknown or does not fit the head of the model"
        raise IntegrityError(what, where=folder / METADATA_FILE, remedy="use the version that wrote it")
    raise UsageError("is not fine-tuned for a task", where=folder, remedy="fine-tune it with `bertmill finetune`")


def has_head(config: BertConfig, kind: type[AnyTask]) -> bool:
    """Whether a model was saved with the head of a task."""
    return kind.head in (config.architectures or [])
