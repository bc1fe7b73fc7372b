"""Rows of classify: a text or a pair with one or several labels, from real data sets and from invalid files."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertmill.errors import DataError
from bertmill.rows.source import RowFile
from bertmill.tasks.classify import Classify, ClassifyOptions, ClassRow
from tests.rows.factory import row_file, write, write_records


def read(file: RowFile, *, multi_label: bool = False, labeled: bool = True) -> list[ClassRow]:
    return list(Classify.read(file, ClassifyOptions(multi_label=multi_label), labeled=labeled))


# Real data


GLUE = {
    "SST-2": ("sst2", 67_349, 872, {"0", "1"}, 1),
    "CoLA": ("cola", 8_551, 1_043, {"0", "1"}, 1),
    "MRPC": ("mrpc", 3_668, 408, {"0", "1"}, 2),
    "RTE": ("rte", 2_490, 277, {"entailment", "not_entailment"}, 2),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue_is_read_completely_and_literally(data: Path, name: str) -> None:
    preset, num_train, num_dev, labels, num_texts = GLUE[name]
    for part, num_rows in (("train", num_train), ("dev", num_dev)):
        path = data / f"glue/{name}/{part}.tsv"
        file = row_file(path, preset=preset)
        rows = read(file)
        assert len(rows) == num_rows
        assert {row.label for row in rows} == labels
        assert {len(row.texts) for row in rows} == {num_texts}
        lines = path.read_text("utf-8-sig").split("\n")
        assert all("\t".join(row.texts) in lines[int(row.place.rpartition(":")[2]) - 1] for row in rows)
        assert not file.counts.notices
        if name == "CoLA":
            with pytest.raises(DataError, match="set `columns='text="):  # it has no header
                read(row_file(path))
        else:
            assert read(row_file(path)) == rows


def test_sms_messages_keep_their_quotes(data: Path) -> None:
    file = row_file(data / "sms_spam/SMSSpamCollection")
    rows = read(file)
    assert Counter(row.label for row in rows) == {"ham": 4827, "spam": 747}
    assert sum(row.texts[0].startswith('"') for row in rows) == 54
    assert not file.counts.notices


def test_chinese_sentiment_has_no_header_and_needs_columns(data: Path) -> None:
    for part, num_rows in (("train", 9_600), ("dev", 1_200)):
        path = data / f"chnsenticorp/{part}.tsv"
        with pytest.raises(DataError, match=r"\.tsv:1: cannot tell which columns .*; set `columns='text="):
            read(row_file(path))
        rows = read(row_file(path, columns="text=1,label=2"))
        assert len(rows) == num_rows
        assert {row.label for row in rows} == {"positive", "negative"}
        assert rows[0].place.endswith(":1")


@pytest.mark.slow
def test_reading_is_fast(data: Path) -> None:
    start = time.process_time()
    assert len(read(row_file(data / "glue/SST-2/train.tsv"))) == 67_349
    assert time.process_time() - start < 2  # 0.7 s of one core


# Labels


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("x", "x"),
        (" x ", "x"),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        (["a", 1, True], ("a", "1", "true")),
        ([], ()),
    ],
)
def test_labels_of_records_become_text(tmp_path: Path, label: Any, expected: str | tuple[str, ...]) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "t", "label": label})
    assert read(row_file(path)) == [ClassRow(f"{path}:1", ("t",), expected)]


def test_an_empty_label_means_no_label_with_multi_label(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\none\ta|b\ntwo\t\n")
    assert [row.label for row in read(row_file(path), multi_label=True)] == ["a|b", ()]
    with pytest.raises(
        DataError, match=r"a.tsv:3: the label is empty; correct it, set `multi_label=True` if a row may have any number"
    ):
        read(row_file(path))


@pytest.mark.parametrize("columns", [None, "text=text,label=label"])
def test_a_missing_label_of_a_record_means_no_label_with_multi_label(tmp_path: Path, columns: str | None) -> None:
    records = [{"text": "a"}, {"text": "b", "label": ["x"]}, {"text": "c", "label": None}, {"text": "d", "label": []}]
    path = write_records(tmp_path / "a.jsonl", *records, {"text": "e"})
    rows = read(row_file(path, columns=columns), multi_label=True)
    assert [(row.texts[0], row.label) for row in rows] == [("a", ()), ("b", ("x",)), ("c", ()), ("d", ()), ("e", ())]
    with pytest.raises(DataError, match=r"a\.jsonl:1: "):
        read(row_file(path, columns=columns))


def test_rows_without_any_label_column_are_rejected_with_multi_label_too(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "a"}, {"text": "b"})
    with pytest.raises(DataError, match=r"a\.jsonl:1: cannot tell which columns hold the text and the label"):
        read(row_file(path), multi_label=True)
    with pytest.raises(DataError, match=r"a\.jsonl: no row has the column 'tag'; set `columns`"):
        read(row_file(path, columns="text=text,label=tag"), multi_label=True)
    path = write(tmp_path / "a.tsv", "text\tdate\na\tb\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: there is no column 'tag'"):
        read(row_file(path, columns="text=text,label=tag"), multi_label=True)


def test_labels_are_ignored_for_prediction(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": {}})
    assert read(row_file(path), labeled=False) == [ClassRow(f"{path}:{n}", (text,)) for n, text in enumerate("abc", 1)]
    path = write(tmp_path / "a.txt", "one text\nanother\n")
    assert [row.texts for row in read(row_file(path), labeled=False)] == [("one text",), ("another",)]


def test_pairs_are_read_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,hypothesis,premise\n1,"So, ""b""",a\n')
    (row,) = read(row_file(path))
    assert row == ClassRow(f"{path}:2", ("a", 'So, "b"'), "1")
    assert row.fields() == {"text": "a", "pair": 'So, "b"'}


# Bad rows


@pytest.mark.parametrize(
    ("bad", "reason", "what"),
    [
        ({"label": "x"}, "missing column", "this row has no column 'text'"),
        ({"text": "t"}, "missing column", "this row has no column 'label'"),
        ({"text": " \n", "label": "x"}, "empty text", "the field 'text' is empty"),
        ({"text": None, "label": "x"}, "missing text", "the field 'text' is missing"),
        ({"text": "t", "label": " "}, "empty label", "the label is empty"),
        ({"text": "t", "label": float("nan")}, "empty label", "the label is empty"),
        ({"text": 3, "label": "x"}, "wrong type", "the field 'text' must be a string, not int"),
        ({"text": "t", "label": {}}, "wrong type", "the label must be a string or a number, not dict"),
        ({"text": "t", "label": ["a", ""]}, "empty label", "the label is empty"),
        ({"text": "t", "label": ["a", []]}, "wrong type", "the label must be a string or a number, not list"),
        ({"text": "t", "label": "a\u200b"}, "unprintable label", "the label 'a\\u200b' contains unprintable"),
        ({"text": "t", "label": "x", "pair": "u"}, "pair only in some rows", "this row has a second text in 'pair'"),
    ],
)
def test_a_bad_record_stops_reading_or_is_counted(tmp_path: Path, bad: dict[str, Any], reason: str, what: str) -> None:
    path = write_records(tmp_path / "a.jsonl", *[{"text": "t", "label": "x"}] * 20, bad)
    with pytest.raises(DataError) as caught:
        read(row_file(path))
    assert str(caught.value).startswith(f"{path}:21: {what}")
    file = row_file(path, on_bad_row="skip")
    assert len(read(file)) == 20
    assert file.counts.skipped == {reason: 1}


def test_rows_with_choices_are_rejected(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "t", "label": "x", "choices": ["a", "b"]})
    with pytest.raises(
        DataError, match=r"a.jsonl:1: the row has choices, which the task classify does .*; remove them"
    ):
        read(row_file(path))


# Lists written as text, as by DataFrame.to_csv


def test_a_list_written_as_text_is_a_list_of_labels(tmp_path: Path) -> None:
    cells = ["['cs.CV', 'cs.AI']", "[]", ' ["a,b"] ', "[1, 2]"]
    path = write_records(tmp_path / "a.jsonl", *({"text": "t", "label": cell} for cell in cells))
    expected = [("cs.CV", "cs.AI"), (), ("a,b",), ("1", "2")]
    assert [row.label for row in read(row_file(path), multi_label=True)] == expected
    assert read(row_file(path, on_bad_row="skip"))[0].label == cells[0]  # one label


@pytest.mark.parametrize("cell", ["[cs.CV]", "['a' 'b']", "[['a']]", "[None]", "['a'], ['b']", "[" * 1000 + "]"])
def test_anything_else_in_brackets_is_a_bad_row(tmp_path: Path, cell: str) -> None:
    path = write_records(tmp_path / "a.jsonl", *[{"text": "t", "label": "x|y"}] * 20, {"text": "t", "label": cell})
    with pytest.raises(
        DataError, match=r"a.jsonl:21: the label .* is not a list .*; separate the labels with \|, write"
    ):
        read(row_file(path), multi_label=True)
    assert len(read(row_file(path, on_bad_row="skip"), multi_label=True)) == 20
