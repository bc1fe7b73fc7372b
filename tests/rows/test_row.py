"""Records and rows: ids, texts, equality."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bertmill.rows.row import record_id
from tests.rows.factory import LabelledRow


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
def test_a_record_may_have_an_id(fields: dict[str, Any], expected: str | int | None) -> None:
    assert record_id(fields) == expected


def test_rows_are_equal_whatever_their_ids() -> None:
    row = LabelledRow("a:1", ("text",), "x")
    assert replace(row, id=7) == row
    assert replace(row, label="y") != row


def test_a_row_holds_its_texts_only_unless_a_task_adds_others() -> None:
    row = LabelledRow("a:1", ("one", "two"), "x")
    assert row.all_texts == ("one", "two")
    assert row.fields() == {"text": "one"}
