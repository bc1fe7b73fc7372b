"""The base classes of settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bertmill.config.commands import FinetuneSettings, PretrainSettings
from bertmill.config.reading import read_settings
from bertmill.errors import UsageError
from bertmill.tasks import settings_for, with_options

FINETUNE = {"task": "tag", "model": "minilm", "train": "rows.conll"}


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (FinetuneSettings, FINETUNE, "tag"),
        (settings_for("tag"), FINETUNE, "tag"),
        (PretrainSettings, {"corpus": "corpus"}, "pretrain"),
    ],
)
def test_a_run_folder_is_named_after_the_task_and_the_time(
    kind: type[PretrainSettings], given: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda pattern: "2030-01-31-235959")
    first = kind.model_validate(given).out
    assert first == Path(f"runs/{name}-2030-01-31-235959")
    assert not Path("runs").exists()
    first.mkdir(parents=True)
    assert kind.model_validate(given).out == Path(f"{first}-2")
    assert kind.model_validate({**given, "out": "mine"}).out == Path("mine")


def test_the_time_in_the_name_sorts_like_the_time() -> None:
    assert re.fullmatch(r"tag-\d{4}-\d\d-\d\d-\d{6}", FinetuneSettings.model_validate(FINETUNE).out.name)


def test_the_name_does_not_change_when_the_options_of_the_task_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = FinetuneSettings.model_validate(FINETUNE)
    monkeypatch.setattr("time.strftime", lambda pattern: "later")
    assert with_options(settings).out == settings.out


def test_several_processes_need_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them would use the time of its own start."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="--out is required with several processes"):
        read_settings(FinetuneSettings, FINETUNE)
