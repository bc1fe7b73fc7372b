"""Rows of choose: read from tables, records and DREAM's dialogues; a label names one of the choices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertmill.errors import DataError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.choose import ChoiceRow, Choose, right_choice
from tests.rows.factory import row_file, write, write_records

QUESTION = {"question": "Who?", "choice": ["A man.", "A dog."], "answer": "A dog."}


def read(file: RowFile, *, labeled: bool = True) -> list[ChoiceRow]:
    return list(Choose.read(file, TaskOptions(), labeled=labeled))


def write_json(path: Path, content: Any, indent: int | None = None) -> str:
    return write(path, json.dumps(content, indent=indent))


# The correct choice


@pytest.mark.parametrize(
    ("label", "choices", "right"),
    [
        ("dog", ["cat", "dog"], 1),
        (1, ["cat", "dog"], 1),
        ("1", ["cat", "dog"], 1),
        (" 1 ", ["cat", "dog"], 1),
        ("B", ["cat", "dog"], 1),
        ("1", ["1", "2"], 0),  # a text takes precedence over a number
        (1, ["1", "2"], 1),
    ],
)
def test_a_label_is_a_text_a_number_or_a_letter(label: Any, choices: list[str], right: int) -> None:
    assert right_choice(label, choices) == right


@pytest.mark.parametrize("label", [2, -1, "2", "C", "AB", "bird", True, 0.0, ["cat"]])
def test_a_label_that_matches_no_choice_is_a_bad_row(label: Any) -> None:
    with pytest.raises(BadRowError) as caught:
        right_choice(label, ["cat", "dog"])
    assert caught.value.reason == "label is not a choice"
    assert "a number from 0 to 1" in str(caught.value.remedy)


@pytest.mark.parametrize("label", ["", None, " ", float("nan")])
def test_an_empty_label_is_a_bad_row(label: Any) -> None:
    with pytest.raises(BadRowError, match="the label is empty"):
        right_choice(label, ["cat", "dog"])


@pytest.mark.parametrize("label", ["cat", 2, "C"])
def test_a_label_that_matches_two_choices_is_a_bad_row(label: object) -> None:
    with pytest.raises(BadRowError, match="matches several identical choices"):
        right_choice(label, ["cat", "dog", "cat"])


# Tables and records


def test_swag_is_read_with_and_without_its_preset(tmp_path: Path) -> None:
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
    line = '0,anet,3416,"One, two",He stands.,"He ""waits"", and",gold,sits.,"runs, far.",flies.,swims.,1'
    path = write(tmp_path / "a.csv", f"{header}\n{line}\n")
    texts, choices = ("He stands.", 'He "waits", and'), ("sits.", "runs, far.", "flies.", "swims.")
    assert read(row_file(path, preset="swag")) == read(row_file(path)) == [ChoiceRow(f"{path}:2", texts, choices, 1)]


def test_choices_are_read_from_records(tmp_path: Path) -> None:
    record = {"context": "c", "question": "q", "choices": ["a", "b"], "answer": 1}
    path = write_records(tmp_path / "a.jsonl", record)
    (row,) = read(row_file(path))
    assert row == ChoiceRow(f"{path}:1", ("c", "q"), ("a", "b"), 1)
    assert row.all_texts == ("c", "q", "a", "b")
    assert row.fields() == {"text": "c", "pair": "q", "choices": ["a", "b"]}


def test_the_label_is_not_checked_for_prediction(tmp_path: Path) -> None:
    hidden = {"context": "c", "choices": ["a", "b"], "answer": -1}  # as in the test rows of SWAG
    path = write_records(tmp_path / "a.jsonl", hidden)
    assert read(row_file(path), labeled=False) == [ChoiceRow(f"{path}:1", ("c",), ("a", "b"))]


def test_a_json_list_is_read_like_jsonl(tmp_path: Path) -> None:
    record = {"text": "a\ud800", "choices": ["x", "y"], "label": 1}
    path = write_json(tmp_path / "a.json", [record, record | {"text": "b"}])
    assert read(row_file(path)) == [
        ChoiceRow(f"{path}:1, record 1", ("a\ufffd",), ("x", "y"), 1),
        ChoiceRow(f"{path}:1, record 2", ("b",), ("x", "y"), 1),
    ]


# DREAM


def test_each_question_of_a_dialogue_is_a_row(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", [[["M: Hi.", "W: Hello."], [QUESTION, QUESTION], "7-1"]])
    first, second = read(row_file(path))
    assert first == ChoiceRow(
        f"{path}:1, dialogue 7-1, question 1", ("M: Hi.\nW: Hello.", "Who?"), ("A man.", "A dog."), 1
    )
    assert second.place == f"{path}:1, dialogue 7-1, question 2"
    assert (first.id, second.id) == (1, 2)
    path = write_json(tmp_path / "b.json", [[["a"], [{"question": "q", "choice": ["b", "c"]}], 1]])
    with pytest.raises(DataError, match=r"dialogue 1, question 1: cannot tell which columns hold the text and the lab"):
        read(row_file(path))
    assert len(read(row_file(path), labeled=False)) == 1


@pytest.mark.parametrize(
    ("entry", "place", "what"),
    [
        ([["a"], [QUESTION]], "dialogue 2", "expected a dialogue: [[turn, …], [question, …], id]"),
        ([[1], [QUESTION], "x"], "dialogue 2", "expected a dialogue"),
        (3, "dialogue 2", "expected a dialogue"),
        ({"text": "a"}, "dialogue 2", "expected a dialogue"),
        ([["a"], ["why"], "x"], "dialogue x, question 1", "expected a JSON object, found a string"),
        ([["a"], [{}], "x"], "dialogue x, question 1", "this row has no column 'question'"),
        ([[], [QUESTION], "x"], "dialogue x, question 1", "the field 'text' is empty"),
        (
            [["a"], [QUESTION | {"choice": ["one"]}], "x"],
            "dialogue x, question 1",
            "the field 'choices' needs at least two texts",
        ),
        (
            [["a"], [QUESTION | {"choice": ["b", " "]}], "x"],
            "dialogue x, question 1",
            "the field 'choices' needs at least two",
        ),
        ([["a"], [QUESTION | {"choice": "b"}], "x"], "dialogue x, question 1", "the field 'choices' must be a list"),
        ([["a"], [QUESTION | {"choice": None}], "x"], "dialogue x, question 1", "the field 'choices' is missing"),
        ([["a"], [QUESTION | {"answer": "A cat."}], "x"], "dialogue x, question 1", "the label 'A cat.' matches none"),
    ],
)
def test_bad_dialogues_stop_reading_or_are_counted(tmp_path: Path, entry: Any, place: str, what: str) -> None:
    path = write_json(tmp_path / "a.json", [[["a"], [QUESTION] * 40, "good"], entry])
    with pytest.raises(DataError) as caught:
        read(row_file(path))
    assert str(caught.value).startswith(f"{path}:1, {place}: {what}")
    file = row_file(path, on_bad_row="skip")
    assert len(read(file)) == 40
    assert file.counts.skipped.total() == 1


def test_a_message_names_the_line_of_a_question(tmp_path: Path) -> None:
    entries = [[["a"], [QUESTION] * 40, "good"], [["a"], [QUESTION, QUESTION | {"answer": 3}], "x"]]
    path = write_json(tmp_path / "a.json", entries, indent=1)
    lines = Path(path).read_text().splitlines()
    last_object = max(number for number, line in enumerate(lines, start=1) if line.strip() == "{")
    with pytest.raises(DataError, match=rf"a\.json:{last_object}, dialogue x, question 2: the label 3 matches none"):
        read(row_file(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3", "a.json: expected a list of records (found: number); write a list"),
        ('{"a": 1}', "a.json:1, record 1: cannot tell which columns hold the text and the label: a = '1'"),
        ("[]", "a.json: the file has no rows"),
    ],
)
def test_other_json_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(row_file(write(tmp_path / "a.json", content)))
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "num_questions"), [("train", 6116), ("dev", 2040)])
def test_dream_is_read_completely(data: Path, name: str, num_questions: int) -> None:
    rows = read(row_file(data / f"dream/{name}.json"))
    assert len(rows) == num_questions
    assert {len(row.choices) for row in rows} == {3}
    assert all(row.right is not None and len(row.texts) == 2 for row in rows)
