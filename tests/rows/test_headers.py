"""A row that seems to be a header is reported or rejected, and ordinary rows are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bertmill.errors import DataError
from bertmill.rows.fields import read_fields
from tests.rows.factory import row_file, write

ROWS = [f"{'ham' if number % 2 else 'spam'}\tthe lazy dog number {number}" for number in range(8)]
BY_NUMBER = {"columns": "text=2,label=1"}


def read(folder: Path, *lines: str, labeled: bool = True, **settings: Any) -> tuple[int, list[str]]:
    """Return the number of rows and the notices."""
    file = row_file(write(folder / "a.tsv", "".join(f"{line}\n" for line in lines)), **settings)
    num_rows = len(list(read_fields(file, labeled=labeled)))
    return num_rows, [notice.removeprefix(f"{file.path}:") for notice in file.counts.notices]


def test_ordinary_rows_are_not_reported(tmp_path: Path) -> None:
    assert read(tmp_path, *ROWS, **BY_NUMBER) == (8, [])
    assert read(tmp_path, "label\ttext", *ROWS) == (8, [])


@pytest.mark.parametrize("labeled", [True, False])
def test_a_first_row_that_looks_like_a_header_is_reported(tmp_path: Path, labeled: bool) -> None:
    num_rows, notices = read(tmp_path, "clase\tcomentario", *ROWS, labeled=labeled, **BY_NUMBER)
    assert num_rows == 9
    assert notices == [
        "1: the first row looks like a header (comentario, clase), but is read as a row; "
        "if it is a header, set `columns='text=comentario,label=clase'`"
    ]


def test_a_header_of_numbers_is_reported_too(tmp_path: Path) -> None:
    (notice,) = read(tmp_path, "0\t1", *ROWS, **BY_NUMBER)[1]
    assert notice == (
        "1: the first row looks like a header (1, 0), but is read as a row; if it is a header, "
        "rename the columns: in `columns`, names cannot contain commas, and cannot all be numbers"
    )


def test_a_first_row_of_known_names_is_rejected_if_columns_are_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a header \(SMS, Label\); set `columns='text=SMS,label=Label'`$"):
        read(tmp_path, "Label\tSMS", *ROWS, **BY_NUMBER)


def test_the_first_line_of_a_file_of_texts_is_reported_if_it_looks_like_a_header(tmp_path: Path) -> None:
    texts = [row.partition("\t")[2] for row in ROWS]
    assert read(tmp_path, *texts, labeled=False) == (8, [])
    assert read(tmp_path, "text", *texts, labeled=False) == (8, [])
    num_rows, (notice,) = read(tmp_path, "comentario", *texts, labeled=False)
    assert num_rows == 9
    assert notice.endswith("is read as a row; if it is a header, set `columns='text=comentario'`")


def test_notices_have_no_control_characters(tmp_path: Path) -> None:
    file = row_file(
        write(tmp_path / "a\x1b[1m.csv", "label;te\x1bxt\n" + "spam;a text of some words\n" * 9), **BY_NUMBER
    )
    list(read_fields(file, labeled=True))
    notices = list(file.counts.remarks())
    assert len(notices) == 2
    assert all(notice.isprintable() for notice in notices)


def test_a_label_that_only_the_first_row_has_is_reported(tmp_path: Path) -> None:
    long_name = "this is what the customer wrote to us"  # too long for the name of a column
    num_rows, notices = read(tmp_path, f"clase\t{long_name}", *ROWS, **BY_NUMBER)
    assert num_rows == 9
    assert notices == [
        f"1: only this row has the label 'clase'; if it is a header, set `columns='text={long_name},label=clase'`"
    ]


@pytest.mark.parametrize("label", ["7", "a|b", "Yes."])
def test_labels_that_are_no_names_are_not_reported(tmp_path: Path, label: str) -> None:
    assert read(tmp_path, f"{label}\tan ordinary text of some length", *ROWS, **BY_NUMBER) == (9, [])


def test_a_header_that_occurs_again_is_reported(tmp_path: Path) -> None:
    num_rows, notices = read(tmp_path, "label\ttext", *ROWS, "label\ttext", *ROWS, "label\ttext")
    assert num_rows == 18
    assert notices == ["10: the header occurs again as a row (2 ×); remove it"]


def test_a_single_row_whose_label_is_the_name_of_its_column_is_reported(tmp_path: Path) -> None:
    assert read(tmp_path, "label\ttext", *ROWS, "label\tsome text")[1] == [
        "10: only this row has the label 'label'; if it is a header, remove it"
    ]
    assert read(tmp_path, "spam\tSMS", *ROWS, columns="text=SMS,label=spam") == (8, [])  # also a class
