"""Words on the command line become settings, wherever the flags stand."""

from __future__ import annotations

import pytest

from bertmill.cli.flags import settings_from_words
from bertmill.config.commands import FillSettings, FinetuneSettings, PredictSettings
from bertmill.errors import UsageError


@pytest.mark.parametrize(
    "words",
    [
        ["model", "--top-k", "3", "one [MASK]", "two [MASK]"],
        ["--top-k", "3", "model", "one [MASK]", "two [MASK]"],
        ["model", "one [MASK]", "two [MASK]", "--top-k", "3"],
        ["model", "one [MASK]", "--top-k", "3", "two [MASK]"],
    ],
)
def test_flags_may_stand_anywhere_among_arguments(words: list[str]) -> None:
    settings = settings_from_words("fill", FillSettings, words)
    assert settings is not None
    assert (settings.model, settings.texts, settings.top_k) == ("model", ["one [MASK]", "two [MASK]"], 3)


def test_an_argument_may_be_left_out() -> None:
    settings = settings_from_words("predict", PredictSettings, ["model", "--text", "a film"])
    assert settings is not None
    assert settings.file is None
    given = settings_from_words("predict", PredictSettings, ["model", "--quiet", "rows.tsv"])
    assert given is not None
    assert given.file == "rows.tsv"


def test_one_argument_too_many_is_told() -> None:
    with pytest.raises(UsageError, match="'three' is one argument too many"):
        settings_from_words("predict", PredictSettings, ["model", "rows.tsv", "three"])


@pytest.mark.parametrize("flag", ["--epochs", "--learning-rate", "--weight-decay"])
def test_numbers_are_finite(flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag}: .*finite"):
        settings_from_words("finetune", FinetuneSettings, ["classify", flag, "inf"])


def test_one_choice_is_none() -> None:
    with pytest.raises(UsageError, match="--choice must be given at least twice"):
        settings_from_words("predict", PredictSettings, ["model", "--text", "a", "--choice", "b"])
