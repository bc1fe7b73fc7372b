"""Tests for reading sentences with tags from CoNLL columns, records and plain text."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.rows.source import RowFile
from bertmill.rows.trained import TrainedRows
from bertmill.tasks.tag.rows import WordsRow, read_words
from bertmill.text import files

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER
"""


def read(path: Path, content: str, *, labeled: bool = True, **settings: Any) -> list[WordsRow]:
    path.write_text(content, encoding="utf-8")
    return list(read_words(RowFile(str(path), RowSettings(**settings)), labeled))


def words(row: WordsRow) -> list[str]:
    return [row.texts[0][start:end] for start, end in row.words]


def test_columns_are_separated_by_spaces_or_tabs_and_may_be_in_any_order(tmp_path: Path) -> None:
    first, second = read(tmp_path / "eng.train", CONLL)
    assert (words(first), first.tags, first.place) == (["EU", "rejects"], ("I-ORG", "O"), f"{tmp_path}/eng.train:3")
    assert (second.texts, second.tags) == (("Peter Blackburn",), ("I-PER", "I-PER"))
    swapped = read(tmp_path / "a.tsv", "# a comment\nNOUN\tdogs and cats\nVERB\trun\n", columns="text=2,label=1")
    assert (words(swapped[0]), swapped[0].tags) == (["dogs and cats", "run"], ("NOUN", "VERB"))
    assert read(tmp_path / "b.tsv", "#\tSYM\n1\tNUM")[0].tags == ("SYM", "NUM")


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("-DOCSTART-\n\nEU NNP I-ORG\n", [["EU"]]),
        ("-DOCSTART- O\n\nEU NNP B-NP I-ORG\n", [["EU"]]),
        ("-DOCSTART-\n\nNew York\tB-LOC\n", [["New York"]]),
        ("O -DOCSTART-\n\nb\ta\n", [["b"]]),
        ("# SYM\n1 NUM\n", [["#", "1"]]),
        ("# a\tcomment\n#another\n#\tSYM\n", [["#"]]),
        ("1\u00a0000 O\n\u3000 O\n", [["1\u00a0000", "\u3000"]]),
        ("\u3000\tO\nb\tO\n", [["\u3000", "b"]]),
    ],
)
def test_comments_and_document_starts_are_skipped_and_unusual_words_are_kept(
    tmp_path: Path, content: str, sentences: list[list[str]]
) -> None:
    assert [words(row) for row in read(tmp_path / "a.conll", content)] == sentences


def test_conll_u_lines_that_are_not_words_are_skipped(tmp_path: Path) -> None:
    lines = ["# text = don't go", "1-2\tdon't\t_", "1\tdo\tAUX", "2\tn't\tPART", "2.1\tto\tX", "3\tgo\tVERB", ""]
    (row,) = read(tmp_path / "a.conllu", "\n".join(lines), columns="text=2,label=3")
    assert (words(row), row.tags) == (["do", "n't", "go"], ("AUX", "PART", "VERB"))


def test_records_have_words_with_tags_or_a_text_with_entities(tmp_path: Path) -> None:
    records = [
        {"tokens": ["Paris", "!"], "ner_tags": ["B-LOC", "O"]},
        {"text": "I love New York's parks", "entities": [{"start": 7, "end": 15, "label": "LOC"}]},
        {"text": "unbelievable", "spans": [[2, 9, "ROOT"]]},
        {"words": ["北", "京"], "tags": ["B", "E"]},
    ]
    rows = read(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert [words(row) for row in rows] == [
        ["Paris", "!"],
        ["I", "love", "New", "York", "'s", "parks"],
        ["un", "believa", "ble"],
        ["北", "京"],
    ]
    assert [row.tags for row in rows] == [
        ("B-LOC", "O"),
        ("O", "O", "B-LOC", "I-LOC", "O", "O"),
        ("O", "B-ROOT", "O"),
        ("B", "E"),
    ]
    assert rows[3].texts == ("北京",)
    moved = {"text": "Hi\r\nI love Paris now", "entities": [{"start": 11, "end": 16, "label": "LOC"}]}
    (row,) = read(tmp_path / "b.jsonl", json.dumps(moved))
    assert dict(zip(words(row), row.tags or (), strict=True))["Paris"] == "B-LOC"


def test_entities_may_be_grouped_by_kind_and_text_with_the_last_character_included(tmp_path: Path) -> None:
    record = {
        "text": "浙商银行叶老桂在NBA打球",
        "label": {"name": {"叶老桂": [[4, 6]]}, "company": {"浙商银行": [[0, 3]]}, "organization": {"NBA": [[8, 10]]}},
    }
    named, unnamed = read(tmp_path / "a.jsonl", f"{json.dumps(record)}\n" + '{"text": "没有", "label": {}}\n')
    assert dict(zip(words(named), named.tags or (), strict=True)) == {
        "浙": "B-company",
        "商": "I-company",
        "银": "I-company",
        "行": "I-company",
        "叶": "B-name",
        "老": "I-name",
        "桂": "I-name",
        "在": "O",
        "NBA": "B-organization",
        "打": "O",
        "球": "O",
    }
    assert unnamed.tags == ("O", "O")


def test_input_for_prediction_may_be_lines_of_text(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.txt", "Hello there.\n\nBye\tnow\n", labeled=False)
    assert [words(row) for row in rows] == [["Hello", "there", "."], ["Bye", "now"]]
    assert rows[1].texts == ("Bye\tnow",)
    again = read(tmp_path / "a.conll", "Hello X\nthere Y\n", labeled=False)
    assert [(words(row), row.tags) for row in again] == [(["Hello", "there"], None)]


@pytest.mark.parametrize(
    ("content", "format_", "expected"),
    [("\nEU\tB-ORG\nagrees\tO\n", "conll", ["EU", "agrees"]), ("EU agrees\tB-ORG O\n", "sentences", ["EU", "agrees"])],
)
def test_lines_of_text_that_may_have_tags_need_a_format(
    tmp_path: Path, content: str, format_: str, expected: list[str]
) -> None:
    with pytest.raises(
        DataError, match=r"a\.txt:[12]: the line has a tab; set `format='conll'` or `format='sentences'` if tabs"
    ):
        read(tmp_path / "a.txt", content, labeled=False)
    assert words(read(tmp_path / "a.txt", content, labeled=False, format=format_)[0]) == expected
    assert read(tmp_path / "a.txt", content, labeled=False, format="lines")[0].texts == (
        content.strip().split("\n")[0],
    )


@pytest.mark.parametrize(("name", "is_reported"), [("a.txt", True), ("-", False)])
def test_lines_in_a_file_like_the_training_rows_are_reported(
    name: str, is_reported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_open", lambda _: io.BufferedReader(io.BytesIO(b"EU B-ORG\nagrees O\n")))
    for settings in ({}, {"format": "lines"}):
        file = RowFile(name, RowSettings(**settings))
        TrainedRows(suffix=".txt").apply_to(file)
        assert len(list(read_words(file, labeled=False))) == 2
        remedy = "if words have tags as in training, set `format='conll'` or `format='sentences'`"
        notice = f"{name}: each line is read as a text; {remedy}"
        assert file.counts.notices == ([notice] if is_reported and not settings else [])


def test_bytes_that_are_not_utf_8_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_bytes("Málaga LOC\nis O\n".encode("cp1252"))
    file = RowFile(str(path))
    assert words(next(read_words(file, labeled=True)))[0] == "M\ufffdlaga"
    assert any("some bytes are not UTF-8" in notice for notice in file.counts.notices)


def test_files_like_the_training_rows_have_the_same_columns(tmp_path: Path) -> None:
    def read_again(name: str, *, labeled: bool = True, **settings: Any) -> list[WordsRow]:
        (tmp_path / name).write_text("1\tgood\tA\n2\tfilm\tB\n", encoding="utf-8")
        file = RowFile(str(tmp_path / name), RowSettings(**settings))
        trained = {"suffix": ".conll", "columns": {"text": "2", "label": "3", "has_header": False}}
        TrainedRows.model_validate(trained).apply_to(file)
        return list(read_words(file, labeled))

    (row,) = read_again("a.conll")
    assert (words(row), row.tags) == (["good", "film"], ("A", "B"))
    assert words(read_again("a.conll", labeled=False)[0]) == ["good", "film"]
    assert words(read_again("a.conll", columns="text=3,label=2")[0]) == ["A", "B"]
    assert words(read_again("a.tsv")[0]) == ["1", "2"]
    assert len(read_again("a.conll", labeled=False, format="lines")) == 2


@pytest.mark.parametrize("columns", [None, "text=words,label=tags"])
@pytest.mark.parametrize("labeled", [True, False])
def test_standard_input_may_contain_records(
    labeled: bool, columns: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'\n{"words": ["a", "b"], "tags": ["O", "B-X"]}\n'
    monkeypatch.setattr(files, "_open", lambda _: io.BufferedReader(io.BytesIO(lines)))
    (row,) = read_words(RowFile("-", RowSettings(columns=columns, format="jsonl")), labeled)
    assert (words(row), row.tags) == (["a", "b"], ("O", "B-X") if labeled else None)


@pytest.mark.parametrize(("labeled", "expected"), [(True, ["a"]), (False, ["a", "O"])])
def test_standard_input_is_conll_if_labeled_and_lines_for_prediction(
    labeled: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_open", lambda _: io.BufferedReader(io.BytesIO(b"a O\n")))
    (row,) = read_words(RowFile("-"), labeled)
    assert words(row) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "a O\nb O\n\nc O\nd\n", "a.conll:5: the line has 1 column, but the first line has 2"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', "a.jsonl:1: the row has 2 words but 1 tag; correct it"),
        ("a.jsonl", '{"words": ["a"], "labels": [null]}', "a.jsonl:1: tags must be a list of strings or integers"),
        ("a.jsonl", '{"words": [], "tags": []}', "a.jsonl:1: words must be a non-empty list of strings"),
        ("a.jsonl", '{"words": ["a", ""], "tags": ["O", "O"]}', "a.jsonl:1: word 2 of 2 is empty"),
        (
            "a.jsonl",
            '{"words": "a b", "tags": ["O", "O"]}',
            "a.jsonl:1: the row has tags, but its words are not a list",
        ),
        ("a.tsv", "a\tO\n\tO\n", "a.tsv:2: the word is empty"),
        ("a.jsonl", '{"sentence": "a"}', "a.jsonl:1: the row has no words (its fields: sentence)"),
        (
            "a.jsonl",
            '{"text": "abc", "spans": [[1, 9, "X"]]}',
            "the entity X from 1 to 9 is outside the text, which has 3 characters",
        ),
        (
            "a.jsonl",
            '{"text": "abc", "spans": [[0, 2, "X"], [1, 3, "Y"]]}',
            "entities overlap: X from 0 to 2, and Y from 1",
        ),
        ("a.jsonl", '{"text": "a  b", "spans": [[1, 2, "X"]]}', "the entity X from 1 to 2 contains no word"),
        ("a.jsonl", '{"text": "abc", "spans": [{"start": 0}]}', "an entity needs start, end and label"),
        ("a.jsonl", '{"text": "abc", "spans": [[0, true, "X"]]}', "an entity needs start, end and label"),
        ("a.jsonl", '{"text": "abc", "spans": [[0, 1, "X\\u200b"]]}', "contains unprintable characters"),
        ("a.jsonl", '{"text": " ", "spans": []}', "the text is empty"),
        (
            "a.jsonl",
            '{"text": "abc", "label": {"X": {"bc": [[1, 3]]}}}',
            "a.jsonl:1: the text from 1 to 3 is not the X 'bc'; count from 0, including the last character",
        ),
        ("a.jsonl", '{"text": "abc", "label": {"X": {"abc": [0, 2]}}}', "an entity needs its first and last character"),
        ("a.jsonl", '{"text": "abc", "label": {"X": {"a": [[-3, -3]]}}}', "the text from -3 to -3 is not the X 'a'"),
        ("a.jsonl", '{"text": "abc", "label": {"X": "abc"}}', "an entity needs its first and last character: X 'abc'"),
        ("a.conll", "a\nb\n", "a.conll:1: the line has 1 column, but column 2 is needed"),
        ("a.tsv", "a\tO\nb\t\n", "a.tsv:2: the tag is empty"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O", ""]}', "a.jsonl:1: the word 'b' has an empty tag"),
    ],
)
def test_a_bad_sentence_is_reported_with_its_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name, content)
    assert message in str(error.value)


def test_bad_sentences_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("a O\nb O\n\n" * 30 + "c O O\n", encoding="utf-8")
    file = RowFile(str(path), RowSettings(on_bad_row="skip"))
    assert len(list(read_words(file, labeled=True))) == 30
    assert file.counts.skipped == {"different number of columns": 1}


def test_settings_that_do_not_match_the_file_are_rejected(tmp_path: Path) -> None:
    for columns in ("text=1", "text=1,pair=2,label=3", "text=words,label=tags"):
        with pytest.raises(UsageError):
            read(tmp_path / "a.conll", CONLL, columns=columns)
    with pytest.raises(DataError, match="column 9 is needed"):
        read(tmp_path / "a.conll", CONLL, columns="text=1,label=9")
    with pytest.raises(UsageError, match="this task cannot read the format csv"):
        read(tmp_path / "a.conll", CONLL, format="csv")
    with pytest.raises(UsageError, match="the format lines has no tags"):
        read(tmp_path / "a.conll", CONLL, format="lines")
    assert len(read(tmp_path / "a.txt", CONLL, format="conll", labeled=False)) == 2


def test_the_fields_of_a_row_are_its_text_if_splitting_it_yields_its_words(tmp_path: Path) -> None:
    first, second = read(tmp_path / "a.conll", "北\tB\n京\tE\n\nNew York\tB\n")
    assert first.fields() == {"text": "北京"}
    assert second.fields() == {"words": ["New York"]}
