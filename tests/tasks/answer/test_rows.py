"""Tests for reading questions from SQuAD's JSON and from records, and for locating answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import DataError, UsageError
from bertmill.rows.source import RowFile
from bertmill.tasks.answer.rows import NEAR, QuestionRow, locate_answer, read_questions

PASSAGE = "The capital of France is Paris."


def squad(*questions: Any) -> dict[str, Any]:
    return {"version": "2.0", "data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": list(questions)}]}]}


def write(path: Path, content: Any) -> RowFile:
    text = "".join(json.dumps(line) + "\n" for line in content) if path.suffix == ".jsonl" else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return RowFile(str(path))


def read(path: Path, content: Any, *, labeled: bool = True) -> list[QuestionRow]:
    return list(read_questions(write(path, content), labeled))


def test_both_versions_of_squad_are_read(tmp_path: Path) -> None:
    answers = [{"text": "Paris", "answer_start": 25}, {"text": "Paris", "answer_start": 25}]
    answers.append({"text": "France is Paris", "answer_start": 15})
    rows = read(
        tmp_path / "a.json",
        squad(
            {"id": "q1", "question": "What is it?", "answers": answers},
            {"id": "q2", "question": "Who?", "answers": [], "is_impossible": True, "plausible_answers": answers},
        ),
    )
    place = f"{tmp_path}/a.json:1, question"
    assert rows == [
        QuestionRow(f"{place} q1", ("What is it?", PASSAGE), ((25, 30), (15, 30))),
        QuestionRow(f"{place} q2", ("Who?", PASSAGE), ()),
    ]
    assert [row.id for row in rows] == ["q1", "q2"]
    assert rows[0].answer_texts == ("Paris", "France is Paris")


def test_records_with_different_forms_of_answers_are_read(tmp_path: Path) -> None:
    answers = [
        {"answer": "Paris"},
        {"answer": "Paris", "answer_start": 25},
        {"answers": ["Paris"]},
        {"answers": {"text": ["Paris"], "answer_start": [25]}},
        {"answers": [{"text": "Paris"}]},
        {"answers": None, "answer": "Paris"},
        {"answer": ""},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": None, "answer": ""},
    ]
    rows = read(tmp_path / "a.jsonl", [{"question": "q", "passage": PASSAGE, **answer} for answer in answers])
    assert [row.answers for row in rows] == [((25, 30),)] * 6 + [()] * 3
    assert [row.answer_texts for row in rows] == [("Paris",)] * 6 + [()] * 3
    brackets = {"question": "q", "passage": "a [] b", "answer": "[]"}
    assert read(tmp_path / "b.jsonl", [brackets])[0].answer_texts == ("[]",)
    (listed,) = read(tmp_path / "c.json", [{"question": "q", "context": PASSAGE, "answer": "Paris"}])
    assert listed.answer_texts == ("Paris",)
    (unlabeled,) = read(tmp_path / "d.jsonl", [{"question": "q", "context": PASSAGE}], labeled=False)
    assert unlabeled.answers is None


def test_one_of_several_answers_that_does_not_occur_is_dropped_and_counted(tmp_path: Path) -> None:
    answers = [{"text": "Rome", "answer_start": 25}, {"text": "Paris", "answer_start": 25}]
    file = write(tmp_path / "a.json", squad({"question": "q", "answers": answers}))
    (row,) = read_questions(file, labeled=True)
    assert row.answer_texts == ("Paris",)
    assert list(file.counts.remarks()) == ["corrected: dropped answer that is not in the passage 1"]


def test_repairs_do_not_change_offsets(tmp_path: Path) -> None:
    passage = "\ufeffA\r\n\0line\r\nof \ud800 Paris"
    start = passage.index("Paris")
    file = write(
        tmp_path / "a.jsonl", [{"question": "q", "passage": passage, "answer": "Paris", "answer_start": start}]
    )
    (row,) = read_questions(file, labeled=True)
    assert row.answers == ((start, start + 5),)
    assert not file.counts.corrected.total()


def test_a_wrong_start_is_corrected_if_the_answer_occurs_near_it(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", squad({"question": "q", "answers": [{"text": "Paris", "answer_start": 20}]}))
    (row,) = read_questions(file, labeled=True)
    assert row.answers == ((25, 30),)
    assert list(file.counts.remarks()) == ["corrected: wrong answer_start 1"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (
            {"question": "q", "answers": [{"text": "Rome", "answer_start": 3}]},
            "'Rome' does not occur in the passage near character 3",
        ),
        ({"question": " ", "answers": []}, "the field 'question' is empty"),
        ({"answers": []}, "the field 'question' is missing"),
        ({"question": "q"}, "the row has no answers"),
        (
            {"question": "q", "answers": [{"answer_start": 3}]},
            "an answer needs a text, and answer_start must be an integer",
        ),
        ({"question": "q", "answers": [{"text": " ", "answer_start": 3}]}, "an answer is empty or only whitespace"),
        (
            {"question": "q", "answer": 42},
            "answer_start must be an integer: 42",
        ),
        (
            {"question": "q", "answer": "Paris", "answer_start": "x"},
            "an answer needs a text, and answer_start must be an integer",
        ),
        ("q", "expected a JSON object, found a string"),
    ],
)
def test_a_bad_question_is_reported_with_its_place(tmp_path: Path, question: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "a.json", squad(question))
    assert f"{tmp_path}/a.json:1, question 1: " in str(error.value)
    assert message in str(error.value)


def test_formats_and_structures_other_than_squad_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this task cannot read the format tsv"):
        list(read_questions(RowFile("a.tsv"), labeled=True))
    with pytest.raises(DataError, match="the field 'passage' is missing"):
        read(tmp_path / "a.json", {"data": [{"paragraphs": [{"context": None, "qas": [{"question": "q"}]}]}]})
    good = {"context": "c", "qas": [{"question": "q", "answers": []}]}
    for article, message in (
        ({"title": "t"}, "expected an article"),
        (3, "expected an article"),
        ({"paragraphs": [good, {"context": "c", "qas": "why"}]}, "expected a paragraph"),
        ({"paragraphs": [{"qas": []}]}, "expected a paragraph"),
    ):
        with pytest.raises(DataError, match=rf"a\.json:1: {message}"):
            read(tmp_path / "a.json", {"data": [{"paragraphs": [good]}, article]})
    with pytest.raises(DataError, match="expected SQuAD's format: "):
        read(tmp_path / "a.json", {"data": 3})


def test_an_error_names_the_line_of_the_question(tmp_path: Path) -> None:
    good = {"question": "q", "answers": [{"text": "Paris", "answer_start": 0}]}
    paragraphs = [{"context": "Paris.", "qas": [good, good | {"question": "Where?", "answers": 3}]}]
    text = json.dumps({"data": [{"paragraphs": paragraphs}]}, indent=1)
    (tmp_path / "a.json").write_text(text)
    line = text[: text.index('"Where?"')].count("\n")  # its object starts on the previous line; lines start at 1
    with pytest.raises(DataError, match=f"a.json:{line}, question 2: an answer needs a text"):
        list(read_questions(RowFile(str(tmp_path / "a.json")), labeled=True))


@given(st.text("ab ", min_size=1), st.text("ab", min_size=1, max_size=2), st.none() | st.integers(-200, 200))
def test_an_answer_is_located_at_the_occurrence_nearest_to_its_start(
    passage: str, text: str, start: int | None
) -> None:
    span = locate_answer(passage, text, start)
    places = [place for place in range(len(passage)) if passage.startswith(text, place)]
    if start is not None:
        places = [place for place in places if abs(place - start) <= NEAR]
    if span is None:
        assert not places
    else:
        assert passage[slice(*span)] == text
        assert span[0] == (places[0] if start is None else min(places, key=lambda place: abs(place - start)))
