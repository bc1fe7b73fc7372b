"""Suggestions for unknown names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import COMMAND_SETTINGS
from bertmill.config.reading import flag_of, key_of
from bertmill.config.suggestions import _OTHER_NAMES, _distance, suggestion

TASKS = ["classify", "regress", "choose", "tag", "answer"]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *[("clasify", "classify"), ("classfiy", "classify"), ("Classify", "classify"), ("classification", "classify")],
        *[("regression", "regress"), ("tga", "tag"), ("tagging", "tag"), ("anser", "answer"), ("ner", "tag")],
    ],
)
def test_a_misspelled_or_longer_name_is_recognized(word: str, meant: str) -> None:
    assert suggestion(word, TASKS) == f"; did you mean {meant}?"


@pytest.mark.parametrize("word", ["parse", "", "gpt", "taxonomy", "--", "x" * 10_000])
def test_another_word_gets_no_suggestion(word: str) -> None:
    assert suggestion(word, TASKS) == ""


def test_the_longest_common_beginning_wins() -> None:
    assert suggestion("--device-index", ["--dev", "--device", "--dropout"]) == "; did you mean --device?"


def test_the_names_of_other_tools_lead_to_settings() -> None:
    known = {
        key_of(*item).replace("_", "-") for kind in COMMAND_SETTINGS.values() for item in kind.model_fields.items()
    }
    known |= {"top-k", *TASKS, *COMMAND_SETTINGS}  # top-k is an option of tasks
    assert {name for names in _OTHER_NAMES.values() for name in names} <= known


LETTERS = st.text("abc", max_size=6)


@given(LETTERS, LETTERS, LETTERS)
def test_the_distance_is_symmetric_and_counts_single_changes(first: str, second: str, between: str) -> None:
    assert _distance(first, second) == _distance(second, first)
    assert (_distance(first, second) == 0) == (first == second)
    assert _distance(first + between + second, first + second) == len(between)
    assert _distance(first + "xy" + second, first + "yx" + second) == 1
    assert abs(len(first) - len(second)) <= _distance(first, second) <= max(len(first), len(second))


@pytest.mark.parametrize("word", ["--text-column", "--label", "--labels", "--label-col", "--target", "--column"])
@pytest.mark.parametrize("command", ["finetune", "evaluate", "predict"])
def test_the_name_of_a_column_leads_to_columns(command: str, word: str) -> None:
    flags = [flag_of(*item) for item in COMMAND_SETTINGS[command].model_fields.items()]
    assert suggestion(word, flags) == "; did you mean --columns?"
