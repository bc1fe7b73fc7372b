"""Labels become text; an invalid label is a bad row."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.labels import are_many_numbers, as_number, is_empty, label_text, require_printable


@pytest.mark.parametrize(
    ("value", "text"),
    [("x", "x"), (" x y ", "x y"), (3, "3"), (0.5, "0.5"), (True, "true"), (False, "false"), ("北京", "北京")],
)
def test_a_label_becomes_text_without_surrounding_spaces(value: Any, text: str) -> None:
    assert label_text(value) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "empty label"),
        (" \u3000", "empty label"),
        (None, "empty label"),
        (math.nan, "empty label"),
        ({}, "wrong type"),
        (["a"], "wrong type"),
        ("a\u200bb", "unprintable label"),
        ("a\tb", "unprintable label"),
    ],
)
def test_an_invalid_label_is_a_bad_row(value: Any, reason: str) -> None:
    with pytest.raises(BadRowError) as caught:
        label_text(value)
    assert caught.value.reason == reason


def test_the_message_escapes_unprintable_characters() -> None:
    with pytest.raises(BadRowError, match=r"the label 'a\\u200bb' contains unprintable characters; remove them"):
        require_printable("a\u200bb")
    assert require_printable("a b") == "a b"


@given(number=st.floats(allow_nan=False))
def test_the_text_of_a_number_is_parsed_as_the_same_number(number: float) -> None:
    assert as_number(str(number)) == number


@pytest.mark.parametrize("label", ["", "x", "1_000", "1,5", "nan", "0x10"])
def test_other_text_is_parsed_as_nan(label: str) -> None:
    assert math.isnan(as_number(label))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (list(map(str, range(21))), True),
        (list(map(str, range(20))), False),
        ([*map(str, range(30)), "other"], False),
        ([*map(str, range(30)), "inf"], False),
    ],
)
def test_many_different_numbers_look_like_values(labels: list[str], expected: bool) -> None:
    assert are_many_numbers(labels) == expected


@pytest.mark.parametrize(("value", "expected"), [(None, True), ("\n", True), (math.nan, True), (0, False), ([], False)])
def test_none_whitespace_and_nan_are_empty(value: Any, expected: bool) -> None:
    assert is_empty(value) == expected
