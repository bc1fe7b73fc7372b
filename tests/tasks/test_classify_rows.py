"""Labelled rows come out of files exactly, and every bad row is told or counted."""

import json
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import RowCounts, read_labelled


def write(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)


def records(path: Path, *rows: dict[str, Any]) -> str:
    return write(path, "".join(f"{json.dumps(row)}\n" for row in rows))


GLUE = {
    "SST-2": (67_349, 872, {"0", "1"}, 1),
    "CoLA": (8_551, 1_043, {"0", "1"}, 1),
    "MRPC": (3_668, 408, {"0", "1"}, 2),
    "RTE": (2_490, 277, {"entailment", "not_entailment"}, 2),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue_is_read_whole_and_literally(data: Path, name: str) -> None:
    num_train, num_dev, labels, num_texts = GLUE[name]
    for part, num_rows in (("train", num_train), ("dev", num_dev)):
        file = data / f"glue/{name}/{part}.tsv"
        rows = list(read_labelled(str(file), RowSettings(preset="cola" if name == "CoLA" else None)))
        assert len(rows) == num_rows
        assert {row.label for row in rows} == labels
        assert {len(row.texts) for row in rows} == {num_texts}
        lines = file.read_text("utf-8-sig").split("\n")
        assert all("\t".join(row.texts) in lines[int(row.place.rpartition(":")[2]) - 1] for row in rows)


def test_scores_are_read_from_the_last_column(data: Path) -> None:
    for part, num_rows in (("train", 5_749), ("dev", 1_500)):
        rows = list(read_labelled(str(data / f"glue/STS-B/{part}.tsv")))
        assert len(rows) == num_rows
        assert all(isinstance(row.label, str) and 0 <= float(row.label) <= 5 and len(row.texts) == 2 for row in rows)


def test_presets_read_what_guessing_reads(data: Path) -> None:
    for name, preset in (("SST-2", "sst2"), ("MRPC", "mrpc"), ("RTE", "rte"), ("STS-B", "stsb")):
        file = str(data / f"glue/{name}/dev.tsv")
        assert list(read_labelled(file, RowSettings(preset=preset))) == list(read_labelled(file))


def test_sms_are_read_with_their_quotes(data: Path) -> None:
    rows = list(read_labelled(str(data / "sms_spam/SMSSpamCollection")))
    assert Counter(row.label for row in rows) == {"ham": 4827, "spam": 747}
    assert sum(row.texts[0].startswith('"') for row in rows) == 54


def test_chinese_sentiment_has_no_header_and_needs_no_telling(data: Path) -> None:
    for part, num_rows in (("train", 9_600), ("dev", 1_200)):
        rows = list(read_labelled(str(data / f"chnsenticorp/{part}.tsv")))
        assert len(rows) == num_rows
        assert {row.label for row in rows} == {"positive", "negative"}
        assert rows[0].place.endswith(":1")


def test_reading_is_fast(data: Path) -> None:
    start = time.process_time()
    assert sum(1 for _ in read_labelled(str(data / "glue/SST-2/train.tsv"))) == 67_349
    assert time.process_time() - start < 2  # 0.7 s of one core


def test_texts_keep_every_character_and_labels_lose_blanks_around_them(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "text\tlabel\n  two blanks \u3000 \t 1 \n")
    assert list(read_labelled(file)) == [LabelledRow(f"{file}:2", ("  two blanks \u3000 ",), "1")]


def test_an_id_that_is_empty_is_the_number_of_the_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "id\ttext\tlabel\nx7\ta\t1\n\tb\t0\n")
    assert [row.id for row in read_labelled(file)] == ["x7", 2]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("x", "x"),
        (3, "3"),
        (0.5, "0.5"),
        (True, "true"),
        (False, "false"),
        (["a", 1, True], ("a", "1", "true")),
        ([], ()),
    ],
)
def test_labels_of_records_become_text(tmp_path: Path, label: Any, expected: str | tuple[str, ...]) -> None:
    (row,) = read_labelled(records(tmp_path / "a.jsonl", {"text": "t", "label": label}))
    assert row.label == expected


def test_swag_is_read_through_its_preset(tmp_path: Path) -> None:
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
    line = '0,anet,3416,"One, two",He stands.,"He ""waits"", and",gold,sits.,"runs, far.",flies.,swims.,1'
    file = write(tmp_path / "a.csv", f"{header}\n{line}\n")
    expected = LabelledRow(
        f"{file}:2", ("He stands.", 'He "waits", and'), "runs, far.", ("sits.", "runs, far.", "flies.", "swims.")
    )
    assert list(read_labelled(file, RowSettings(preset="swag"))) == [expected]
    assert list(read_labelled(file)) == [expected]


def test_choices_are_read_from_records(tmp_path: Path) -> None:
    record = {"context": "c", "question": "q", "choices": ["a", "b"], "answer": 1}
    file = records(tmp_path / "a.jsonl", record)
    assert list(read_labelled(file)) == [LabelledRow(f"{file}:1", ("c", "q"), "b", ("a", "b"))]


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = str(tmp_path / "a.parquet")
    parquet.write_table(arrow.table({"sentence": ["one", "two"], "label": [0, 1]}), file)
    assert list(read_labelled(file)) == [
        LabelledRow(f"{file}: row 1", ("one",), "0"),
        LabelledRow(f"{file}: row 2", ("two",), "1"),
    ]


def test_labels_that_are_not_needed_are_not_looked_at(tmp_path: Path) -> None:
    file = records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": {}})
    assert [row.label for row in read_labelled(file, with_label=False)] == [None, None, None]
    file = write(tmp_path / "a.txt", "one text\nanother\n")
    assert [row.texts for row in read_labelled(file, with_label=False)] == [("one text",), ("another",)]
    hidden = {"context": "c", "choices": ["a", "b"], "answer": -1}  # as in the test rows of SWAG
    file = records(tmp_path / "choices.jsonl", hidden)
    assert list(read_labelled(file, with_label=False)) == [LabelledRow(f"{file}:1", ("c",), None, ("a", "b"))]


def test_an_empty_label_is_no_label_where_a_text_may_have_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "text\tlabel\none\ta|b\ntwo\t\n")
    assert [row.label for row in read_labelled(file, may_have_no_label=True)] == ["a|b", ()]
    file = records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b"})
    with pytest.raises(DataError, match="has no column 'label'"):
        list(read_labelled(file, may_have_no_label=True))


GOOD = {"text": "t", "label": "x"}
BAD_RECORDS = [
    ({"label": "x"}, "missing column", "has no column 'text'"),
    ({"text": "t"}, "missing column", "has no column 'label'"),
    ({"text": " \n", "label": "x"}, "empty text", "has an empty text in the column 'text'"),
    ({"text": None, "label": "x"}, "empty text", "has an empty text in the column 'text'"),
    ({"text": "t", "label": " "}, "empty label", "has an empty label in the column 'label'"),
    ({"text": "t", "label": float("nan")}, "empty label", "has an empty label in the column 'label'"),
    ({"text": 3, "label": "x"}, "wrong type", "has a value of type int in the column 'text', where a text should be"),
    ({"text": "t", "label": {}}, "wrong type", "has a value of type dict in the column 'label', where a label or"),
    ({"text": "t", "label": [""]}, "wrong type", "has a value of type str in the column 'label', where a label or"),
]


@pytest.mark.parametrize(("bad", "reason", "what"), BAD_RECORDS)
def test_a_bad_record_is_told_or_counted(tmp_path: Path, bad: dict[str, Any], reason: str, what: str) -> None:
    file = records(tmp_path / "a.jsonl", *[GOOD] * 20, bad)
    check_bad_row(file, f"{file}:21: {what}", reason)


@pytest.mark.parametrize(
    ("name", "good", "bad", "reason", "what"),
    [
        ("a.tsv", "t\tx\n", "t\n", "too few columns", "has 1 column, where the first row has 2; mend it"),
        ("a.tsv", "t\tx\n", "t\tx\ty\n", "too many columns", "has 3 columns, where the first row has 2; mend it"),
        ("a.tsv", "t\tx\n", "\tx\n", "empty text", "has an empty text in the column 'text'; mend it"),
        ("a.tsv", "t\tx\n", "t\t\n", "empty label", "has an empty label in the column 'label'; mend it"),
        ("a.jsonl", '{"text": "t", "label": 1}\n', "{\n", "not a JSON object", "is not JSON: "),
        ("a.jsonl", '{"text": "t", "label": 1}\n', "3\n", "not a JSON object", "is not a JSON object (found: int)"),
    ],
)
def test_a_bad_line_is_told_or_counted(tmp_path: Path, name: str, good: str, bad: str, reason: str, what: str) -> None:
    header = "text\tlabel\n" if name == "a.tsv" else good
    after = good if name == "a.tsv" else ""
    file = write(tmp_path / name, header + good * 19 + bad + after)
    check_bad_row(file, f"{file}:21: {what}", reason)


def check_bad_row(file: str, message: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        list(read_labelled(file))
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("or skip such rows with --on-bad-row skip")
    counts = RowCounts()
    rows = list(read_labelled(file, RowSettings(on_bad_row="skip"), counts))
    assert len(rows) == 20
    assert counts.skipped == {reason: 1}
    assert counts.num_rows == 21
    assert list(counts.remarks(" in a")) == [f"skipped in a: 1 of 21 rows ({reason} 1)"]


@pytest.mark.parametrize(("num_bad", "is_refused"), [(5, False), (6, True)])
def test_more_than_one_bad_row_in_twenty_stops_at_the_end(tmp_path: Path, num_bad: int, is_refused: bool) -> None:
    file = write(tmp_path / "a.tsv", "text\tlabel\n" + "\tx\n" * num_bad + "t\tx\n" * (100 - num_bad))
    reading = read_labelled(file, RowSettings(on_bad_row="skip"))
    assert len(list(islice(reading, 100 - num_bad))) == 100 - num_bad
    if is_refused:
        with pytest.raises(DataError) as caught:
            next(reading)
        assert str(caught.value) == (
            f"{file}: too many rows are bad, more than 5%: 6 of 100 rows (empty text 6); "
            f"look at {file}:2: is the file read as it is meant?"
        )
    else:
        assert next(reading, None) is None


def test_many_bad_rows_stop_early_in_a_long_file(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "text\tlabel\n" + "t\tx\n" * 900 + "\tx\n" * 100_000)
    counts = RowCounts()
    with pytest.raises(DataError, match="100 of 1,000 rows"):
        list(read_labelled(file, RowSettings(on_bad_row="skip"), counts))
    assert counts.num_rows == 1000


def test_a_file_of_bad_records_only_says_so(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", "no\n" * 3000)
    with pytest.raises(DataError, match=r"a.jsonl:1: is not JSON"):
        list(read_labelled(file))
    with pytest.raises(DataError, match="1,000 of 1,000 rows"):
        list(read_labelled(file, RowSettings(on_bad_row="skip")))


@pytest.mark.parametrize("content", ["", "\n\n", "text\tlabel\n"])
def test_a_file_without_rows_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"a.tsv: there are no rows in it"):
        list(read_labelled(write(tmp_path / "a.tsv", content)))
