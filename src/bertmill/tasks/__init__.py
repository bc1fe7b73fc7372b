"""The registry of tasks. A new task is one file or folder, and one line in TASKS."""

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

TASKS = {  # name → "module:class", imported on first use
    "classify": "bertmill.tasks.classify:Classify",
    "regress": "bertmill.tasks.regress:Regress",
    "choose": "bertmill.tasks.choose:Choose",
    "tag": "bertmill.tasks.tag.task:Tag",
    "answer": "bertmill.tasks.answer.task:AnswerQuestions",
}

PRETRAINED = "pretrain"  # recorded by pre-training; not a task


def load_task(name: str) -> type[AnyTask]:
    """Return the class of a task. Raises UsageError if the name is unknown."""
    if name not in TASKS:
        raise unknown_name("task", name, list(TASKS))
    return cast("type[AnyTask]", pkgutil.resolve_name(TASKS[name]))


def settings_for(task: str) -> type[FinetuneSettings]:
    """Return the settings of `finetune` with the options of a task. Help shows the name and docstring of the task."""
    kind = load_task(task)
    bases: Any = (FinetuneSettings, kind.Options)
    return cast("type[FinetuneSettings]", create_model(task, __base__=bases, __doc__=getdoc(kind)))


def predict_settings_for(*tasks: str) -> type[PredictSettings]:
    """Return the settings of `predict` with the options of the given tasks."""
    options = dict.fromkeys(load_task(task).PredictOptions for task in tasks)
    bases: Any = (PredictSettings, *(each for each in options if each.model_fields))
    joined = create_model("PredictSettings", __base__=bases, __doc__=PredictSettings.__doc__)
    return cast("type[PredictSettings]", joined)


def with_options(settings: FinetuneSettings) -> FinetuneSettings:
    """Add the task's options with their defaults to `settings`, unless they are already there."""
    if isinstance(settings, load_task(settings.task).Options):
        return settings
    return settings_for(settings.task)(**settings.model_dump(exclude_unset=True))


def task_of_model(model: str) -> AnyTask:
    """Return the task of a model folder or of an installed model."""
    from bertmill.model.config import BertConfig  # imports torch

    folder = find_model(model)
    return task_of_folder(BertConfig.from_pretrained(folder), read_metadata(folder), folder)


def task_of_folder(config: BertConfig, metadata: Mapping[str, Any], folder: Path) -> AnyTask:
    """Return the task of a fine-tuned model folder: the recorded one, or else the one that matches its head."""
    recorded = metadata.get("task")
    is_recorded = recorded not in (None, PRETRAINED)
    names = [name for name in TASKS if name == recorded] if is_recorded else list(TASKS)
    for kind in map(load_task, names):
        if has_head(config, kind) and (task := kind.from_folder(config, metadata)):
            return task
    if is_recorded:
        what = f"the recorded task {recorded!r} is unknown or does not match the head of the model"
        raise IntegrityError(what, where=folder / METADATA_FILE, remedy="use the bertmill version that wrote it")
    what = "the model is not fine-tuned for a task"
    raise UsageError(what, where=folder, remedy="fine-tune it with `bertmill finetune`")


def has_head(config: BertConfig, kind: type[AnyTask]) -> bool:
    """Whether the model was saved with the head of a task, or as a probe for it."""
    return head_of(config, kind) in (config.architectures or [])


def head_of(config: BertConfig, kind: type[AnyTask]) -> str:
    """The name of the model class for a task: that of a probe if the model was saved as one."""
    return kind.probe if kind.probe in (config.architectures or []) else kind.head
