"""Common names of columns are recognised in any case; where two answers are possible, there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.rows.column_names import KnownNames, find_known_names, is_known_name


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Label", "SMS"], KnownNames("SMS", None, "Label", ())),
        (["id", " Review ", "class"], KnownNames(" Review ", None, "class", ())),
        (["premise", "hypothesis", "gold"], KnownNames("premise", "hypothesis", "gold", ())),
        (["question", "sentence", "label"], KnownNames("question", "sentence", "label", ())),
        (["Quality", "#1 String", "#2 String"], KnownNames("#1 String", "#2 String", "Quality", ())),
        (["question", "label"], KnownNames("question", None, "label", ())),
        (["text", "review", "label"], KnownNames(None, None, "label", ())),  # two texts
        (["text", "label", "score"], KnownNames("text", None, None, ())),  # two labels
        (["Text", "text", "label"], KnownNames(None, None, "label", ())),  # one name twice
        (["text", "pair", "premise", "hypothesis"], KnownNames(None, None, None, ())),  # two pairs
        (["a", "b"], KnownNames(None, None, None, ())),
    ],
)
def test_texts_pairs_and_labels_are_recognised_if_there_is_one_answer(names: list[str], expected: KnownNames) -> None:
    assert find_known_names(names) == expected


@pytest.mark.parametrize(
    ("names", "lists", "choices"),
    [
        (["sent1", "ending0", "ending1"], [], ("ending0", "ending1")),
        (["question", "Option A", "option_b"], [], ("Option A", "option_b")),
        (["question", "choice1"], [], ()),  # one is not a choice
        (["question", "options"], ["options"], ("options",)),
        (["question", "options"], [], ()),  # it holds no list
        (["question", "choices", "endings"], ["choices", "endings"], ()),
    ],
)
def test_choices_are_several_columns_or_a_list(names: list[str], lists: list[str], choices: tuple[str, ...]) -> None:
    assert find_known_names(names, lists).choices == choices


@given(names=st.lists(st.text("textlab 12SMS", max_size=6)))
def test_only_names_of_the_file_are_found(names: list[str]) -> None:
    known = find_known_names(names)
    for name in (known.text, known.pair, known.label):
        assert name is None or (name in names and is_known_name(name))


@pytest.mark.parametrize(("cell", "is_known"), [(" Sentence1 ", True), ("GOLD_LABEL", True), ("A text.", False)])
def test_a_cell_may_be_a_known_name(cell: str, is_known: bool) -> None:
    assert is_known_name(cell) == is_known
