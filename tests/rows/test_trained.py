"""A model records how its training rows were read, and similar files are read in the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertmill.errors import IntegrityError
from bertmill.rows.columns import Columns
from bertmill.rows.fields import read_fields
from bertmill.rows.source import RowFile
from bertmill.rows.trained import recorded_rows, trained_rows
from tests.rows.factory import read_labeled, row_file, write

TABLE = "clase;comentario\nham;hello\nspam;win\n"
COLUMNS = {"text": "comentario", "label": "clase"}


def record(path: str, **settings: Any) -> dict[str, Any]:
    """Read a file and return what is recorded, as it comes back from a file."""
    file = row_file(path, **settings)
    list(read_labeled(file))
    recorded: dict[str, Any] = json.loads(json.dumps(recorded_rows(file)))
    return recorded


def test_columns_and_given_settings_are_recorded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv.gz", TABLE)
    given = {"columns": "text=comentario,label=clase"}
    assert record(path, **given) == {"suffix": ".csv", "detected_separator": ";", "columns": COLUMNS}
    settings = {"separator": ";", "quotes": "literal", "format": "tsv"}
    assert record(path, **given, **settings) == {"suffix": ".csv", **settings, "columns": COLUMNS}
    known = write(tmp_path / "b.tsv", "Label\tSMS\nham\thello\n")
    assert record(known)["columns"] == COLUMNS | {"text": "SMS", "label": "Label"}


def test_columns_by_number_are_recorded_as_such(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "hello there\tham\n")
    recorded = record(path, columns="text=1,label=2")
    assert recorded == {"suffix": ".tsv", "columns": {"text": "1", "label": "2", "has_header": False}}
    trained = trained_rows(recorded, "m")
    assert trained is not None
    assert trained.columns == Columns("1", label="2", has_header=False)


def test_a_file_with_parallel_tags_has_one_sentence_per_line() -> None:
    file = RowFile("seq.in", tags=Path("seq.out"))
    recorded = recorded_rows(file)
    assert recorded == {"suffix": ".in", "format": "sentences"}
    new, trained = row_file("new.in"), trained_rows(recorded, "m")
    assert trained is not None
    trained.apply_to(new)
    assert new.format == "sentences"


def test_columns_are_not_recorded_for_formats_without_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "__label__x one\n")
    file = row_file(path)
    assert recorded_rows(file) == {"suffix": ".txt"}


def test_settings_apply_to_files_with_the_same_suffix_unless_one_of_them_is_given() -> None:
    trained = trained_rows({"suffix": ".txt", "separator": ";", "quotes": "standard", "columns": COLUMNS}, "m")
    assert trained is not None
    for path, given, separator in [
        ("b.txt.gz", {}, ";"),
        ("b.csv", {}, None),
        ("-", {}, None),
        ("b.txt", {"separator": "|"}, "|"),
        ("b.txt", {"format": "jsonl"}, None),
        ("b.txt", {"quotes": "literal"}, None),
    ]:
        file = row_file(path, **given)
        trained.apply_to(file)
        assert file.settings.separator == separator
        assert file.settings.quotes == (given.get("quotes") or ("standard" if separator == ";" else None))
        assert file.trained_columns == Columns("comentario", label="clase")


def test_a_model_without_this_record_reads_as_usual() -> None:
    assert trained_rows(None, "m") is None


@pytest.mark.parametrize(
    "recorded",
    [
        3,
        {},
        {"suffix": 3},
        {"suffix": ".csv", "separator": "ab"},
        {"suffix": ".csv", "columns": {"txt": "a"}},
        {"suffix": ".csv", "columns": {"text": "a", "choices": [3]}},
        {"suffix": ".csv", "columns": {"text": "a", "has_header": False}},
    ],
)
def test_a_damaged_record_is_an_integrity_error(recorded: Any) -> None:
    with pytest.raises(IntegrityError, match="m: has no valid settings for reading rows; fine-tune again"):
        trained_rows(recorded, "m")


def test_the_separator_of_the_training_rows_is_used_if_the_first_line_has_none(tmp_path: Path) -> None:
    recorded = record(write(tmp_path / "a.csv", TABLE), columns="text=comentario,label=clase")
    assert recorded["detected_separator"] == ";"
    trained = trained_rows(recorded, "m")
    assert trained is not None
    path = write(tmp_path / "one.csv", "comentario\nwell, hello\n")
    for name, content, texts in [
        ("one.csv", "comentario\nwell, hello\n", ["well, hello"]),
        ("two.csv", 'id,comentario\n1,"a;b"\n', ["a;b"]),
        ("one.tsv", "comentario\na;b\n", ["a;b"]),
    ]:
        file = row_file(write(tmp_path / name, content))
        trained.apply_to(file)
        assert [record.fields["text"] for record in read_fields(file, labeled=False)] == texts
    file = row_file(path)
    trained.apply_to(file)
    list(read_fields(file, labeled=False))
    assert f"{path}: the columns are separated by semicolons, as in training" in file.counts.notices
