"""Rows given in Python: which forms are accepted, and that values survive."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import UsageError
from bertmill.rows.in_memory import is_missing, to_json_lines
from bertmill.rows.source import RowFile
from bertmill.tasks.classify import Classify, ClassifyOptions

ROWS = [{"text": "a fine film", "label": "yes"}, {"text": "北京 \u2028 \x1b", "label": "no"}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ("text", "label")}


class Series:
    """Stands in for the series of a data frame: it is iterable and not a list."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


class Frame:
    """Stands in for a data frame of pandas or polars: it iterates over column names."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = list(columns)
        self.values = columns

    def __getitem__(self, name: str) -> Series:
        return Series(self.values[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


class NAType:
    """Stands in for the missing value of pandas."""

    def __repr__(self) -> str:
        return "<NA>"

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


def parsed(rows: Any) -> list[Any]:
    return [json.loads(line) for line in to_json_lines(rows).decode().split("\n")[:-1]]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        tuple(ROWS),
        COLUMNS,
        Frame(COLUMNS),
        pyarrow.table(COLUMNS),
        {name: np.array(values) for name, values in COLUMNS.items()},
    ],
    ids=["list", "tuple", "dict of columns", "data frame", "arrow table", "dict of arrays"],
)
def test_records_and_tables_are_the_same_rows(rows: Any) -> None:
    assert parsed(rows) == ROWS
    assert to_json_lines(rows) == to_json_lines(ROWS)


def test_a_generator_of_records_is_read_once() -> None:
    assert parsed(row for row in ROWS) == ROWS


def test_values_of_other_types_become_those_of_json() -> None:
    values = {"day": date(2030, 1, 2), "path": Path("a"), "deep": [{"x": (np.int8(1), None)}], 7: "number"}
    values |= {"int": np.int64(3), "float": np.float32(0.5), "bool": np.bool_(True), "array": np.array([1, 2])}
    expected = {"day": "2030-01-02", "path": "a", "deep": [{"x": [1, None]}], "7": "number"}
    expected |= {"int": 3, "float": 0.5, "bool": True, "array": [1, 2]}
    assert parsed([{**values, "arrow": pyarrow.scalar("x")}]) == [{**expected, "arrow": "x"}]


@pytest.mark.parametrize(
    "value",
    [None, float("nan"), np.float32("nan"), np.float64("nan"), np.datetime64("NaT"), Decimal("nan"), NAType()],
    ids=repr,
)
def test_missing_values_become_null(value: Any) -> None:
    assert is_missing(value)
    assert parsed({"text": [value, "a"]}) == [{"text": None}, {"text": "a"}]


@pytest.mark.parametrize("value", ["nan", "<NA>", "", 0, 0.0, False, [], ["nan"], np.array(["nan"]), float("inf")])
def test_other_values_are_not_missing(value: Any) -> None:
    assert not is_missing(value)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (7, "rows must be a list of dicts, a table of columns or a path, not int"),
        (b"text", "rows must be a list of dicts, a table of columns or a path, not bytes"),
        (["a text"], "row 1 is not a dict, but str; name its fields"),
        ([ROWS[0], ("a", "b")], "row 2 is not a dict, but tuple; name its fields"),
        ({"text": ["a", "b"], "label": ["x"]}, "the columns differ in length: text has 2 rows, label has 1 row"),
    ],
)
def test_anything_else_is_refused(rows: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        to_json_lines(rows)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1).filter(str.strip), min_size=1, max_size=5))
def test_a_task_reads_the_texts_unchanged(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "in-memory.jsonl"
    path.write_bytes(to_json_lines({"text": texts, "label": ["x"] * len(texts)}))
    rows = list(Classify.read(RowFile(str(path)), ClassifyOptions(), labeled=True))
    assert [row.texts for row in rows] == [(text,) for text in texts]


def test_a_lone_surrogate_does_not_break_the_file() -> None:
    assert parsed([{"text": "a\ud800b"}]) == [{"text": "a\ud800b"}]


def test_sets_become_sorted_lists() -> None:
    assert parsed([{"label": {"b", "a"}, "other": frozenset([2, 1])}]) == [{"label": ["a", "b"], "other": [1, 2]}]
