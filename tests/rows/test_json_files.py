"""JSON files have the same values as with the standard library, and objects and lists record their lines."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import DataError, UsageError
from bertmill.rows import json_files
from bertmill.rows.json_files import JsonList, JsonObject, line_of, listed_rows, parse_whole, type_of
from bertmill.text.files import read_file
from bertmill.text.repair import Repairs

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('ab{["\\\n中', max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab{[", max_size=3), inner, max_size=4),
    max_leaves=20,
)


def read(folder: Path, text: str) -> Any:
    (folder / "a.json").write_text(text, encoding="utf-8")
    return read_file_at(folder / "a.json")


def read_file_at(path: Path) -> Any:
    lines = read_file(str(path), repairs=Repairs(), max_line_characters=json_files.MAX_JSON_CHARACTERS)
    return parse_whole(lines, path.name)


def parts(value: Any) -> Iterator[JsonObject | JsonList]:
    """Yield all objects and lists in the order in which they start."""
    if isinstance(value, JsonObject | JsonList):
        yield value
        for item in value.values() if isinstance(value, JsonObject) else value:
            yield from parts(item)


@given(value=VALUES)
def test_values_match_the_standard_library_and_record_their_lines(tmp_path_factory: Any, value: Any) -> None:
    text = json.dumps(value, indent=1)
    found = read(tmp_path_factory.getbasetemp(), text)
    assert found == value
    # In an indented file, at most one object or list starts on each line, and its bracket ends the line.
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.rstrip(",]}").endswith(("{", "["))]
    assert [part.line for part in parts(found)] == lines


def test_the_line_of_a_string_or_number_is_that_of_its_container(tmp_path: Path) -> None:
    found = read(tmp_path, '\n[\n1, {"a": "b"}]')
    assert (line_of(found[0], found), line_of(found[1], found), line_of(found[1]["a"], found[1])) == (2, 3, 3)


def test_types_have_json_names(tmp_path: Path) -> None:
    found = read(tmp_path, '[{}, [], "", true, null, 1, 1.5]')
    assert list(map(type_of, found)) == ["object", "list", "string", "boolean", "null", "number", "number"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n\n{"a": 1},\n \n}', "a.json:5: invalid JSON: "),
        ('[\n{"a": 1},\n}', "a.json:3: invalid JSON: "),
        ("[" * 100_000, "a.json: invalid JSON: "),
        ("", "a.json:1: the file is empty"),
        ('{"a": 1}\n{"a": 2}\n', "a.json:2: invalid JSON: Extra data (character 1); write one list of records, or"),
    ],
)
def test_invalid_json_is_reported(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_blank_lines_need_no_memory(tmp_path: Path) -> None:
    text = "[" + "\n" * 1_000_000 + '{"a":\n1}, {"b": 1}]'
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    tracemalloc.start()
    found = read_file_at(tmp_path / "a.json")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [{"a": 1}, {"b": 1}]
    assert [line_of(item, found) for item in found] == [1_000_001, 1_000_002]
    assert peak < 2_000_000


def test_one_line_may_be_as_long_as_a_file(tmp_path: Path) -> None:
    text = "a" * ((1 << 24) + 1)
    assert read(tmp_path, f'["{text}"]') == [text]


def test_a_file_that_is_too_large_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertmill.rows.json_files.MAX_JSON_CHARACTERS", 10)
    with pytest.raises(DataError, match=r"the file has more than 10 characters; convert it to \.jsonl"):
        read(tmp_path, json.dumps([{"a": "b"}], indent=1))
    with pytest.raises(DataError, match=r"the line has more than 10 characters; convert it to \.jsonl"):
        read(tmp_path, json.dumps([{"a": "b"}]))


def rows(folder: Path, content: Any) -> list[Any]:
    return [item for _, item in listed_rows(read(folder, json.dumps(content)), "a.json")]


RECORDS = [{"text": "a", "label": 1}, {"text": "b", "label": 2}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (RECORDS, RECORDS),
        ([["a", "x"], ["b", "y"]], [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]),
        ({"data": RECORDS, "version": 2}, RECORDS),
        ({"train": [["a", "x"]], "labels": ["x", "y"]}, [{"text": "a", "label": "x"}]),
        ({"text": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 2}}, RECORDS),  # pandas
        ({"text": ["a", "b"], "label": [1, 2]}, RECORDS),
        (
            {"text": ["a", "b"], "label": [["x", "y"], []]},
            [{"text": "a", "label": ["x", "y"]}, {"text": "b", "label": []}],
        ),
        (
            {"tokens": [["a"], ["b"]], "tags": [["O"], ["X"]]},
            [{"tokens": ["a"], "tags": ["O"]}, {"tokens": ["b"], "tags": ["X"]}],
        ),
        (
            {"text": ["a", "b"], "choices": [["x", "y"], ["z", "w"]]},
            [{"text": "a", "choices": ["x", "y"]}, {"text": "b", "choices": ["z", "w"]}],
        ),
        ({"text": ["a", "b"], "label": [1]}, [{"text": ["a", "b"], "label": [1]}]),
        ({"text": [], "label": []}, [{"text": [], "label": []}]),
        (  # pandas, orient="split"
            {"columns": ["label", "text"], "index": [0, 1], "data": [["1", "a"], ["2", "b"]]},
            [{"text": "a", "label": "1"}, {"text": "b", "label": "2"}],
        ),
        ({"columns": ["text", "label"], "data": [["a", 1], ["b", 2]]}, RECORDS),
        (RECORDS[0], RECORDS[:1]),
        ({"words": ["a", "b"], "tags": ["O", "O"]}, [{"words": ["a", "b"], "tags": ["O", "O"]}]),
        ({"text": {"0": "a"}, "label": {"1": 1}}, [{"text": {"0": "a"}, "label": {"1": 1}}]),
        ([3, ["a", "b", "c"], ["a", 1]], [3, ["a", "b", "c"], ["a", 1]]),  # each is a bad row
        ([], []),
    ],
)
def test_rows_are_found_in_every_structure(tmp_path: Path, content: Any, expected: list[Any]) -> None:
    assert rows(tmp_path, content) == expected


def test_several_lists_of_rows_are_ambiguous(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"several lists of rows: train \(2\), dev \(2\); name one of them, as in a.json#train"
    ):
        rows(tmp_path, {"train": RECORDS, "dev": RECORDS})
    with pytest.raises(UsageError, match=r"rows: 0 \(2\), .*, 9 \(2\) …; name one of them, as in a.json#0$"):
        rows(tmp_path, {str(number): RECORDS for number in range(1000)})


@given(records=st.lists(st.fixed_dictionaries({"text": st.text(), "label": st.integers()}), min_size=1, max_size=5))
def test_columns_by_row_number_are_the_same_rows(tmp_path_factory: Any, records: list[dict[str, Any]]) -> None:
    by_column = {name: {str(i): record[name] for i, record in enumerate(records)} for name in ("text", "label")}
    assert rows(tmp_path_factory.getbasetemp(), by_column) == records
