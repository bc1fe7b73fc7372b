"""Columns come from settings or from common names; otherwise an error explains which setting to use."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import RowSettings
from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.columns import PRESETS, Columns, given_columns, parse_columns, read_fields, recognise_columns
from bertmill.rows.row import Record
from tests.rows.factory import read_labelled, row_file, write, write_records


def read(path: str, *, labelled: bool = True, **settings: Any) -> list[Record]:
    return list(read_fields(row_file(path, **settings), labelled=labelled))


def fields(path: str, *, labelled: bool = True, **settings: Any) -> list[Mapping[str, Any]]:
    return [record.fields for record in read(path, labelled=labelled, **settings)]


# Columns from settings


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("text=sentence,label=label", Columns("sentence", label="label")),
        ("text=4,label=2", Columns("4", label="2", has_header=False)),
        ("text=4,label=y2", Columns("4", label="y2")),
        (" text = #1 String , pair=a=b ", Columns("#1 String", "a=b")),
        ("text=ctx,pair=stem,choices=a+b+c,label=answer", Columns("ctx", "stem", "answer", ("a", "b", "c"))),
        ("text=q,choices=options", Columns("q", choices=("options",))),
    ],
)
def test_columns_are_given_by_name_or_by_number(text: str, columns: Columns) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns '' is invalid at ''"),
        ("sentence", "is invalid at 'sentence'; write KEY=COLUMN,… with each of text, pair, label, choices"),
        ("text=a,txt=b", "is invalid at 'txt=b'"),
        ("text=a,text=b", "is invalid at 'text=b'"),
        ("text=", "is invalid at 'text='"),
        ("label=a", "does not name a text; add text=COLUMN"),
        ("text=a,label=a", "repeats a column"),
        ("text=a,choices=b++c", "or has an empty name"),
        ("text=0,label=1", "column numbers start at 1"),
    ],
)
def test_columns_that_cannot_be_parsed_are_rejected(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_columns(text)
    assert message in str(caught.value)


def test_presets_and_columns_cannot_be_combined() -> None:
    assert given_columns(RowSettings(preset="cola")) == Columns("4", label="2", has_header=False)
    assert given_columns(RowSettings()) is None
    with pytest.raises(UsageError, match="columns and preset cannot be used together"):
        given_columns(RowSettings(columns="text=a", preset="cola"))
    with pytest.raises(UsageError, match=r"there is no preset called 'sst3'; did you mean sst2\?; known: sst2, cola"):
        given_columns(RowSettings(preset="sst3"))


def test_a_table_without_a_header_is_read_by_column_number(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "gj04\t1\t\tOne text.\ngj04\t0\t*\tAnother.\n")
    expected = [{"text": "One text.", "label": "1"}, {"text": "Another.", "label": "0"}]
    assert fields(file, columns="text=4,label=2") == fields(file, preset="cola") == expected
    assert [record.place for record in read(file, preset="cola")] == [f"{file}:1", f"{file}:2"]


def test_columns_that_are_not_named_are_not_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "text,pair,label,score\na,b,c,d\n")
    assert fields(file, columns="text=pair,label=score") == [{"text": "b", "label": "d"}]


def test_choices_come_from_several_columns_or_from_one_list(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "q,a,b,right\nwhy,this,that,1\n")
    expected = [{"text": "why", "label": "1", "choices": ["this", "that"]}]
    assert fields(file, columns="text=q,label=right,choices=a+b") == expected
    file = write_records(tmp_path / "a.jsonl", {"q": "why", "right": "1", "all": ["this", "that"]})
    assert fields(file, columns="text=q,label=right,choices=all") == expected


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("text=nothing,label=label", "a.tsv:1: there is no column 'nothing'; the first row is text = 'text', label = "),
        ("text=text,label=twice", "a.tsv:1: there is more than one column 'twice'"),
        ("text=7,label=2", "a.tsv:1: there is no column '7'; the first row is 1 = 'text', 2 = 'label'"),
        ("text=1,label=2", "a.tsv:1: the first row looks like a header: text, label; use names instead of numbers"),
        ("text=text", "columns does not name a label; add label=COLUMN"),
    ],
)
def test_columns_that_do_not_match_the_file_are_rejected(tmp_path: Path, columns: str, message: str) -> None:
    with pytest.raises(BertmillError) as caught:
        fields(write(tmp_path / "a.tsv", "text\tlabel\ttwice\ttwice\na\t1\t2\t3\n"), columns=columns)
    assert message in str(caught.value)
    assert "columns" in str(caught.value)


def test_a_missing_column_is_a_problem_of_the_record(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"text": "a", "label": 1}, {"text": "b"})
    good, bad = read(file)
    assert good == Record(f"{file}:1", {"text": "a", "label": 1})
    assert bad.problem is not None
    assert (bad.problem.reason, bad.problem.what) == ("missing column", "this row has no column 'label'")


# Common names


HEADERS = {
    "sst2": "sentence\tlabel",
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
    "stsb": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "qnli": "index\tquestion\tsentence\tlabel",
    "mnli": "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse"
    "\tsentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "swag": "\tvideo-id\tfold-ind\tstartphrase\tsent1\tsent2\tgold-source\tending0\tending1\tending2\tending3\tlabel",
}


@pytest.mark.parametrize("preset", sorted(PRESETS.keys() - {"cola"}))
def test_the_headers_of_glue_are_recognized_without_a_preset(tmp_path: Path, preset: str) -> None:
    names = HEADERS[preset].split("\t")
    row = "\t".join(f"value of {name}" for name in names)
    file = write(tmp_path / "a.tsv", f"{HEADERS[preset]}\n{row}\n")
    columns = PRESETS[preset]
    (found,) = fields(file)
    assert found["text"] == f"value of {columns.text}"
    assert found.get("pair") == (columns.pair and f"value of {columns.pair}")
    assert found["label"] == f"value of {columns.label}"
    assert found.get("choices", []) == [f"value of {name}" for name in columns.choices]
    assert fields(file, preset=preset) == [found]


@pytest.mark.parametrize("preset", ["sst2", "rte"])
def test_a_preset_does_not_require_a_label_for_prediction(tmp_path: Path, preset: str) -> None:
    header = HEADERS[preset].removesuffix("\tlabel")
    file = write(tmp_path / "a.tsv", f"{header}\n{header}\n")
    assert [set(row) for row in fields(file, preset=preset, labelled=False)] == [
        {"text"} if preset == "sst2" else {"text", "pair"}
    ]
    with pytest.raises(DataError, match="there is no column 'label'"):
        fields(file, preset=preset)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "Label\tSMS\nham\tOk\n", {"text": "Ok", "label": "ham"}),
        ("a.csv", "id, Review ,class\n1,good,1\n", {"text": "good", "label": "1"}),
        ("a.tsv", "label\tcomentario\n1\tbueno\n", {"text": "bueno", "label": "1"}),  # the only other column
        ("a.jsonl", 'not JSON\n{"text": "a", "label": 1}\n', {"text": "a", "label": 1}),
        (
            "a.jsonl",
            '{"premise": "a", "hypothesis": "b", "label": 1}\n',
            {"text": "a", "pair": "b", "label": 1},
        ),
        (
            "a.jsonl",
            '{"context": "c", "question": "q", "options": ["a", "b"], "answer": 1}\n',
            {"text": "c", "pair": "q", "label": 1, "choices": ["a", "b"]},
        ),
        ("a.jsonl", '{"question": "q", "endings": "no list", "label": "b"}\n', {"text": "q", "label": "b"}),
        ("a.json", '[{"sentence": "a", "label": null}]', {"text": "a", "label": None}),
    ],
)
def test_common_names_are_recognized_in_headers_and_records(
    tmp_path: Path, name: str, content: str, expected: dict[str, Any]
) -> None:
    assert fields(write(tmp_path / name, content))[-1] == expected


@pytest.mark.parametrize(
    "content",
    [
        "gj04\t1\t\tOne text.\ngj04\t0\t*\tAnother.\n",  # no header
        "spam\tBuy now!\nham\tSee you.\n" * 10,  # values are not considered
        "text number 1\tpos\ntext number 2\tneg\n",
        "text\treview\tlabel\na\tb\t1\n",  # two texts
        "text\tlabel\tscore\na\tb\t1\n",  # two labels
        "Text\ttext\tlabel\na\tb\t1\n",
        "text\tid\tother\na\tb\t1\n",  # no label
        "index\tsentence\n0\tA text\n1\tAnother\n",  # two columns, but no label
    ],
)
def test_columns_without_known_names_need_a_setting(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError) as caught:
        fields(write(tmp_path / "a.tsv", content))
    assert "a.tsv:1: cannot tell which columns hold the text and the label: 1 = '" in str(caught.value)
    assert "; set columns to text=COLUMN,label=COLUMN, with header names, or with numbers" in str(caught.value)


def test_the_keys_of_a_record_without_known_names_are_listed(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"id": 3, "body_text": "x" * 50})
    with pytest.raises(DataError, match=rf"id = '3', body_text = '{'x' * 30}…'; set columns to text=COLUMN"):
        fields(file)


def test_a_table_with_one_column_has_no_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.tsv:1: .*text,label.*; separate columns with commas in a \.csv file and"):
        fields(write(tmp_path / "a.tsv", "text,label\nfine,1\n"))


# Rows without labels


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("A text\nAnother, with a comma\n", ["A text", "Another, with a comma"]),
        ("sentence\nA text\n", ["A text"]),
        (" Text \nA text\n", ["A text"]),
        ("index\tsentence\n0\tA text\n", ["A text"]),
        ("text\tlabel\tscore\na\tb\t1\n", ["a"]),
        ("label\tcomentario\n1\tbueno\n", ["bueno"]),
    ],
)
def test_texts_are_found_without_labels(tmp_path: Path, content: str, texts: list[str]) -> None:
    file = write(tmp_path / "a.txt", content)
    assert fields(file, labelled=False) == [{"text": text} for text in texts]


def test_several_columns_without_known_names_need_a_setting_for_prediction_too(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "ham\tText number 1\nspam\tText number 2\n")
    with pytest.raises(DataError, match=r"which columns hold the text: 1 = 'ham', 2 = .*set columns to text="):
        fields(file, labelled=False)
    assert fields(file, labelled=False, columns="text=2")[1] == {"text": "Text number 2"}


def test_labels_are_ignored_for_prediction(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": {}})
    expected = [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert fields(file, labelled=False) == expected
    assert fields(file, labelled=False, columns="text=text,label=label") == expected


def test_a_missing_label_column_is_an_error_only_if_labels_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "index\tsentence\n0\tA text\n")
    given = "text=sentence,label=label"
    assert fields(file, labelled=False, columns=given) == [{"text": "A text"}]
    with pytest.raises(DataError, match=r"a.tsv:1: there is no column 'label'; the first row is index = 'index'"):
        fields(file, columns=given)


def test_a_header_is_not_read_as_a_row_for_prediction_either(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="looks like a header: sentence, label"):
        fields(write(tmp_path / "a.tsv", "sentence\tlabel\nA text\t1\n"), columns="text=1,label=2", labelled=False)


# Rows that differ from the first


@pytest.mark.parametrize(
    ("row", "reason", "what"),
    [
        ("x", "too few columns", "this row has 1 column, but the first row has 3"),
        ("x\ty", "too few columns", "this row has 2 columns, but the first row has 3"),
        ("x\ty\tz\t", "too many columns", "this row has 4 columns, but the first row has 3"),
    ],
)
def test_a_row_with_another_number_of_columns_is_a_bad_row(tmp_path: Path, row: str, reason: str, what: str) -> None:
    _, bad = read(write(tmp_path / "a.tsv", f"text\tlabel\tid\na\tb\tc\n{row}\n"))
    assert bad.problem is not None
    assert (bad.problem.reason, bad.problem.what) == (reason, what)
    assert bad.problem.remedy == "correct it, or check separator and quotes"


def test_a_second_text_that_the_first_record_does_not_have_is_an_error(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b", "pair": "c", "label": "y"})
    good, bad = read(file)
    assert good.problem is None
    assert bad.problem is not None
    assert bad.problem.what == "this row has a second text in 'pair', but the first row has only one text"
    assert fields(file, columns="text=text,label=label") == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


# Files


@pytest.mark.parametrize("name", ["a.conll", "a.tsv"])
def test_a_format_of_another_task_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError, match=r"this task cannot read the format conll; .* to one of tsv, csv, jsonl, json, par"
    ):
        fields(write(tmp_path / name, "text\tlabel\na\tb\n"), format="conll")


@pytest.mark.parametrize("settings", [{"quotes": "literal"}, {"separator": ";"}])
def test_table_settings_are_rejected_for_records(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f": {next(iter(settings))} cannot be used with this task and format"):
        fields(write_records(tmp_path / "a.jsonl", {"text": "a", "label": "b"}), **settings)


def test_reading_an_endless_file_of_bad_records_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = repeat(Record("-:1", {}, problem=BadRowError("bad", "bad")))
    monkeypatch.setattr("bertmill.rows.columns.read_records", lambda file, unfold: endless)
    with pytest.raises(DataError, match="1,000 of 1,000 rows"):
        list(read_labelled(row_file("-", format="jsonl", on_bad_row="skip")))


def test_parquet_gives_the_same_fields(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = str(tmp_path / "a.parquet")
    parquet.write_table(arrow.table({"sentence": ["one", "two"], "label": [0, 1]}), file)
    assert fields(file) == [{"text": "one", "label": 0}, {"text": "two", "label": 1}]


# Common names


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Label", "SMS"], Columns("SMS", label="Label")),
        (["id", " Review ", "class"], Columns(" Review ", label="class")),
        (["premise", "hypothesis", "gold"], Columns("premise", "hypothesis", "gold")),
        (["question", "sentence", "label"], Columns("question", "sentence", "label")),
        (["Quality", "#1 String", "#2 String"], Columns("#1 String", "#2 String", "Quality")),
        (["question", "label"], Columns("question", label="label")),
        (["text", "review", "label"], None),  # two texts
        (["text", "label", "score"], Columns("text")),  # two labels
        (["Text", "text", "label"], None),  # a repeated name
        (["text", "pair", "premise", "hypothesis"], None),  # two pairs
        (["a", "b"], None),
    ],
)
def test_texts_pairs_and_labels_are_recognized_if_they_are_unambiguous(
    names: list[str], expected: Columns | None
) -> None:
    assert recognise_columns(names) == expected
    assert recognise_columns(names, labelled=True) == (expected if expected and expected.label else None)


@pytest.mark.parametrize(
    ("names", "lists", "choices"),
    [
        (["sent1", "sent2", "ending0", "ending1"], [], ("ending0", "ending1")),
        (["question", "Option A", "option_b"], [], ("Option A", "option_b")),
        (["question", "choice1"], [], ()),  # a single column is not a set of choices
        (["question", "options"], ["options"], ("options",)),
        (["question", "options"], [], ()),  # not a list
        (["question", "choices", "endings"], ["choices", "endings"], ()),
    ],
)
def test_choices_are_recognized_in_several_columns_or_a_list(
    names: list[str], lists: list[str], choices: tuple[str, ...]
) -> None:
    columns = recognise_columns(names, lists)
    assert columns is not None
    assert columns.choices == choices


@given(names=st.lists(st.text("textlab 12SMS", max_size=6)))
def test_recognized_columns_are_columns_of_the_file(names: list[str]) -> None:
    columns = recognise_columns(names)
    assert columns is None or set(columns.names) <= set(names)
