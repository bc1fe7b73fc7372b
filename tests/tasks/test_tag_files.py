"""Sentences with tags out of columns, records and raw text; every bad one is told with its place and both counts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import RowCounts, read_labelled

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.text import files

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER
"""


def read(
    path: Path, content: str, counts: RowCounts | None = None, *, with_label: bool = True, **settings: Any
) -> list[LabelledRow]:
    path.write_text(content, encoding="utf-8")
    return list(read_labelled(str(path), RowSettings(**settings), counts, task="tag", with_label=with_label))


def words(row: LabelledRow) -> list[str]:
    return [row.texts[0][start:end] for start, end in row.spans]


def test_columns_between_blanks_or_tabs_in_any_order(tmp_path: Path) -> None:
    first, second = read(tmp_path / "eng.train", CONLL)
    assert (words(first), first.label, first.place) == (["EU", "rejects"], ("I-ORG", "O"), f"{tmp_path}/eng.train:3")
    assert (second.texts, second.label) == (("Peter Blackburn",), ("I-PER", "I-PER"))
    swapped = read(tmp_path / "a.tsv", "# a comment\nNOUN\tdogs and cats\nVERB\trun\n", columns="text=2,label=1")
    assert (words(swapped[0]), swapped[0].label) == (["dogs and cats", "run"], ("NOUN", "VERB"))
    assert read(tmp_path / "b.tsv", "#\tSYM\n1\tNUM")[0].label == ("SYM", "NUM")


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
def test_lines_that_are_no_words_and_words_that_are_odd(
    tmp_path: Path, content: str, sentences: list[list[str]]
) -> None:
    assert [words(row) for row in read(tmp_path / "a.conll", content)] == sentences


def test_lines_of_conll_u_that_are_no_words_are_left_out(tmp_path: Path) -> None:
    lines = ["# text = don't go", "1-2\tdon't\t_", "1\tdo\tAUX", "2\tn't\tPART", "2.1\tto\tX", "3\tgo\tVERB", ""]
    (row,) = read(tmp_path / "a.conllu", "\n".join(lines), columns="text=2,label=3")
    assert (words(row), row.label) == (["do", "n't", "go"], ("AUX", "PART", "VERB"))


def test_records_of_words_and_of_characters(tmp_path: Path) -> None:
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
    assert [row.label for row in rows] == [
        ("B-LOC", "O"),
        ("O", "O", "B-LOC", "I-LOC", "O", "O"),
        ("O", "B-ROOT", "O"),
        ("B", "E"),
    ]
    assert rows[3].texts == ("北京",)
    moved = {"text": "Hi\r\nI love Paris now", "entities": [{"start": 11, "end": 16, "label": "LOC"}]}
    (row,) = read(tmp_path / "b.jsonl", json.dumps(moved))
    assert dict(zip(words(row), row.label or (), strict=True))["Paris"] == "B-LOC"


def test_what_is_to_be_tagged_may_be_lines_of_text(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.txt", "Hello there.\n\nBye\tnow\n", with_label=False)
    assert [words(row) for row in rows] == [["Hello", "there", "."], ["Bye", "now"]]
    assert rows[1].texts == ("Bye\tnow",)
    again = read(tmp_path / "a.conll", "Hello X\nthere Y\n", with_label=False)
    assert [(words(row), row.label) for row in again] == [(["Hello", "there"], None)]


@pytest.mark.parametrize("columns", [None, "text=words,label=tags"])
@pytest.mark.parametrize("with_label", [True, False])
def test_standard_input_may_have_records(
    with_label: bool, columns: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'\n{"words": ["a", "b"], "tags": ["O", "B-X"]}\n'
    monkeypatch.setattr(files, "_open", lambda _: io.BufferedReader(io.BytesIO(lines)))
    (row,) = read_labelled("-", RowSettings(columns=columns), task="tag", with_label=with_label)
    assert (words(row), row.label) == (["a", "b"], ("O", "B-X") if with_label else None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.conll", "a O\nb O\n\nc O\nd\n", "a.conll:5: has 1 columns, where the first line has 2"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}', "a.jsonl:1: has 2 words and 1 tags"),
        ("a.jsonl", '{"words": ["a"], "labels": [null]}', "a.jsonl:1: has no list of tags"),
        ("a.jsonl", '{"words": [], "tags": []}', "a.jsonl:1: has no list of words"),
        ("a.jsonl", '{"words": ["a", ""], "tags": ["O", "O"]}', "a.jsonl:1: has an empty word, number 2 of 2"),
        ("a.jsonl", '{"words": "a b", "tags": ["O", "O"]}', "a.jsonl:1: has tags, but no list of words"),
        ("a.tsv", "a\tO\n\tO\n", "a.tsv:2: has an empty word"),
        ("a.jsonl", '{"sentence": "a"}', "a.jsonl:1: has no words (it has sentence)"),
        ("a.jsonl", '{"text": "abc", "spans": [[1, 9, "X"]]}', "the entity X from 1 to 9 in a text of 3 characters"),
        ("a.jsonl", '{"text": "abc", "spans": [[0, 2, "X"], [1, 3, "Y"]]}', "overlap: X 0 to 2, and Y from 1 on"),
        ("a.jsonl", '{"text": "a  b", "spans": [[1, 2, "X"]]}', "has no word in the entity X 1 to 2"),
        ("a.jsonl", '{"text": "abc", "spans": [{"start": 0}]}', "has an entity without start, end and label"),
        ("a.jsonl", '{"text": "abc", "spans": [[0, true, "X"]]}', "has an entity without start, end and label"),
        ("a.jsonl", '{"text": "abc", "spans": [[0, 1, "X\\u200b"]]}', "characters that cannot be printed"),
        ("a.jsonl", '{"text": " ", "spans": []}', "has an empty text"),
        ("a.conll", "a\nb\n", "a.conll:1: has 1 column, and column 2 is wanted"),
        ("a.tsv", "a\tO\nb\t\n", "a.tsv:2: has an empty tag"),
        ("a.jsonl", '{"words": ["a", "b"], "tags": ["O", ""]}', "a.jsonl:1: has no tag for the word 'b'"),
    ],
)
def test_a_bad_sentence_is_told_with_its_place(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / name, content)
    assert message in str(error.value)


def test_bad_sentences_are_skipped_and_counted(tmp_path: Path) -> None:
    counts = RowCounts()
    good = "a O\nb O\n\n" * 30
    rows = read(tmp_path / "a.conll", good + "c O O\n", counts, on_bad_row="skip")
    assert len(rows) == 30
    assert counts.skipped == {"another number of columns": 1}


def test_columns_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for columns in ("text=1", "text=1,pair=2,label=3", "text=words,label=tags"):
        with pytest.raises(UsageError):
            read(tmp_path / "a.conll", CONLL, columns=columns)
    with pytest.raises(DataError, match="column 9 is wanted"):
        read(tmp_path / "a.conll", CONLL, columns="text=1,label=9")
    with pytest.raises(UsageError, match="not for the task tag"):
        read(tmp_path / "a.conll", CONLL, preset="sst2")
