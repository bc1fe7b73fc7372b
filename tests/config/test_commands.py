"""The settings of commands: every field is documented, and fields that contradict each other are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bertmill.cli.main import COMMANDS
from bertmill.config.commands import (
    COMMAND_SETTINGS,
    FinetuneSettings,
    PredictSettings,
    PretrainSettings,
    RowSettings,
)
from bertmill.config.fields import MAY_CHANGE, MAY_MOVE, NAME_OR_PATH, PATH
from bertmill.config.reading import key_of, read_settings
from bertmill.config.settings import Settings
from bertmill.config.training_settings import TrainingSettings
from bertmill.errors import UsageError
from bertmill.tasks import TASKS, settings_for

FINETUNE = {"task": "classify", "model": "minilm", "train": "rows.tsv", "out": "run"}
PRETRAIN = {"corpus": "corpus", "out": "run"}
ALWAYS_CHANGEABLE = {
    *("quiet", "out", "resume", "log_every", "save_every", "keep", "on_nonfinite", "gradient_checkpointing", "compile"),
    *("device", "threads", "keep_checkpoints"),
}


def test_every_command_has_settings_and_a_description() -> None:
    assert COMMAND_SETTINGS.keys() == COMMANDS.keys()
    for kind in COMMAND_SETTINGS.values():
        assert kind.__doc__
        assert kind.__doc__ != Settings.__doc__


@pytest.mark.parametrize("kind", [*COMMAND_SETTINGS.values(), *map(settings_for, TASKS)])
def test_every_field_has_a_description_and_a_unique_key(kind: type[Settings]) -> None:
    keys = [key_of(name, field) for name, field in kind.model_fields.items()]
    assert len(set(keys)) == len(keys)
    assert all(field.description for field in kind.model_fields.values())
    assert not {"config", "help", "command"} & set(keys)  # these are reserved


@pytest.mark.parametrize("kind", [PretrainSettings, FinetuneSettings])
def test_required_settings_are_not_optional(kind: type[TrainingSettings]) -> None:
    for field in kind.model_fields.values():
        if field.is_required():
            assert type(None) not in getattr(field.annotation, "__args__", ())


@pytest.mark.parametrize("task", TASKS)
def test_options_of_a_task_do_not_replace_settings_of_the_command(task: str) -> None:
    joined = settings_for(task)
    assert issubclass(joined, FinetuneSettings)
    for name, field in FinetuneSettings.model_fields.items():
        assert joined.model_fields[name].annotation == field.annotation
        assert joined.model_fields[name].metadata == field.metadata


@pytest.mark.parametrize(
    ("kind", "may_change", "may_move"),
    [
        (PretrainSettings, ALWAYS_CHANGEABLE | {"eval_every", "workers"}, {"corpus", "init"}),
        (FinetuneSettings, ALWAYS_CHANGEABLE, {"model", "train", "dev", "tags", "dev_tags"}),
        (settings_for("classify"), ALWAYS_CHANGEABLE, {"model", "train", "dev", "tags", "dev_tags"}),
    ],
)
def test_the_fields_that_may_change_when_a_run_is_resumed(
    kind: type[TrainingSettings], may_change: set[str], may_move: set[str]
) -> None:
    def marked(marker: str) -> set[str]:
        return {name for name, field in kind.model_fields.items() if marker in field.metadata}

    assert marked(MAY_CHANGE) == may_change
    assert marked(MAY_MOVE) == may_move
    assert may_move <= marked(PATH) | marked(NAME_OR_PATH)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steps": 10, "epochs": 2}, "--steps and --epochs are mutually exclusive"),
        ({"steps": 10, "budget": "1h", "epochs": 1}, "--steps and --epochs and --budget are mutually exclusive"),
        ({"steps": 0}, "--steps: .*greater than or equal to 1"),
        ({"length": "x"}, "--length: must have the form 128"),
        ({"heldout": "1.5"}, "--heldout: must be a fraction between 0 and 1"),
    ],
)
def test_wrong_settings_of_pretrain_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(PretrainSettings, {**PRETRAIN, **given})


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("classify", {"multi_label": True, "label_smoothing": 0.1}, "cannot be used with --multi-label"),
        ("classify", {"multi_label": True, "class_weights": "balanced"}, "cannot be used with --multi-label"),
        ("classify", {"label_smoothing": 1}, "--label-smoothing: .*less than 1"),
        ("classify", {"dev": "1.5"}, "--dev: must be a fraction between 0 and 1"),
        ("regress", {"seeds": 0}, "--seeds: "),
        ("regress", {"quotes": "auto"}, "--quotes: .*'literal' or 'standard'"),
        ("regress", {"separator": "::"}, "--separator: must be a single character, or tab"),
        ("regress", {"on_bad_row": "ignore"}, "--on-bad-row: .*'stop' or 'skip'"),
    ],
)
def test_wrong_settings_of_finetune_are_refused(task: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(settings_for(task), {**FINETUNE, "task": task, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give either a file"),
        ({"file": "-", "text": "a"}, "give either a file"),
        ({"file": "-", "pair": "a"}, "need --text"),
        ({"file": "-", "question": "a"}, "need --text"),
        ({"file": "-", "choice": ["a", "b"]}, "need --text"),
    ],
)
def test_wrong_settings_of_predict_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(PredictSettings, {"model": "run/model", **given})


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("finetune", {**FINETUNE, "seeds": "1000000000000"}),
        ("inspect", {"folder": "corpus", "length": "1000000000"}),
        ("inspect", {"folder": "corpus", "show": "1000000000"}),
    ],
)
def test_numbers_that_need_gigabytes_are_refused(command: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="less than or equal to"):
        read_settings(COMMAND_SETTINGS[command], given)


def test_rows_are_read_with_the_defaults_of_their_format() -> None:
    settings = RowSettings()
    assert (settings.format, settings.separator, settings.quotes, settings.on_bad_row) == (None, None, None, "stop")


@pytest.mark.parametrize(
    "given",
    [{"tags": "seq.out", "dev": "dev.in"}, {"dev_tags": "dev.out"}, {"tags": "seq.out", "dev_tags": "dev.out"}],
)
def test_the_tags_of_train_and_dev_files_are_given_together(given: dict[str, str]) -> None:
    with pytest.raises(
        UsageError, match="--dev-tags is required if --tags is given and --dev is a file, and not allowed"
    ):
        read_settings(FinetuneSettings, {**FINETUNE, **given})


def test_parallel_files_are_settings_of_the_task_that_reads_them() -> None:
    for task in TASKS:
        is_read = "tags" not in getattr(settings_for(task), "unused", ())
        assert is_read == (task == "tag")


def test_a_limit_on_bad_rows_is_refused_if_they_are_not_skipped() -> None:
    with pytest.raises(UsageError, match="--max-bad-rows needs --on-bad-row skip"):
        read_settings(COMMAND_SETTINGS["finetune"], {**FINETUNE, "max_bad_rows": "10"})
    given = {**FINETUNE, "max_bad_rows": 10, "on_bad_row": "skip"}
    assert read_settings(FinetuneSettings, given).max_bad_rows == "10"
