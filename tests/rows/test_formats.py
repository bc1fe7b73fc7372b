"""Reading returns what was written, in every format; the suffix determines the format."""

from __future__ import annotations

import csv
import io
import json
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.rows.formats import json_record, read_records, read_table, repair_strings
from bertmill.rows.json_files import JsonObject
from bertmill.rows.row import Record
from bertmill.rows.source import RowFile
from bertmill.text.repair import Repairs
from tests.linear_time import assert_linear_time
from tests.rows.factory import row_file, write

# Text repair changes NUL, carriage returns, surrogates and byte order marks. Its tests are in tests/text.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff") | st.sampled_from('",\t\n a')
LITERAL_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\t\ufeff") | st.sampled_from(
    '",'
)


def tables(characters: st.SearchStrategy[str]) -> st.SearchStrategy[list[list[str]]]:
    def rows(width: int) -> st.SearchStrategy[list[list[str]]]:
        return st.lists(st.lists(st.text(characters), min_size=width, max_size=width), min_size=1, max_size=8)

    return st.integers(2, 4).flatmap(rows)


def cells(path: str, **settings: Any) -> list[list[str]]:
    return [row.values for row in read_table(row_file(path, **settings))]


def as_csv(rows: list[list[str]], separator: str = ",", quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO()
    csv.writer(file, delimiter=separator, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    return file.getvalue()


# Tables


@given(table=tables(CHARACTERS), quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
def test_reading_a_csv_returns_what_csv_writer_wrote(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], quoting: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "written.csv"
    assert cells(write(file, as_csv(table, quoting=quoting))) == table


@given(table=tables(CHARACTERS), separator=st.sampled_from("\t;|"))
def test_standard_quotes_work_with_any_separator(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], separator: str
) -> None:
    file = write(tmp_path_factory.getbasetemp() / "written.tsv", as_csv(table, separator))
    assert cells(file, separator=separator, quotes="standard") == table


@given(table=tables(LITERAL_CHARACTERS), name=st.sampled_from(["a.tsv", "a.txt", "a", "a.data"]))
def test_any_text_without_tabs_and_newlines_can_be_read_from_a_tsv(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]], name: str
) -> None:
    file = tmp_path_factory.getbasetemp() / name
    assert cells(write(file, "".join("\t".join(row) + "\n" for row in table))) == table


@given(table=tables(CHARACTERS.filter(lambda character: character not in ",\n")))
def test_literal_quotes_can_be_read_from_a_csv(
    tmp_path_factory: pytest.TempPathFactory, table: list[list[str]]
) -> None:
    file = write(tmp_path_factory.getbasetemp() / "literal.csv", "".join(",".join(row) + "\n" for row in table))
    assert cells(file, quotes="literal") == table


@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        ("a.csv", 'a,"b\tc"\n', {}, [["a", "b\tc"]]),
        ("a.CSV", 'a,"b"\n', {}, [["a", "b"]]),
        ("a.csv.gz", 'a,"b"\n', {}, [["a", "b"]]),
        ("a.csv.xz", 'a,"b"\n', {}, [["a", "b"]]),
        ("a.tsv.zst", 'a,"b"\t"c"\n', {}, [['a,"b"', '"c"']]),
        ("a.txt", 'a,"b"\t"c"\n', {}, [['a,"b"', '"c"']]),
        ("a", 'a,"b"\t"c"\n', {}, [['a,"b"', '"c"']]),
        ("a.tsv", 'a,"b"\n', {"format": "csv"}, [["a", "b"]]),
        ("a.csv", 'a,"b"\t"c"\n', {"format": "tsv"}, [['a,"b"', '"c"']]),
        ("a.csv", 'a;"b;c"\n', {"separator": ";"}, [["a", "b;c"]]),
        ("a.csv", 'a\t"b"\n', {"separator": "tab"}, [["a", "b"]]),
        ("a.csv", 'a;b\n"c,\nd";e\n', {}, [["a", "b"], ["c,\nd", "e"]]),
        ("a.csv", "a\tb;c\td\n1\t2\t3\n", {}, [["a", "b;c", "d"], ["1", "2", "3"]]),
        ("a.csv", '"a, or b";c\n', {}, [["a, or b", "c"]]),
        ("a.csv", "\n\na;b\n", {}, [["a", "b"]]),
        ("a.csv", "a;b,c\n", {}, [["a;b", "c"]]),
        ("a.csv", 'sep=|\na|"b;c"\n', {}, [["a", "b;c"]]),
        ("a.csv", '"sep=\t"\na\tb\n', {}, [["a", "b"]]),
        ("a.csv", "sep=,\na,b\n", {}, [["a", "b"]]),
        ("a.csv", "sep=;\na;b\n", {"separator": ";"}, [["a", "b"]]),
        ("a.tsv", "sep=;\na;b\n", {}, [["sep=;"], ["a;b"]]),
        ("a.csv", "a b\nc;d\n", {}, [["a b"], ["c;d"]]),
        ("a.csv", "a;b\n", {"separator": ","}, [["a;b"]]),
        ("a.csv", 'a;"b,c"\n', {"quotes": "literal"}, [['a;"b', 'c"']]),
        ("a.tsv", "a;b\n", {}, [["a;b"]]),
        ("a.tsv", 'a,"b"\n', {"separator": ","}, [["a", '"b"']]),
        ("a.tsv", 'a\t"b"\n', {"quotes": "standard"}, [["a", "b"]]),
        ("a.csv", 'a,"b"\n', {"quotes": "literal"}, [["a", '"b"']]),
    ],
)
def test_the_suffix_determines_the_format_unless_settings_override_it(
    tmp_path: Path, name: str, content: str, settings: dict[str, str], expected: list[list[str]]
) -> None:
    assert cells(write(tmp_path / name, content), **settings) == expected


@pytest.mark.parametrize(
    ("content", "notices"),
    [
        ("a;b\nc;d\n", ["the columns are separated by semicolons"]),
        ("a\tb\n", ["the columns are separated by tabs"]),
        ("sep=|\na|b\n", ["the columns are separated by '|'"]),
        ("a,b\n", []),
        ("a\n", []),
        ("", []),
    ],
)
def test_a_detected_separator_is_reported(tmp_path: Path, content: str, notices: list[str]) -> None:
    path = write(tmp_path / "a.csv", content)
    file = row_file(path)
    list(read_table(file))
    assert file.counts.notices == [f"{path}: {notice}" for notice in notices]
    file = row_file(path, separator=";")
    list(read_table(file))
    assert not file.counts.notices


def test_blank_lines_are_skipped_except_inside_quotes_and_places_are_where_rows_start(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", 'text,label\n"one\n\ntwo",1\n\nx,0\n')
    assert list(read_table(row_file(file))) == [
        (f"{file}:1", ["text", "label"]),
        (f"{file}:2", ["one\n\ntwo", "1"]),
        (f"{file}:6", ["x", "0"]),
    ]
    file = write(tmp_path / "a.tsv", "\na\tb\n\nc\td\n")
    assert list(read_table(row_file(file))) == [(f"{file}:2", ["a", "b"]), (f"{file}:4", ["c", "d"])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text,label\n"a"b,1\n', 'a.csv:2: malformed quotes in "a"b; quote the field and double the quotes'),
        ('text,label\na 3" pipe,1\nx,0\n', 'a.csv:2: malformed quotes in a 3" pipe; '),  # the field is not quoted
        ('text,label\nb "c",1\n', 'a.csv:2: malformed quotes in b "c"; '),
        ('text,label\n"a" "b",1\n', 'a.csv:2: malformed quotes in "a" "b"; '),
        ('text,label\n"a,1\nb" c,1\n', "a.csv:2: malformed quotes in "),  # the line where the row starts
        ('text,label\nx,1\n"a,1\n\n', "a.csv:3: a quote in this row is never closed; "),
        ('text,label\nx,"\n', "a.csv:2: a quote in this row is never closed; "),
    ],
)
def test_malformed_quotes_are_an_error_that_names_the_row_and_the_setting(
    tmp_path: Path, content: str, message: str
) -> None:
    file = write(tmp_path / "a.csv", content)
    with pytest.raises(DataError) as caught:
        cells(file)
    assert message in str(caught.value)
    assert "set `quotes='literal'" in str(caught.value)
    assert cells(file, quotes="literal") == [line.split(",") for line in content.splitlines() if line]


@pytest.mark.parametrize("cell", ['"He said ""yes""."', '""""', '"a ""b"" c"'])
def test_a_cell_of_a_tsv_that_looks_quoted_gives_exactly_one_warning(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path / "a.tsv", f"text\tlabel\nplain\t0\n{cell}\t1\n{cell}\t{cell}\n")
    file = row_file(path)
    assert [row.values for row in read_table(file)][2] == [cell, "1"]
    assert list(file.counts.remarks()) == [
        f"{path}:3: a cell looks CSV-quoted, but quotes are literal here; set `quotes='standard'` if quotes wrap fields"
    ]


@given(text=st.text(LITERAL_CHARACTERS))
def test_only_quoted_cells_that_contain_a_quote_give_a_warning(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    quoted = as_csv([[text, "x"]], "\t", csv.QUOTE_ALL).partition("\t")[0]
    file = row_file(write(tmp_path_factory.getbasetemp() / "warned.tsv", f"{quoted}\tx\n"))
    list(read_table(file))
    assert bool(file.counts.notices) == ('"' in text)


@pytest.mark.parametrize("cell", ['"HEY HEY"', '""', '"', 'he said ""hi""', '"open ""', '"a" "b"', '"Yes"" no'])
def test_quotes_in_ordinary_text_give_no_warning(tmp_path: Path, cell: str) -> None:
    file = row_file(write(tmp_path / "a.tsv", f"{cell}\t1\n"))
    assert [row.values for row in read_table(file)] == [[cell, "1"]]
    assert not file.counts.notices


@pytest.mark.parametrize("quotes", ["literal", "standard"])
def test_there_is_no_warning_if_quotes_is_set(tmp_path: Path, quotes: str) -> None:
    file = row_file(write(tmp_path / "a.tsv", '"a ""b"""\t1\n'), quotes=quotes)
    list(read_table(file))
    assert not file.counts.notices


def test_the_search_for_quoted_cells_takes_linear_time(tmp_path: Path) -> None:
    def read(text: str) -> None:
        list(read_table(row_file(write(tmp_path / "a.tsv", text))))

    assert_linear_time(read, '"' * 400_001)


@pytest.mark.parametrize(("line", "limit"), [(f"{'x' * 999},1\n", 1.5e6), ("\n" * 1000, 3.2e6)], ids=["long", "blank"])
def test_a_quote_that_is_never_closed_needs_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, limit: float
) -> None:
    monkeypatch.setattr("bertmill.rows.formats._MAX_ROW_CHARACTERS", 1 << 19)
    file = write(tmp_path / "a.csv", 'text,label\n"open,1\n' + line * 2_000)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"a\.csv:2: a quote in this row is never closed"):
        cells(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limit


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_tables_are_streamed(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, f'"{"x" * 1000} ""quoted""",\t1\n' * 20_000)  # 20 MB
    tracemalloc.start()
    assert sum(1 for _ in read_table(row_file(file))) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6


# Standard input


@pytest.mark.parametrize(
    ("content", "settings", "expected"),
    [
        ('"a,b\tc"\n', {}, ['"a,b', 'c"']),  # tab-separated with literal quotes
        ('"a,b",c\n', {"format": "csv"}, ["a,b", "c"]),
        ('"a;b";c\n', {"separator": ";", "quotes": "standard"}, ["a;b", "c"]),
    ],
)
def test_standard_input_is_a_tsv_unless_settings_override_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, settings: dict[str, str], expected: list[str]
) -> None:
    with Path(write(tmp_path / "stdin", content)).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert list(read_table(row_file("-", **settings))) == [("-:1", expected)]


def test_standard_input_may_contain_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Path(write(tmp_path / "stdin", '{"text": "x"}\n')).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert list(read_records(row_file("-", format="jsonl"))) == [Record("-:1", {"text": "x"})]


# Encodings


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_files_with_byte_order_marks_and_utf_16_are_read(tmp_path: Path, encoding: str, name: str) -> None:
    contents = {"a.tsv": "北京\t1\r\n", "a.csv": '"北京",1\r\n', "a.jsonl": '{"text": "北京"}\r\n'}
    file = row_file(write(tmp_path / name, contents[name].encode(encoding)))
    if name == "a.jsonl":
        (record,) = read_records(file)
        assert record.fields == {"text": "北京"}
    else:
        assert [row.values for row in read_table(file)] == [["北京", "1"]]
    assert file.counts.repairs.byte_order_marks == 1
    assert file.counts.repairs.utf16 == (encoding == "utf-16")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json"])
def test_the_encoding_of_a_file_can_be_set(tmp_path: Path, name: str) -> None:
    contents = {"a.tsv": "北京\t1\n", "a.csv": "北京;1\n"}
    path = write(tmp_path / name, contents.get(name, '{"text": "北京"}\n').encode("gb18030"))
    file = row_file(path, encoding="gb18030")
    if name in contents:
        assert [row.values for row in read_table(file)] == [["北京", "1"]]
    else:
        assert [record.fields for record in read_records(file)] == [{"text": "北京"}]
    assert not file.counts.repairs


def test_a_file_that_is_missing_or_binary_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.tsv: cannot be read"):
        cells(str(tmp_path / "none.tsv"))
    with pytest.raises(BertmillError, match="it looks binary"):
        cells(write(tmp_path / "a.tsv", bytes(range(256)) * 100))


# Records


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(st.text("abc", min_size=1), VALUES, min_size=1), min_size=1, max_size=5)


@given(records=RECORDS, ascii_only=st.booleans())
def test_reading_jsonl_and_json_returns_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], ascii_only: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines = "".join(f"{json.dumps(record, ensure_ascii=ascii_only)}\n" for record in records)
    whole = json.dumps(records, ensure_ascii=ascii_only)
    for name, content in (("a.jsonl", lines), ("a.json", whole)):
        read = list(read_records(row_file(write(folder / name, content))))
        assert [record.fields for record in read] == records


def test_records_are_repaired_and_counted(tmp_path: Path) -> None:
    records = [{"text": "a\ud800", "labels": ["x\0", 1]}, {"text": "\\"}]
    path = write(tmp_path / "a.jsonl", "\n\n".join(map(json.dumps, records)))
    file = row_file(path)
    read = list(read_records(file))
    assert [record.fields for record in read] == [{"text": "a\ufffd", "labels": ["x\0", 1]}, {"text": "\\"}]
    assert [record.place for record in read] == [f"{path}:1", f"{path}:3"]
    assert file.counts.repairs == Repairs(lone_surrogates=1)  # a record may contain NUL
    path = write(tmp_path / "a.json", json.dumps(records))
    file = row_file(path)
    assert [record.fields for record in read_records(file)] == [record.fields for record in read]
    assert file.counts.repairs == Repairs(lone_surrogates=1)


def test_strings_in_lists_and_objects_are_repaired() -> None:
    repairs = Repairs()
    assert repair_strings({"a": ["\udc00", {"b": "\ud800x"}, 1]}, repairs) == {"a": ["\ufffd", {"b": "\ufffdx"}, 1]}
    assert repairs == Repairs(lone_surrogates=2)


@pytest.mark.parametrize(
    ("line", "what"),
    [('{"a"', "is not JSON: "), ("[1]", "is not a JSON object (found: list)"), ("[" * 100_000, "is not JSON: ")],
)
def test_a_bad_line_of_a_jsonl_is_a_record_with_a_problem(tmp_path: Path, line: str, what: str) -> None:
    good, bad = read_records(row_file(write(tmp_path / "a.jsonl", f'{{"a": 1}}\n{line}')))
    assert good.problem is None
    assert bad.problem is not None
    assert bad.problem.reason == "not a JSON object"
    assert bad.problem.what.startswith(what)
    assert bad.place.endswith(":2")


def test_a_json_file_is_a_list_of_records_with_their_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '[\n{"text": "a", "id": "x1"},\n{"text": "b"},\n3]')
    first, second, third = read_records(row_file(path))
    assert first == Record(f"{path}:2, record 1", {"text": "a", "id": "x1"}, "x1")
    assert second == Record(f"{path}:3, record 2", {"text": "b"})
    assert third.problem is not None
    assert third.problem.what == "expected a JSON object, found a number"


def test_a_list_in_a_jsonl_is_one_clear_error(tmp_path: Path) -> None:
    for content in ('[\n{"text": "a"},\n{"text": "b"}\n]\n', '[{"text": "a"}]', '[{"text": "a"},\n {"text": "b"}]'):
        file = write(tmp_path / "a.jsonl", content)
        with pytest.raises(DataError) as caught:
            read_records(row_file(file))
        message = (
            "the file is one JSON array, not one record per line; rename it to end in .json, or set `format='json'`"
        )
        assert str(caught.value) == f"{file}: {message}"
        assert next(read_records(row_file(file, format="json"))).fields == {"text": "a"}
    lists = read_records(row_file(write(tmp_path / "b.jsonl", '["a", "x"]\n["b", "y"]\n')))
    assert [record.problem is None for record in lists] == [False, False]


def test_a_json_file_may_have_one_record_per_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '\n{"text": "a", "id": 3}\n\n{"text": \n{"text": "b"}')
    first, bad, last = read_records(row_file(path))
    assert first == Record(f"{path}:2", {"text": "a", "id": 3}, 3)
    assert bad.problem is not None
    assert bad.place == f"{path}:4"
    assert last == Record(f"{path}:5", {"text": "b"})


def test_a_json_file_with_one_record_per_line_is_streamed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", f'{{"text": "{"x" * 1000}"}}\n' * 20_000)  # 20 MB
    tracemalloc.start()
    assert sum(1 for _ in read_records(row_file(path))) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6


def test_a_key_selects_one_of_several_lists(tmp_path: Path) -> None:
    content = {"train": [["a", "x"], ["b", "y"]], "val": [["c", "x"]], "source": "web", "empty": []}
    path = write(tmp_path / "a.json", json.dumps(content))
    expected = {"train": [("a", "x"), ("b", "y")], "val": [("c", "x")], "empty": []}
    for key, rows in expected.items():
        found = read_records(row_file(f"{path}#{key}"))
        assert [record.fields for record in found] == [{"text": text, "label": label} for text, label in rows]
    with pytest.raises(UsageError) as caught:
        list(read_records(row_file(path)))
    lists = "train (2), val (1)"
    assert (
        str(caught.value)
        == f"{path}: the file has several lists of rows: {lists}; name one of them, as in {path}#train"
    )
    with pytest.raises(UsageError, match="the file has no key 'test'; its keys are train, val, source, empty"):
        read_records(row_file(f"{path}#test"))
    path = write(tmp_path / "b.json", '{"text": "a"}\n{"text": "b"}\n')
    with pytest.raises(UsageError, match="the file has one record per line, not a key 'train'; omit it"):
        read_records(row_file(f"{path}#train"))
    path = write(tmp_path / "c.json", '[{"text": "a"}]')
    with pytest.raises(UsageError, match="the file is not an object with a key 'train'; omit it"):
        read_records(row_file(f"{path}#train"))


def test_json_that_is_not_a_list_is_rejected_unless_a_task_reads_its_structure(tmp_path: Path) -> None:
    file = row_file(write(tmp_path / "a.json", '"a"'))
    with pytest.raises(DataError, match=r"a.json: expected a list of records \(found: string\); write a list, or one"):
        list(read_records(file))
    file = row_file(write(tmp_path / "a.json", '{"a": 1}'))

    def unfold(content: Any, file: RowFile) -> Iterator[Record] | None:
        return iter([json_record("here", content, file.counts.repairs)]) if isinstance(content, JsonObject) else None

    assert list(read_records(file, unfold)) == [Record("here", {"a": 1})]
    file = row_file(write(tmp_path / "b.json", '[{"a": 1}]'))
    assert [record.fields for record in read_records(file, unfold)] == [{"a": 1}]


# Parquet


def test_parquet_files_are_read_as_records(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    table = {"text": ["北\n京", None] * 2000, "label": [1, 0] * 2000, "choices": [["a", "b"], []] * 2000}
    parquet.write_table(arrow.table(table), path)
    records = list(read_records(row_file(path)))
    assert len(records) == 4000
    assert records[0].fields == {"text": "北\n京", "label": 1, "choices": ["a", "b"]}
    assert records[3999].place == f"{path}: row 4000"
    with pytest.raises(DataError, match=r"b.parquet: not a complete .parquet file"):
        list(read_records(row_file(write(tmp_path / "b.parquet", "text"))))
    with pytest.raises(UsageError, match=r"c.parquet: cannot be read"):
        list(read_records(row_file(tmp_path / "c.parquet")))


def test_reading_parquet_without_pyarrow_explains_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"a.parquet: reading .parquet files requires pyarrow; .*pip install pyarrow"):
        list(read_records(row_file(tmp_path / "a.parquet")))
