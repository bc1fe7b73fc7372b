"""Questions with their passages and answers: SQuAD's JSON, records; wrong places mended or told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.question_files import NEAR, place_answer
from bertmill.tasks.reading import RowCounts, read_labelled
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import DataError, UsageError

PASSAGE = "The capital of France is Paris."


def squad(*questions: Any) -> dict[str, Any]:
    return {"version": "2.0", "data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": list(questions)}]}]}


def read(path: Path, content: Any, **how: Any) -> list[LabelledRow]:
    text = "".join(json.dumps(line) + "\n" for line in content) if path.suffix == ".jsonl" else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    return list(read_labelled(str(path), task="answer", **how))


def test_squad_of_both_versions(tmp_path: Path) -> None:
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
        LabelledRow(f"{place} q1", ("What is it?", PASSAGE), ("Paris", "France is Paris"), spans=((25, 30), (15, 30))),
        LabelledRow(f"{place} q2", ("Who?", PASSAGE), ()),
    ]


def test_records_of_several_forms(tmp_path: Path) -> None:
    answers = [
        {"answer": "Paris"},
        {"answer": "Paris", "answer_start": 25},
        {"answers": ["Paris"]},
        {"answers": {"text": ["Paris"], "answer_start": [25]}},
        {"answers": [{"text": "Paris"}]},
        {"answer": ""},
        {"answers": {"text": [], "answer_start": []}},
        {"answers": None, "answer": ""},
    ]
    rows = read(tmp_path / "a.jsonl", [{"question": "q", "passage": PASSAGE, **answer} for answer in answers])
    assert [row.spans for row in rows] == [((25, 30),)] * 5 + [(), (), ()]
    assert [row.label for row in rows] == [("Paris",)] * 5 + [(), (), ()]
    brackets = {"question": "q", "passage": "a [] b", "answer": "[]"}
    assert read(tmp_path / "d.jsonl", [brackets])[0].label == ("[]",)
    assert read(tmp_path / "e.jsonl", [{"question": "q", "context": PASSAGE, "answers": None, "answer": "Paris"}])[
        0
    ].label == ("Paris",)
    assert read(tmp_path / "b.json", [{"question": "q", "context": PASSAGE, "answer": "Paris"}])[0].label == ("Paris",)
    assert read(tmp_path / "c.jsonl", [{"question": "q", "context": PASSAGE}], with_label=False)[0].label is None


def test_answers_that_are_not_there_are_left_out_and_counted(tmp_path: Path) -> None:
    counts = RowCounts()
    answers = [{"text": "Rome", "answer_start": 25}, {"text": "Paris", "answer_start": 25}]
    (row,) = read(tmp_path / "a.json", squad({"question": "q", "answers": answers}), counts=counts)
    assert row.label == ("Paris",)
    assert list(counts.remarks()) == ["mended: one of several answers is not in the passage, left out 1"]


def test_characters_stay_where_they_were(tmp_path: Path) -> None:
    passage = "\ufeffA\r\n\0line\r\nof \ud800 Paris"
    start = passage.index("Paris")
    record = {"question": "q", "passage": passage, "answer": "Paris", "answer_start": start}
    counts = RowCounts()
    (row,) = read(tmp_path / "a.jsonl", [record], counts=counts)
    assert row.spans == ((start, start + 5),)
    assert not counts.mended.total()


def test_a_wrong_start_is_mended_where_the_answer_stands_near_it(tmp_path: Path) -> None:
    counts = RowCounts()
    answers = [{"text": "Paris", "answer_start": 20}]
    (row,) = read(tmp_path / "a.json", squad({"question": "q", "answers": answers}), counts=counts)
    assert row.spans == ((25, 30),)
    assert list(counts.remarks()) == ["mended: answer_start mended 1"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"question": "q", "answers": [{"text": "Rome", "answer_start": 3}]}, "'Rome' does not stand in the passage"),
        ({"question": " ", "answers": []}, "has no text in 'question'"),
        ({"answers": []}, "has no question"),
        ({"question": "q"}, "has no answers"),
        ({"question": "q", "answers": [{"answer_start": 3}]}, "has an answer that is not a text"),
        ({"question": "q", "answers": [{"text": " ", "answer_start": 3}]}, "only white space"),
        (
            {"question": "q", "answer": 42},
            "with a whole number as its start if any: 42",
        ),
        ({"question": "q", "answer": "Paris", "answer_start": "x"}, "has an answer that is not a text"),
        ("q", "is not a JSON object"),
    ],
)
def test_a_bad_question_is_told_with_its_place(tmp_path: Path, question: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "a.json", squad(question))
    assert f"{tmp_path}/a.json:1, question 1: " in str(error.value)
    assert message in str(error.value)


def test_what_is_not_squad_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="read from records"):
        list(read_labelled("a.tsv", task="answer"))
    with pytest.raises(DataError, match="has no passage"):
        read(tmp_path / "a.json", {"data": [{"paragraphs": [{"context": None, "qas": [{"question": "q"}]}]}]})
    good = {"context": "c", "qas": [{"question": "q", "answers": []}]}
    for article, message in (
        ({"title": "t"}, "is not an article"),
        (3, "is not an article"),
        ({"paragraphs": [good, {"context": "c", "qas": "why"}]}, "is not a paragraph"),
        ({"paragraphs": [{"qas": []}]}, "is not a paragraph"),
    ):
        with pytest.raises(DataError, match=rf"a\.json:1: {message}"):
            read(tmp_path / "a.json", {"data": [{"paragraphs": [good]}, article]})
    with pytest.raises(DataError, match="not in the form of SQuAD"):
        read(tmp_path / "a.json", {"data": 3})


def test_the_line_of_a_question_is_told(tmp_path: Path) -> None:
    good = {"question": "q", "answers": [{"text": "Paris", "answer_start": 0}]}
    paragraphs = [{"context": "Paris.", "qas": [good, good | {"question": "Where?", "answers": 3}]}]
    text = json.dumps({"data": [{"paragraphs": paragraphs}]}, indent=1)
    (tmp_path / "a.json").write_text(text)
    line = text[: text.index('"Where?"')].count("\n")  # its object begins on the line before, and lines from 1 on
    with pytest.raises(DataError, match=f"a.json:{line}, question 2: has an answer that is not"):
        list(read_labelled(str(tmp_path / "a.json"), task="answer"))


@given(st.text("ab ", min_size=1), st.text("ab", min_size=1, max_size=2), st.none() | st.integers(-200, 200))
def test_a_placed_answer_stands_there_and_near_its_start(passage: str, text: str, start: int | None) -> None:
    span = place_answer(passage, text, start)
    places = [place for place in range(len(passage)) if passage.startswith(text, place)]
    if start is not None:
        places = [place for place in places if abs(place - start) <= NEAR]
    if span is None:
        assert not places
    else:
        assert passage[slice(*span)] == text
        assert span[0] == (places[0] if start is None else min(places, key=lambda place: abs(place - start)))
