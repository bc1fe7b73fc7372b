"""Ids, texts and equality of records and rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bertmill.rows.row import record_id
from tests.rows.factory import LabeledRow


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"idx": 3}, 3),
        ({"ID": "x", "text": "a"}, "x"),
        ({"id": "", "guid": "g"}, "g"),
        ({"id": None, "index": 0}, 0),
        ({"id": ["a"]}, None),
        ({"a": 1}, None),
    ],
)
def test_the_id_of_a_record_is_the_first_id_column_that_is_set(
    fields: dict[str, Any], expected: str | int | None
) -> None:
    assert record_id(fields) == expected


def test_ids_do_not_affect_equality() -> None:
    row = LabeledRow("a:1", ("text",), "x")
    assert replace(row, id=7) == row
    assert replace(row, label="y") != row


def test_all_texts_of_a_row_are_its_texts_by_default() -> None:
    row = LabeledRow("a:1", ("one", "two"), "x")
    assert row.all_texts == ("one", "two")
    assert row.fields() == {"text": "one"}
