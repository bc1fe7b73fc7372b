"""Columns are classified by their values, and suggestions name columns of the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.rows.columns import parse_columns
from bertmill.rows.suggestions import PLACEHOLDER, Kind, RequiredFields, Sample, is_name, kind_of, looks_like_header
from tests.rows.factory import suggested_columns

TEXTS = [f"the quick fox number {number}" for number in range(8)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (TEXTS, "text"),
        (TEXTS * 3, "text"),  # premises are repeated
        (["今天天气很好", "我们去吃饭吧"] * 2, "text"),
        (["yes", "no"] * 4, "label"),
        (["教育培训", "体育新闻"] * 10, "label"),
        (["not at all", "very much so", "I do not know"] * 10, "label"),
        (["1", "2", "3"] * 4, "label"),
        (["1.5", "2.25", "3", "4"], "label"),
        ([str(number) for number in range(9)], "other"),  # ids
        (["same"] * 9, "other"),
        (["2020-01-02", "2020-01-03 10:00"] * 5, "other"),
        ([f"http://example.org/{number}" for number in range(9)], "other"),
        ([f"file-{number}.txt" for number in range(9)], "other"),
    ],
)
def test_columns_are_classified_by_their_values(values: list[str], kind: Kind) -> None:
    assert kind_of(values) == kind


@pytest.mark.parametrize(
    ("first", "others", "expected"),
    [
        (["clase", "comentario"], [["ham", text] for text in TEXTS], True),
        (["clase", "comentario"], [["ham", "ok"], ["spam", "no"]] * 4, True),  # repeated labels
        (["puntos", "comentario"], [["1", "ok"], ["2", "no"]], True),  # numbers
        (["comentario"], [[text] for text in TEXTS], True),
        (["text", "x"], [], True),
        (["a", "text"], [["b", "c"]], True),
        (["", "text"], [["0", "c"]], True),  # the index of pandas
        (["ham", "hello"], [["spam", text] for text in TEXTS] + [["ham", "x"]], False),  # the label occurs again
        (["1", "comentario"], [["2", text] for text in TEXTS], False),
        (["clase", "This is a text."], [["ham", text] for text in TEXTS], False),
        ([TEXTS[0], "ham"], [[text, "spam"] for text in TEXTS[1:]], False),
        (["hello you"], [["and you"]], False),
        (["hello you", "x"], [["and you", "y"]], False),
        (["0", "1"], [["ham", text] for text in TEXTS], True),  # pandas
        (["1", "2", "3"], [["ham", text, "x"] for text in TEXTS], True),
        (["0", "1"], [["1", "2"], ["3", "4"]], False),
        (["0", "1"], [], False),
        ([""], [], False),
        ([], [], False),
    ],
)
def test_a_header_has_names_above_values(first: list[str], others: list[list[str]], expected: bool) -> None:
    assert looks_like_header(first, others) == expected


@pytest.mark.parametrize("cell", ["label", "#1 String", "review body", "q_1", "情感"])
def test_names_are_short(cell: str) -> None:
    assert is_name(cell)


@pytest.mark.parametrize("cell", ["3", "1.5", "Hello.", "你好。", "a|b", "x" * 41, "this is a whole sentence"])
def test_texts_and_numbers_are_no_names(cell: str) -> None:
    assert not is_name(cell)


def test_columns_that_cannot_be_selected_are_left_out() -> None:
    sample = Sample.of_table(["", "a", "b", "b"], [["0", "x", "y", "z"]], has_header=True)
    assert str(sample) == "a = 'x'"


def test_columns_with_the_same_name_must_be_renamed_if_they_may_be_meant() -> None:
    rows = [["a text of words", "another text here", str(number % 2)] for number in range(6)]
    sample = Sample.of_table(["text", "text", "label"], rows, has_header=True)
    assert sample.remedy(RequiredFields(label=True)) == "rename columns that have the same name: text"
    sample = Sample.of_table(["x", "x", "text", "label"], [["", "", *row[1:]] for row in rows], has_header=True)
    assert sample.remedy(RequiredFields(label=True)) == "set `columns='text=text,label=label'`"


def test_long_lists_of_columns_are_shortened() -> None:
    sample = Sample.of_table([f"c{number}" for number in range(30)], [["x" * 50] * 30], has_header=True)
    assert str(sample).startswith(f"c0 = '{'x' * 30}…', c1 = ")
    assert str(sample).endswith(f"c19 = '{'x' * 30}…', and 10 more")


CELLS = st.text(max_size=3) | st.sampled_from(
    ["1", "2.5", "yes", *TEXTS, "text", "label", "sentence1", "sentence2", "A", "B"]
)


@given(
    table=st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=6)
    ),
    required=st.builds(RequiredFields, st.booleans(), st.booleans()),
    has_header=st.booleans(),
)
def test_suggestions_can_be_parsed_and_name_columns_of_the_file(
    table: list[list[str]], required: RequiredFields, has_header: bool
) -> None:
    sample = Sample.of_table(table[0], table[1:], has_header=has_header)
    remedy = sample.remedy(required)
    if remedy.startswith("rename "):
        return
    setting = suggested_columns(remedy)
    if PLACEHOLDER not in setting:
        columns = parse_columns(setting)
        assert set(columns.names) <= set(sample.values)
        assert columns.has_header == has_header
        assert (columns.label is not None, bool(columns.choices)) == required
