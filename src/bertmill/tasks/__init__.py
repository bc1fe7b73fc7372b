"""The registry of tasks. A new task is one file, or one folder, and one line in TASKS."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import create_model

from bertmill.checkpoint.names import METADATA_FILE
from bertmill.config.commands import FinetuneSettings
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
    """The settings of `finetune` together with the options of a task."""
    bases: Any = (FinetuneSettings, load_task(task).Options)
    joined = create_model(f"{task.title()}Settings", __base__=bases, __doc__=FinetuneSettings.__doc__)
    return cast("type[FinetuneSettings]", joined)


def with_options(settings: FinetuneSettings) -> FinetuneSettings:
    """The same settings with the defaults of the task's options, unless they have options already."""
    if isinstance(settings, load_task(settings.task).Options):
        return settings
    return settings_for(settings.task)(**settings.model_dump(exclude_unset=True))


def task_of_folder(config: BertConfig, metadata: Mapping[str, Any], folder: Path) -> AnyTask:
    """The task that a model folder was fine-tuned for: the one it records, else the one that its head suggests."""
    recorded = metadata.get("task")
    if recorded in (None, PRETRAINED):
        for name in TASKS:
            if task := load_task(name).from_folder(config, metadata):
                return task
        raise UsageError("is not fine-tuned for a task", where=folder, remedy="fine-tune it with `bertmill finetune`")
    task = load_task(recorded).from_folder(config, metadata) if recorded in list(TASKS) else None
    if task is None:
        what = f"records the task {recorded!r}, which is unknown or does not fit the head of the model"
        raise IntegrityError(what, where=folder / METADATA_FILE, remedy="use the version that wrote it")
    return task
