"""Rows of regress: a text or a pair with a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertmill.errors import DataError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.regress import NumberRow, Regress
from tests.rows.factory import row_file, write_records


def read(file: RowFile, *, labeled: bool = True) -> list[NumberRow]:
    return list(Regress.read(file, TaskOptions(), labeled=labeled))


def test_stsb_is_read_completely(data: Path) -> None:
    for part, num_rows in (("train", 5_749), ("dev", 1_500)):
        path = data / f"glue/STS-B/{part}.tsv"
        rows = read(row_file(path))
        assert len(rows) == num_rows
        assert all(row.number is not None and 0 <= row.number <= 5 and len(row.texts) == 2 for row in rows)
        assert rows == read(row_file(path, preset="stsb"))


@pytest.mark.parametrize(("label", "number"), [("2.5", 2.5), (" -1 ", -1.0), (3, 3.0), (1e-3, 0.001), ("1e3", 1000.0)])
def test_labels_may_be_strings_or_numbers(tmp_path: Path, label: Any, number: float) -> None:
    path = write_records(tmp_path / "a.jsonl", {"text": "t", "score": label})
    assert read(row_file(path)) == [NumberRow(f"{path}:1", ("t",), number)]
    assert read(row_file(path), labeled=False) == [NumberRow(f"{path}:1", ("t",))]


@pytest.mark.parametrize(
    ("label", "what"),
    [
        ("high", "the label 'high' is not a number; correct it, use classify, or"),
        ("4,5", "the label '4,5' is not a number; write decimals with a point: 4.5"),
        ("-1,234", "the label '-1,234' is not a number; correct it, use classify, or"),  # perhaps thousands
        ("nan", "the label 'nan' is not a number"),
        ("inf", "the label 'inf' is not a number"),
        (True, "the label 'true' is not a number"),
        (1e20, "the label '1e+20' is too large"),
        (None, "the label is empty"),
        ([1], "the label must be a string or a number, not list"),
    ],
)
def test_a_label_that_is_not_a_number_is_a_bad_row(tmp_path: Path, label: Any, what: str) -> None:
    path = write_records(tmp_path / "a.jsonl", *[{"text": "t", "score": 1}] * 20, {"text": "t", "score": label})
    with pytest.raises(DataError) as caught:
        read(row_file(path))
    assert str(caught.value).startswith(f"{path}:21: {what}")
    assert len(read(row_file(path, on_bad_row="skip"))) == 20
