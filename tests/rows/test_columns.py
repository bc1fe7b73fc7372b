"""Columns are parsed from settings, or recognized by common names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import RowSettings
from bertmill.errors import UsageError
from bertmill.rows.columns import Columns, given_columns, parse_columns, recognize_columns

# Columns from settings


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("text=sentence,label=label", Columns("sentence", label="label")),
        ("text=4,label=2", Columns("4", label="2", has_header=False)),
        ("text=4,label=y2", Columns("4", label="y2")),
        (" text = #1 String , pair=a=b ", Columns("#1 String", "a=b")),
        ("text=ctx,pair=stem,choices=a+b+c,label=answer", Columns("ctx", "stem", "answer", ("a", "b", "c"))),
        ("text=q,choices=options", Columns("q", choices=("options",))),
    ],
)
def test_columns_are_given_by_name_or_by_number(text: str, columns: Columns) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`columns=''` is invalid at ''"),
        ("sentence", "is invalid at 'sentence'; write KEY=COLUMN,… with each of text, pair, label, choices"),
        ("text=a,txt=b", "is invalid at 'txt=b'"),
        ("text=a,text=b", "is invalid at 'text=b'"),
        ("text=", "is invalid at 'text='"),
        ("label=a", "does not name a text; add text=COLUMN"),
        ("text=a,label=a", "repeats a column"),
        ("text=a,choices=b++c", "or has an empty name"),
        ("text=0,label=1", "column numbers start at 1"),
    ],
)
def test_columns_that_cannot_be_parsed_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_columns(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "setting"),
    [
        (Columns("sentence", label="label"), "text=sentence,label=label"),
        (Columns("评论", "antwort_2", "y", ("a", "b")), "text=评论,pair=antwort_2,label=y,choices=a+b"),
        (Columns("#1 String"), "text=#1 String"),
        (Columns("4", label="2", has_header=False), "text=4,label=2"),
    ],
)
def test_columns_are_written_as_a_setting(columns: Columns, setting: str) -> None:
    assert columns.setting == setting
    assert parse_columns(setting) == columns


def test_presets_and_columns_cannot_be_combined() -> None:
    assert given_columns(RowSettings(preset="cola")) == Columns("4", label="2", has_header=False)
    assert given_columns(RowSettings()) is None
    with pytest.raises(UsageError, match="`columns` and `preset` cannot be used together"):
        given_columns(RowSettings(columns="text=a", preset="cola"))
    with pytest.raises(UsageError, match=r"there is no preset called 'sst3'; did you mean sst2\?; known: sst2, cola"):
        given_columns(RowSettings(preset="sst3"))


# Common names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Label", "SMS"], Columns("SMS", label="Label")),
        (["id", " Review ", "class"], Columns(" Review ", label="class")),
        (["premise", "hypothesis", "gold"], Columns("premise", "hypothesis", "gold")),
        (["question", "sentence", "label"], Columns("question", "sentence", "label")),
        (["Quality", "#1 String", "#2 String"], Columns("#1 String", "#2 String", "Quality")),
        (["question", "label"], Columns("question", label="label")),
        (["text", "review", "label"], None),  # two texts
        (["text", "label", "score"], Columns("text")),  # two labels
        (["Text", "text", "label"], None),  # a repeated name
        (["text", "pair", "premise", "hypothesis"], None),  # two pairs
        (["a", "b"], None),
    ],
)
def test_texts_pairs_and_labels_are_recognized_if_they_are_unambiguous(
    names: list[str], expected: Columns | None
) -> None:
    assert recognize_columns(names) == expected
    assert recognize_columns(names, labeled=True) == (expected if expected and expected.label else None)


@pytest.mark.parametrize(
    ("names", "lists", "choices"),
    [
        (["sent1", "sent2", "ending0", "ending1"], [], ("ending0", "ending1")),
        (["question", "Option A", "option_b"], [], ("Option A", "option_b")),
        (["question", "choice1"], [], ()),  # a single column is not a set of choices
        (["question", "options"], ["options"], ("options",)),
        (["question", "options"], [], ()),  # not a list
        (["question", "choices", "endings"], ["choices", "endings"], ()),
    ],
)
def test_choices_are_recognized_in_several_columns_or_a_list(
    names: list[str], lists: list[str], choices: tuple[str, ...]
) -> None:
    columns = recognize_columns(names, lists)
    assert columns is not None
    assert columns.choices == choices


@given(names=st.lists(st.text("textlab 12SMS", max_size=6)))
def test_recognized_columns_are_columns_of_the_file(names: list[str]) -> None:
    columns = recognize_columns(names)
    assert columns is None or set(columns.names) <= set(names)
