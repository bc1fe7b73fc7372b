"""Rows come out of every format as they went in, quotes included, or with one clear message."""

import csv
import gzip
import io
import json
import lzma
import sys
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from bertmill.tasks.rows import Quotes, name_columns, read_rows
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.text.repair import Repairs

# What text repair changes cannot come back; that is tested in tests/text.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff") | st.sampled_from('",\t\n a')
LITERAL_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\t,\ufeff") | st.just('"')


def tables(characters: st.SearchStrategy[str]) -> st.SearchStrategy[list[list[str]]]:
    def rows(width: int) -> st.SearchStrategy[list[list[str]]]:
        return st.lists(st.lists(st.text(characters), min_size=width, max_size=width), min_size=1, max_size=8)

    return st.integers(2, 4).flatmap(rows)


def write(path: Path, content: bytes | str) -> str:
    packers = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(packers.get(path.suffix, bytes)(raw))
    return str(path)


def values(file: str, quotes: Quotes = "auto") -> list[list[str]]:
    return [list(row.fields.values()) for row in read_rows(file, quotes=quotes)]


def as_csv(rows: list[list[str]], separator: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    return file.getvalue()


@given(
    table=tables(CHARACTERS),
    separator=st.sampled_from("\t,"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_csv_writer_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], separator: str, quoting: int
) -> None:
    name = "a.csv" if separator == "," else "a.tsv"
    file = write(tmp_path_factory.mktemp("rows") / name, as_csv(table, separator, quoting))
    assert values(file, "standard") == table


@given(table=tables(LITERAL_CHARACTERS), separator=st.sampled_from("\t,"))
def test_literal_fields_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], separator: str
) -> None:
    name = "a.csv" if separator == "," else "a.tsv"
    file = write(tmp_path_factory.mktemp("rows") / name, "".join(f"{separator.join(row)}\n" for row in table))
    assert values(file, "literal") == table


TEXTS = ["plain", 'he said "hi"', "two\nlines", "a\ttab, a comma", '"', "", 'ends with "']


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("text", TEXTS)
def test_standard_quotes_are_recognised_by_a_single_field(tmp_path: Path, name: str, text: str) -> None:
    table = [["text", "label"], ["first", "0"], [text, "1"], ["last", "0"]]
    file = write(tmp_path / name, as_csv(table, "," if name == "a.csv" else "\t"))
    assert values(file) == table


def test_a_blank_line_inside_quotes_belongs_to_the_text_and_places_are_where_rows_begin(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'text,label\n"one\n\ntwo",1\n\nx,0\n')
    assert [(row.place, list(row.fields.values())) for row in read_rows(file)] == [
        (f"{file}:1", ["text", "label"]),
        (f"{file}:2", ["one\n\ntwo", "1"]),
        (f"{file}:6", ["x", "0"]),
    ]


@pytest.mark.parametrize(
    "content",
    [
        'text\tlabel\n"Then the captain was gone.\t1\n"Fairies" do not\t0\n',  # not closed, then not ended
        'text\tlabel\n"HEY HEY"\t1\nOk\t0\n',  # nothing in it needs quotes
        'text\tlabel\n"open\t0\nyes."\t1\n',  # would fit as one row, but fits as two
        'text\tlabel\n"open\t1\n',
        'text\tlabel\nshort\n"open\t1\n',  # the second row is a bad one either way
    ],
)
def test_quotes_of_tables_with_tabs_are_characters_unless_they_must_be_more(tmp_path: Path, content: str) -> None:
    assert values(write(tmp_path / "a.tsv", content)) == [line.split("\t") for line in content.splitlines()]


def test_quotes_of_a_csv_are_standard_unless_they_cannot_be(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.csv", 'text,label\n"HEY HEY",1\n'))[1] == ["HEY HEY", "1"]
    assert values(write(tmp_path / "b.csv", 'text,label\n"HEY" HEY,1\n'))[1] == ['"HEY" HEY', "1"]
    assert values(write(tmp_path / "c.csv", 'text,label\n"HEY",1\n"HEY" HEY,1\n'))[2] == ['"HEY" HEY', "1"]


@pytest.mark.parametrize(
    ("name", "row"),
    [("a.csv", '"a, and b",1'), ("a.csv", '"a","1"'), ("a.tsv", '"a ""b"""\t1'), ("a.tsv", '"a\tb"\t1')],
)
def test_one_wrong_quote_does_not_make_the_others_characters(tmp_path: Path, name: str, row: str) -> None:
    header, wrong = ("text,label", '"open,1') if name == "a.csv" else ("text\tlabel", '"open\t1')
    lines = [header, *[row] * 9, wrong]
    with pytest.raises(DataError, match=f"{name}:11: a quote that opens here is not closed"):
        values(write(tmp_path / name, "\n".join([*lines, header])))
    with pytest.raises(DataError, match=f"{name}:11: (has quotes|a quote) that"):
        values(write(tmp_path / name, "\n".join([*lines, *[row] * 9])))


def test_what_is_told_about_quotes_wins(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", 'text\tlabel\n"HEY"\t1\n')
    assert values(file, "standard")[1] == ["HEY", "1"]
    assert values(file, "literal")[1] == values(file)[1] == ['"HEY"', "1"]


def test_a_row_that_the_head_cuts_does_not_change_what_quotes_mean(tmp_path: Path) -> None:
    table = [["text", "label"], *([f'{number} "quoted"\nline', "1"] for number in range(50_000))]
    read = values(write(tmp_path / "a.tsv", as_csv(table, "\t")))
    assert read == table


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text,label\n"a"b,1\n', 'a.csv:2: has quotes that do not fit: "a"b; write quotes inside a quoted field twice'),
        ('text,label\n"a,1\nb" c,1\n', "a.csv:2: has quotes that do not fit"),  # where the row begins
        ('text,label\nx,1\n"a,1\n\n', "a.csv:3: a quote that opens here is not closed; write quotes"),
    ],
)
def test_wrong_quotes_stop_everything(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        values(write(tmp_path / "a.csv", content), "standard")
    assert message in str(caught.value)


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'text,label\n"open,1\n' + f"{'x' * 999},1\n" * 60_000)  # 60 MB
    tracemalloc.start()
    with pytest.raises(DataError, match="a quote that opens here is not closed"):
        values(file, "standard")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


@pytest.mark.parametrize("name", ["a.tsv", "a", "a.txt.gz", "a.tsv.xz", "a.tsv.zst"])
def test_compressed_files_are_read(tmp_path: Path, name: str) -> None:
    assert values(write(tmp_path / name, "a\tb\n1\t2\n")) == [["a", "b"], ["1", "2"]]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_marks_and_utf_16_are_understood(tmp_path: Path, encoding: str, name: str) -> None:
    content = "text\tlabel\r\n北京\t1\r\n" if name == "a.tsv" else '{"text": "北京", "label": "1"}\r\n'
    repairs = Repairs()
    rows = read_rows(write(tmp_path / name, content.encode(encoding)), repairs=repairs)
    rows = name_columns(rows) if name == "a.tsv" else rows
    assert [row.fields for row in rows] == [{"text": "北京", "label": "1"}]
    assert repairs.byte_order_marks == 1
    assert repairs.utf16 == (encoding == "utf-16")


def test_records_are_repaired_and_counted(tmp_path: Path) -> None:
    records = [{"text": "a\ud800", "labels": ["x\0", 1]}, {"text": "\\"}]
    file = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, records)))
    repairs = Repairs()
    rows = list(read_rows(file, repairs=repairs))
    assert [row.fields for row in rows] == [{"text": "a\ufffd", "labels": ["x\0", 1]}, {"text": "\\"}]
    assert [row.place for row in rows] == [f"{file}:1", f"{file}:3"]
    assert repairs == Repairs(lone_surrogates=1)  # NUL is no character that a text cannot hold


@pytest.mark.parametrize(
    ("name", "content", "reason", "what"),
    [
        ("a.jsonl", '{"a": 1}\n{"a"', "not a JSON object", "is not JSON: "),
        ("a.jsonl", '{"a": 1}\n[1]', "not a JSON object", "is not a JSON object (found: list)"),
        ("a.tsv", "a\tb\nx\n", "too few columns", "has 1 column, where the first row has 2"),
        ("a.tsv", "a\tb\nx\ty\tz\n", "too many columns", "has 3 columns, where the first row has 2"),
    ],
)
def test_a_bad_row_has_its_problem_with_it(tmp_path: Path, name: str, content: str, reason: str, what: str) -> None:
    good, bad = read_rows(write(tmp_path / name, content))
    assert good.problem is None
    assert bad.problem is not None
    assert bad.problem.reason == reason
    assert bad.problem.what.startswith(what)
    assert bad.place.endswith(":2")


@pytest.mark.parametrize(
    ("content", "fields"),
    [("a\tb\n", {"1": "a", "2": "b"}), ('{"text": "x"}\n', {"text": "x"}), ('"a\tb"\n', {"1": '"a', "2": 'b"'})],
)
def test_standard_input_is_a_table_or_records(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, fields: dict[str, str]
) -> None:
    with Path(write(tmp_path / "a", content)).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        (row,) = read_rows("-")
    assert row.fields == fields
    assert row.place == "-:1"


def test_parquet_is_read_by_name(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = str(tmp_path / "a.parquet")
    table = {"text": ["北\n京", None] * 2000, "label": [1, 0] * 2000, "choices": [["a", "b"], []] * 2000}
    parquet.write_table(arrow.table(table), file)
    rows = list(read_rows(file))
    assert len(rows) == 4000
    assert rows[0].fields == {"text": "北\n京", "label": 1, "choices": ["a", "b"]}
    assert rows[3999].place == f"{file}: row 4000"
    with pytest.raises(DataError, match=r"b.parquet: is not a whole .parquet file"):
        list(read_rows(write(tmp_path / "b.parquet", "text")))
    with pytest.raises(UsageError, match=r"c.parquet: cannot be read"):
        list(read_rows(str(tmp_path / "c.parquet")))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"a.parquet: reading .parquet needs pyarrow; pip install pyarrow"):
        list(read_rows(str(tmp_path / "a.parquet")))


def test_memory_stays_bounded(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", f'{"x" * 1000} "quoted"\t1\n' * 20_000)  # 20 MB
    tracemalloc.start()
    assert sum(1 for _ in read_rows(file)) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6  # the head, and its fields while quotes are looked at


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.tsv: cannot be read"):
        values(str(tmp_path / "none.tsv"))
    with pytest.raises(BertmillError, match="it looks binary"):
        values(write(tmp_path / "a.tsv", bytes(range(256)) * 100))
