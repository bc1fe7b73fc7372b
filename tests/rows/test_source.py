"""The format of a file is known, and a bad row stops reading or is counted."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from itertools import islice
from pathlib import Path

import pytest

from bertmill.errors import DataError, UsageError
from bertmill.rows.source import source_sha256, split_key_off
from tests.rows.factory import LabeledRow, read_labeled, row_file, write, write_records


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", "csv"),
        ("a.CSV.gz", "csv"),
        ("a.tsv", "tsv"),
        ("a.jsonl.zst", "jsonl"),
        ("a.json", "json"),
        ("a.parquet", "parquet"),
        ("a.txt", "tsv"),
        ("a.xz", "tsv"),
        ("folder.csv/a", "tsv"),
        ("a.conll", "tsv"),
        ("-", "tsv"),
    ],
)
def test_the_suffix_determines_the_format(path: str, expected: str) -> None:
    assert row_file(path).format == expected
    assert row_file(path, format="jsonl").format == "jsonl"


def test_the_format_of_a_folder_is_folder(tmp_path: Path) -> None:
    assert row_file(tmp_path).format == "folder"
    assert row_file(tmp_path, format="tsv").format == "tsv"


def test_a_name_may_end_with_a_key_of_a_json_file(tmp_path: Path) -> None:
    file = row_file("data/a.json#train")
    assert (file.path, file.key, file.format) == ("data/a.json", "train", "json")
    assert split_key_off("a.json.gz#oos#1") == ("a.json.gz#oos#1", None)  # the name before the last # is not a .json
    assert split_key_off("a.json.gz#val") == ("a.json.gz", "val")
    for name in ("a.csv#train", "a.json", "a.json#", "#train", "-"):
        assert split_key_off(name) == (name, None)
    existing = write(tmp_path / "a.json#train", "[]")
    assert split_key_off(existing) == (existing, None)


def test_the_hash_of_a_file_depends_on_its_content_and_the_key(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", "{}")
    assert source_sha256(path) == sha256(b"{}").hexdigest()
    assert len({source_sha256(path), source_sha256(f"{path}#train"), source_sha256(f"{path}#val")}) == 3


def test_the_hash_of_a_folder_depends_on_the_names_and_contents_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a/pos").mkdir(parents=True)
    write(tmp_path / "a/pos/1.txt", "x")
    before = source_sha256(str(tmp_path / "a"))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert source_sha256(str(tmp_path / "b")) == before
    write(tmp_path / "a/pos/1.txt", "y")
    (tmp_path / "b/pos").rename(tmp_path / "b/neg")
    assert before not in {source_sha256(str(tmp_path / name)) for name in "ab"}


@pytest.mark.parametrize("settings", [{}, {"encoding": "cp1252"}])
def test_bytes_that_are_not_utf_8_are_reported_with_the_setting(tmp_path: Path, settings: dict[str, str]) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\nna\u00efve\tx\n".encode("cp1252"))
    file = row_file(path, **settings)
    (row,) = read_labeled(file)
    assert row.texts == ("na\u00efve" if settings else "na\ufffdve",)
    advice = "if the file has another encoding, set `encoding`, for example to cp1252 or gb18030"
    assert file.counts.notices == ([] if settings else [f"{path}: some bytes are not UTF-8; {advice}"])


def test_a_task_can_restrict_formats_and_reject_settings() -> None:
    file = row_file("a.csv", preset="sst2", quotes="literal")
    file.require_format("csv", "tsv")
    with pytest.raises(
        UsageError, match=r"a\.csv: this task cannot read the format csv; .*set `format`, to one of jsonl, json"
    ):
        file.require_format("jsonl", "json")
    file.require_default("columns", "separator")
    with pytest.raises(UsageError, match=r"a\.csv: `preset` and `quotes` cannot be used with this format"):
        file.require_default("preset", "columns", "quotes")


def test_labels_are_stripped_and_texts_are_unchanged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n  two blanks \u3000 \t 1 \n")
    assert list(read_labeled(row_file(path))) == [LabeledRow(f"{path}:2", ("  two blanks \u3000 ",), "1")]


def test_a_row_is_identified_by_its_id_or_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\ttext\tlabel\nx7\ta\t1\n\tb\t0\n")
    assert [row.id for row in read_labeled(row_file(path))] == ["x7", 2]
    path = write_records(tmp_path / "a.jsonl", {"text": "a", "label": 1, "idx": 12}, {"text": "b", "label": 0})
    assert [row.id for row in read_labeled(row_file(path))] == [12, 2]
    rows = [{"text": "a", "label": 1}, {"text": "b"}, *[{"text": "c", "label": 0}] * 38]
    path = write_records(tmp_path / "b.jsonl", *rows)
    assert [row.id for row in read_labeled(row_file(path, on_bad_row="skip"))] == [1, *range(3, 41)]


@pytest.mark.parametrize(
    ("name", "good", "bad", "reason", "what"),
    [
        ("a.tsv", "t\tx\n", "t\n", "too few columns", "this row has 1 column, but the first row has 2; correct it"),
        ("a.csv", "t,x\n", "t,x,y\n", "too many columns", "this row has 3 columns, but the first row has 2; correct"),
        ("a.tsv", "t\tx\n", "t\t\n", "empty label", "the label is empty; correct it"),
        ("a.jsonl", '{"text": "t", "label": 1}\n', "{\n", "not a JSON object", "is not JSON: "),
        ("a.jsonl", '{"text": "t", "label": 1}\n', "3\n", "not a JSON object", "is not a JSON object (found: int)"),
        ("a.jsonl", '{"text": "t", "label": 1}\n', '{"text": "t"}\n', "missing column", "this row has no column 'lab"),
    ],
)
def test_a_bad_row_stops_reading_or_is_counted(
    tmp_path: Path, name: str, good: str, bad: str, reason: str, what: str
) -> None:
    header = {"a.tsv": "text\tlabel\n", "a.csv": "text,label\n"}.get(name, good)
    rest = good if name != "a.jsonl" else ""
    path = write(tmp_path / name, header + good * 19 + bad + rest)
    with pytest.raises(DataError) as caught:
        list(read_labeled(row_file(path)))
    assert str(caught.value).startswith(f"{path}:21: {what}")
    assert str(caught.value).endswith(", or set `on_bad_row='skip'` to skip such rows")
    file = row_file(path, on_bad_row="skip")
    assert len(list(read_labeled(file))) == 20
    assert file.counts.skipped == {reason: 1}
    assert list(file.counts.remarks(" in a")) == [f"skipped in a: 1 of 21 rows ({reason} 1)"]


def test_too_many_bad_rows_stop_reading_at_the_end_of_a_short_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "t\t\n" * 6 + "t\tx\n" * 94)
    reading = read_labeled(row_file(path, on_bad_row="skip"))
    assert len(list(islice(reading, 94))) == 94
    with pytest.raises(DataError, match=r"a\.tsv: more than 5% of the rows are bad: 6 of 100 rows \(empty label 6\)"):
        next(reading)


def test_the_limit_on_bad_rows_is_a_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "t\t\n" * 6 + "t\tx\n" * 4)
    for limit in ("60%", "6"):
        assert len(list(read_labeled(row_file(path, on_bad_row="skip", max_bad_rows=limit)))) == 4
    for limit, num_read in (("59%", 10), ("5", 6)):
        file = row_file(path, on_bad_row="skip", max_bad_rows=limit)
        with pytest.raises(
            DataError, match=f"(more than {limit} .* bad|more bad rows than {limit}): 6 of {num_read} rows"
        ):
            list(read_labeled(file))


def test_records_after_a_thousand_bad_ones_have_unknown_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "no\n" * 1000 + '{"text": "t", "label": 1}\n' * 3)
    file = row_file(path, on_bad_row="skip", max_bad_rows="100%")
    with pytest.raises(DataError, match=r"all rows are bad: 1,003 of 1,003 rows \(.* 1,000, unknown columns 3\)"):
        list(read_labeled(file))


def test_too_many_bad_rows_stop_reading_early_in_a_long_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\n" + "t\tx\n" * 900 + "t\t\n" * 100_000)
    file = row_file(path, on_bad_row="skip")
    with pytest.raises(DataError, match="100 of 1,000 rows"):
        list(read_labeled(file))
    assert file.counts.num_rows == 1000


def test_a_file_with_only_bad_records_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "no\n" * 3000)
    with pytest.raises(DataError, match=r"a.jsonl:1: is not JSON"):
        list(read_labeled(row_file(path)))
    with pytest.raises(DataError, match="1,000 of 1,000 rows"):
        list(read_labeled(row_file(path, on_bad_row="skip")))


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.tsv", ""), ("a.tsv", "\n\n"), ("a.tsv", "text\tlabel\n"), ("a.csv", ""), ("a.jsonl", "\n"), ("a.json", "[]")],
)
def test_a_file_without_rows_is_rejected(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(DataError, match=rf"{name}: the file has no rows"):
        list(read_labeled(row_file(write(tmp_path / name, content))))


def test_repairs_are_counted_for_every_format(tmp_path: Path) -> None:
    file = row_file(write(tmp_path / "a.json", json.dumps([{"text": "a\ud800", "label": 1}])))
    assert [row.texts for row in read_labeled(file)] == [("a\ufffd",)]
    assert list(file.counts.remarks()) == ["repaired: 1 lone surrogate"]
