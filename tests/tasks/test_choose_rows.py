"""Records, dialogues and passages come out of JSON, and a label means one of the choices."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import BadRowError
from bertmill.tasks.reading import RowCounts, read_labelled, right_choice
from bertmill.tasks.rows import read_rows

QUESTION = {"question": "Who?", "choice": ["A man.", "A dog."], "answer": "A dog."}


def write(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.parametrize(
    ("label", "choices", "right"),
    [
        ("dog", ["cat", "dog"], "dog"),
        (1, ["cat", "dog"], "dog"),
        ("1", ["cat", "dog"], "dog"),
        ("B", ["cat", "dog"], "dog"),
        ("1", ["1", "2"], "1"),  # a text before a number
        (1, ["1", "2"], "2"),
    ],
)
def test_a_label_is_a_text_a_number_or_a_letter(label: Any, choices: list[str], right: str) -> None:
    assert right_choice(label, choices) == right


@pytest.mark.parametrize("label", [2, -1, "2", "C", "AB", "", "bird", True, 0.0, ["cat"]])
def test_a_label_that_is_none_of_the_choices_is_a_bad_row(label: Any) -> None:
    with pytest.raises(BadRowError) as caught:
        right_choice(label, ["cat", "dog"])
    assert caught.value.reason == "label is none of the choices"
    assert "a number from 0 to 1" in str(caught.value.remedy)


@pytest.mark.parametrize("label", ["cat", 2, "C"])
def test_a_label_that_means_two_choices_is_a_bad_row(label: object) -> None:
    with pytest.raises(BadRowError, match="several choices are the same"):
        right_choice(label, ["cat", "dog", "cat"])


def test_dialogues_become_a_row_per_question(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", [[["M: Hi.", "W: Hello."], [QUESTION, QUESTION], "7-1"]])
    first, second = read_labelled(file)
    assert first == LabelledRow(
        f"{file}:1, dialogue 7-1, question 1", ("M: Hi.\nW: Hello.", "Who?"), "A dog.", ("A man.", "A dog.")
    )
    assert second.place == f"{file}:1, dialogue 7-1, question 2"


def test_a_list_of_records_is_read_like_lines_of_records(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", [{"text": "a\ud800", "label": 1}, {"text": "b", "label": 0}])
    assert list(read_labelled(file)) == [
        LabelledRow(f"{file}:1, record 1", ("a\ufffd",), "1"),
        LabelledRow(f"{file}:1, record 2", ("b",), "0"),
    ]


@pytest.mark.parametrize(
    ("entry", "place", "what"),
    [
        ([["a"], [QUESTION]], "dialogue 2", "is neither a record nor [[turn, …], [question, …], id]"),
        ([[1], [QUESTION], "x"], "dialogue 2", "is neither a record nor"),
        (3, "dialogue 2", "is neither a record nor"),
        ([["a"], ["why"], "x"], "dialogue x, question 1", "is not a JSON object (found: string)"),
        ([["a"], [{}], "x"], "dialogue x, question 1", "has no column 'question'"),
        ([[], [QUESTION], "x"], "dialogue x, question 1", "has an empty text in the column 'context'"),
        ([["a"], [QUESTION | {"choice": ["one"]}], "x"], "dialogue x, question 1", "has fewer than two choices"),
        (
            [["a"], [QUESTION | {"choice": "one"}], "x"],
            "dialogue x, question 1",
            "has a value of type str in the column 'choices'",
        ),
        ([["a"], [QUESTION | {"choice": None}], "x"], "dialogue x, question 1", "has an empty list of choices"),
        ([["a"], [QUESTION | {"answer": "Nobody."}], "x"], "dialogue x, question 1", "has the label 'Nobody.'"),
    ],
)
def test_bad_dialogues_are_told_or_counted(tmp_path: Path, entry: Any, place: str, what: str) -> None:
    good = [["a"], [QUESTION] * 40, "good"]
    file = write(tmp_path / "a.json", [good, entry])
    with pytest.raises(DataError) as caught:
        list(read_labelled(file))
    assert str(caught.value).startswith(f"{file}:1, {place}: {what}")
    counts = RowCounts()
    assert len(list(read_labelled(file, RowSettings(on_bad_row="skip"), counts))) == 40
    assert counts.num_skipped == 1


def test_the_line_of_a_question_is_told(tmp_path: Path) -> None:
    entries = [[["a"], [QUESTION], "good"], {"a": 1}, [["a"], [QUESTION, QUESTION | {"answer": 3}, "why"], "x"], 3]
    text = json.dumps(entries, indent=1)
    (tmp_path / "a.json").write_text(text)
    lines = text.splitlines()
    rows = list(read_rows(str(tmp_path / "a.json")))
    told = [int(row.place.removeprefix(f"{tmp_path}/a.json:").split(",")[0]) for row in rows]
    of_objects = [number for number, line in enumerate(lines, start=1) if line.strip() == "{"]
    list_of_questions, whole_file = of_objects[2] - 1, 1  # where a string and a number stand that have no line
    assert told == [*of_objects, list_of_questions, whole_file]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("3", "a.json: is not a list of records or dialogues (found: number); write a list"),
        ('{"a": 1}', "a.json: is an object, but not in the form of SQuAD"),
        ("[]", "a.json: there are no rows in it"),
        ('{"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b"}]}]}]}', "cannot tell which column is"),
    ],
)
def test_other_json_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError) as caught:
        list(read_labelled(str(tmp_path / "a.json")))
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "num_questions"), [("train", 6116), ("dev", 2040)])
def test_dream_is_read_whole(data: Path, name: str, num_questions: int) -> None:
    rows = list(read_labelled(str(data / f"dream/{name}.json")))
    assert len(rows) == num_questions
    assert {len(row.choices) for row in rows} == {3}
    assert all(row.label in row.choices and len(row.texts) == 2 for row in rows)
