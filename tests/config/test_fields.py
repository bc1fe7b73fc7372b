"""Types of settings: which values are accepted, how they are stored, and the errors for the rest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bertmill.config.fields import (
    Encoding,
    Heldout,
    MaskMix,
    MaxBadRows,
    Phases,
    Seconds,
    Separator,
    Threads,
    are_too_many,
    heldout_share,
    parse_mask_mix,
    parse_phases,
)


def parse(kind: Any, value: Any) -> Any:
    return TypeAdapter(kind).validate_python(value)


def problem(kind: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        parse(kind, value)
    return str(caught.value.errors()[0]["msg"])


@pytest.mark.parametrize("name", ["latin-1", "cp1252", "GB18030", "utf-16", "utf-16-le", "utf-8-sig", None])
def test_an_encoding_is_one_that_python_can_decode(name: str | None) -> None:
    assert parse(Encoding, name) == name


@pytest.mark.parametrize("name", ["", "klingon", "hex", "rot13", "idna", "undefined", "a\0b", "\ud800", "../x"])
def test_other_encodings_are_rejected(name: str) -> None:
    assert "must be a text encoding such as latin-1, cp1252, gb18030 or utf-16" in problem(Encoding, name)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[
            ("45", 45),
            ("45s", 45),
            ("30m", 1800),
            ("2h", 7200),
            ("1h30m", 5400),
            ("1h1m1s", 3661),
            ("1h5", 3605),
            (90, 90),
        ],
        *[("5min", 300), ("5 minutes", 300), ("1 hour", 3600), ("1.5h", 5400), ("1H 30 Min", 5400), ("10secs", 10)],
        *[("1hr2mins3sec", 3723), ("1 minute 30 seconds", 90), ("0.5 hours", 1800), (" 30 m ", 1800)],
    ],
)
def test_a_time_is_given_in_hours_minutes_and_seconds(text: str | int, seconds: int) -> None:
    assert parse(Seconds, text) == seconds


@given(hours=st.integers(0, 99), minutes=st.integers(0, 99), seconds=st.integers(1, 99))
def test_any_time_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int) -> None:
    assert parse(Seconds, f"{hours}h{minutes}m{seconds}s") == 3600 * hours + 60 * minutes + seconds


@pytest.mark.parametrize("text", ["m", "1d", "-5", "30m1h", "1.5", "5 mi", "1..5h", "nanh", "1e3m"])
def test_other_times_are_refused(text: str) -> None:
    assert problem(Seconds, text) == "Value error, must be a time such as 45s, 30m or 1h30m"


@pytest.mark.parametrize("text", ["0s", "", "9999999h", f"{'9' * 400}h"])
def test_a_time_is_positive_and_finite(text: str) -> None:
    assert problem(Seconds, text)


@pytest.mark.parametrize(
    ("text", "phases"),
    [("128", [(128, 1.0)]), ("128:0.9,512:0.1", [(128, 0.9), (512, 0.1)]), ("64:1", [(64, 1.0)])],
)
def test_phases_are_lengths_with_fractions(text: str, phases: list[tuple[int, float]]) -> None:
    assert parse_phases(text) == phases
    assert parse(Phases, text) == text


def test_a_length_may_be_a_number_in_a_file() -> None:
    assert parse(Phases, 128) == "128"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have the form"),
        ("a:1", "must have the form"),
        ("128:0.9;512:0.1", "must have the form"),
        ("0", "lengths must be from 1 to 8,192"),
        ("-5:1", "lengths must be from 1 to 8,192"),
        ("128:0.9,100000:0.1", "lengths must be from 1 to 8,192"),
        ("128:0.9,512:0.2", "add up to 1"),
        ("128,512", "add up to 1"),
        ("128:1.5,512:-0.5", "add up to 1"),
        ("128:nan,512:0.1", "add up to 1"),
    ],
)
def test_other_phases_are_refused(text: str, message: str) -> None:
    assert message in problem(Phases, text)


def test_a_mask_mix_is_three_percentages() -> None:
    assert parse_mask_mix("80/10/10") == (0.8, 0.1, 0.1)
    assert parse(MaskMix, "100/0/0") == "100/0/0"


@pytest.mark.parametrize("text", ["80/20", "80/10/5", "a/b/c", "", "120/-10/-10", "nan/10/10", "80/10/10/0"])
def test_other_mask_mixes_are_refused(text: str) -> None:
    assert "must " in problem(MaskMix, text)


@pytest.mark.parametrize(
    ("given", "stored", "fraction"),
    [
        ("0.1", "0.1", 0.1),
        ("1e-1", "0.1", 0.1),  # stored in one way, so that settings can be compared
        (0.25, "0.25", 0.25),
        ("dev.tsv", "dev.tsv", None),
        ("./0.5", "./0.5", None),
    ],
)
def test_held_out_data_is_a_fraction_or_a_file(given: Any, stored: str, fraction: float | None) -> None:
    assert parse(Heldout, given) == stored
    assert heldout_share(stored) == fraction


@pytest.mark.parametrize("given", ["1.5", "0", "1", "-0.1", "nan", 2])
def test_a_fraction_is_between_0_and_1(given: Any) -> None:
    message = f"must be a fraction between 0 and 1 or a file name; for a file named {given}, use ./{given}"
    assert message in problem(Heldout, given)


def test_held_out_data_is_not_empty() -> None:
    assert "must not be empty" in problem(Heldout, "")
    assert heldout_share(None) is None


@pytest.mark.parametrize(("given", "stored"), [("tab", "\t"), ("\\t", "\t"), ("\t", "\t"), (";", ";"), (" ", " ")])
def test_a_separator_is_one_character(given: str, stored: str) -> None:
    assert parse(Separator, given) == stored


@pytest.mark.parametrize("given", ["", "||", '"', "\n", "\r", "comma"])
def test_other_separators_are_refused(given: str) -> None:
    assert "must be a single character, or tab" in problem(Separator, given)


@pytest.mark.parametrize("given", [0, -1, 5000, "x"])
def test_threads_are_limited(given: Any) -> None:
    assert problem(Threads, given)


@pytest.mark.parametrize(
    ("limit", "count", "total", "expected"),
    [
        ("5%", 5, 100, False),
        ("5%", 6, 100, True),
        ("7%", 7, 100, False),  # 0.07 * 100 is more than 7 in floating point, 0.29 * 100 is less than 29
        ("29%", 29, 100, False),
        ("0.5%", 5, 1000, False),
        ("100%", 7, 7, False),
        ("0", 0, 9, False),
        ("0", 1, 9, True),
        ("20", 21, 10**9, True),
    ],
)
def test_bad_rows_are_limited_by_a_number_or_a_percentage(limit: str, count: int, total: int, expected: bool) -> None:
    assert parse(MaxBadRows, limit) == limit
    assert are_too_many(count, limit, total) == expected


@pytest.mark.parametrize("limit", ["", "%", "-1", "101%", "5.5", "1e3", "٣", "100.5%", "5 %", "9" * 400])
def test_other_limits_on_bad_rows_are_refused(limit: str) -> None:
    assert problem(MaxBadRows, limit) == "Value error, must be a number of rows such as 20, or a percentage such as 5%"
