"""Fields come from the columns of settings, of the model or of common names; otherwise an error suggests a setting."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from bertmill.config.notation import setting
from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.columns import PRESETS, Columns
from bertmill.rows.fields import read_fields
from bertmill.rows.row import Record
from tests.rows.factory import read_labeled, row_file, suggested_columns, write, write_records


def read(path: str, *, labeled: bool = True, **settings: Any) -> list[Record]:
    return list(read_fields(row_file(path, **settings), labeled=labeled))


def fields(path: str, *, labeled: bool = True, **settings: Any) -> list[Mapping[str, Any]]:
    return [record.fields for record in read(path, labeled=labeled, **settings)]


# Columns from settings


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
        (
            "text=nothing,label=label",
            "a.tsv:1: there is no column 'nothing'; the columns are text = 'a', label = '1'; ",
        ),
        ("text=text,label=twice", "a.tsv:1: there is more than one column 'twice'"),
        ("text=7,label=2", "a.tsv:1: there is no column '7'; the columns are text = 'a', label = '1'; set `columns='"),
        ("text=1,label=2", "a.tsv:1: the first row looks like a header (text, label); set `columns='text=text,label="),
        ("text=text", "`columns` does not name a label; add label=COLUMN"),
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
    assert [set(row) for row in fields(file, preset=preset, labeled=False)] == [
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


def suggestion(path: str, *, labeled: bool = True, **settings: Any) -> str:
    """Return the value of `columns` that the error for a file suggests."""
    with pytest.raises(DataError) as caught:
        fields(path, labeled=labeled, **settings)
    return suggested_columns(caught.value.remedy)


TEXTS = [f"the quick fox number {number} jumps" for number in range(12)]
OTHERS = [f"a lazy dog number {number} sleeps" for number in range(12)]
LABELS = ["yes", "no", "maybe"] * 4
CODES = ["A", "B"] * 6
DATES = ["2020-01-02", "2020-01-03"] * 6
IDS = [str(number) for number in range(12)]


def table(header: str, *columns: list[str]) -> str:
    rows = ["\t".join(cells) for cells in zip(*columns, strict=True)]
    return "\n".join([header.replace(",", "\t"), *rows] if header else rows) + "\n"


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        ("", [LABELS, TEXTS], "text=2,label=1"),
        ("", [IDS, LABELS, TEXTS, OTHERS], "text=3,pair=4,label=2"),
        ("", [["北京欢迎你们。", "今天天气很好。"] * 6, LABELS], "text=1,label=2"),
        ("", [["text number 1", "text number 2"], ["pos", "neg"]], "text=1,label=2"),
        ("clase,comentario", [LABELS, TEXTS], "text=comentario,label=clase"),
        ("row_id,when,clase,comentario", [IDS, DATES, LABELS, TEXTS], "text=comentario,label=clase"),
        ("first one,second one,same", [TEXTS, OTHERS, LABELS], "text=first one,pair=second one,label=same"),
        ("text,review,label", [TEXTS, OTHERS, LABELS], "text=text,pair=review,label=label"),
        ("source,a,b,gold", [["x"] * 12, TEXTS, OTHERS, LABELS], "text=a,pair=b,label=gold"),
        ("sentence1,a,sentence2,stars", [TEXTS, OTHERS, OTHERS, LABELS], "text=sentence1,pair=sentence2,label=stars"),
        ("index,sentence,kind", [["0", "1"], ["A text", "Another"], ["x", "y"]], "text=sentence,label=kind"),
        ("name,points", [["Anna", "Bo", "Cleo", "Dora"], ["0.5", "1.5", "2", "3.25"]], "text=name,label=points"),
        ("text,label,score", [TEXTS, LABELS, IDS], "text=text,label=COLUMN"),
        ("comentario,clase,pais", [TEXTS, LABELS, CODES], "text=comentario,label=COLUMN"),
        ("a,b,c,clase", [TEXTS, OTHERS, TEXTS, LABELS], "text=COLUMN,pair=COLUMN,label=clase"),
    ],
)
def test_an_error_for_unknown_columns_suggests_those_that_fit_the_file(
    tmp_path: Path, header: str, columns: list[list[str]], expected: str
) -> None:
    file = write(tmp_path / "a.tsv", table(header, *columns))
    assert suggestion(file) == expected
    if "COLUMN" not in expected:
        names = header.split(",") if header else [str(number + 1) for number in range(len(columns))]
        values = dict(zip(names, columns, strict=True))
        wanted = {field: values[name] for field, name in (part.split("=") for part in expected.split(","))}
        rows = [dict(zip(wanted, cells, strict=True)) for cells in zip(*wanted.values(), strict=True)]
        assert fields(file, columns=expected) == rows


def test_what_an_error_cannot_suggest_is_left_open_with_candidates(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", table("comentario,clase,pais", TEXTS, LABELS, CODES))
    with pytest.raises(DataError) as caught:
        fields(file)
    assert str(caught.value) == (
        f"{file}:1: cannot tell which columns hold the text and the label: comentario = '{TEXTS[0][:30]}', "
        "clase = 'yes', pais = 'A'; set `columns='text=comentario,label=COLUMN'`; clase or pais may hold labels"
    )


def test_columns_that_the_setting_cannot_express_must_be_renamed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", table("", ["texto, limpio", *TEXTS], ["clase", *LABELS]))
    with pytest.raises(DataError, match="set `columns='text=1,label=2"):  # a name has no comma
        fields(file)
    file = write(tmp_path / "b.jsonl", "".join(f'{{"texto, limpio": "{text}", "clase": "x"}}\n' for text in TEXTS))
    with pytest.raises(DataError, match="rename the columns: in `columns`, names cannot contain commas"):
        fields(file)


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.tsv", "text,label\nfine,1\n", "set `format='csv'` if commas or semicolons separate the columns"),
        ("a.txt", "text;label\nfine;1\n", "set `format='csv'` if commas or semicolons separate the columns"),
        ("a.csv", "text|label\nfine|1\n", "set `separator` to the character between the columns"),
    ],
)
def test_a_table_with_one_column_has_no_labels(tmp_path: Path, name: str, content: str, remedy: str) -> None:
    with pytest.raises(DataError) as caught:
        fields(write(tmp_path / name, content))
    assert caught.value.remedy == remedy
    settings = {"format": "csv"} if "format" in remedy else {"separator": "|"}
    assert fields(write(tmp_path / name, content), **settings) == [{"text": "fine", "label": "1"}]


def test_the_keys_of_a_record_without_known_names_are_listed(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"id": 3, "body_text": "x" * 50})
    with pytest.raises(DataError, match=rf"id = '3', body_text = '{'x' * 30}…'; set `columns='text=body_text,label="):
        fields(file)


def test_texts_that_are_not_read_are_reported_unless_columns_are_given(tmp_path: Path) -> None:
    file = row_file(write(tmp_path / "a.tsv", table("sentence,other,label", TEXTS, OTHERS, LABELS)))
    assert len(list(read_fields(file, labeled=True))) == 12
    assert file.counts.notices == [
        f"{file.path}:1: the texts in other are not read; to read pairs of texts, "
        "set `columns='text=sentence,pair=other,label=label'`"
    ]
    file = row_file(file.path, columns="text=sentence,label=label")
    assert len(list(read_fields(file, labeled=True))) == 12
    assert not file.counts.notices


# Columns of the model

HEADER = table("clase,comentario", LABELS, TEXTS)
NO_HEADER = table("", LABELS, TEXTS)
PAIRS = table("clase,comentario,otro", LABELS, TEXTS, OTHERS)
BY_NAME = Columns("comentario", label="clase")
BY_NUMBER = Columns("2", label="1", has_header=False)
PAIR_BY_NAME = Columns("comentario", "otro", "clase")


def read_as_trained(
    path: str, trained: Columns, *, labeled: bool = True, **settings: Any
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the fields and the notices."""
    file = row_file(path, **settings)
    file.trained_columns = trained
    return [record.fields for record in read_fields(file, labeled=labeled)], file.counts.notices


@pytest.mark.parametrize(
    ("content", "trained", "used"),
    [
        (HEADER, BY_NAME, "text=comentario,label=clase"),
        (NO_HEADER, BY_NUMBER, "text=2,label=1"),
        (PAIRS, BY_NAME, "text=comentario,label=clase"),
        (table("label,SMS", LABELS, TEXTS), BY_NAME, None),  # recognized
        (table("label,SMS", LABELS, TEXTS), BY_NUMBER, None),
        (table("text,label,clase,comentario", OTHERS, CODES, LABELS, TEXTS), BY_NAME, "text=comentario,label=clase"),
    ],
)
def test_the_columns_of_the_training_rows_are_used_and_reported(
    tmp_path: Path, content: str, trained: Columns, used: str | None
) -> None:
    path = write(tmp_path / "a.tsv", content)
    rows, notices = read_as_trained(path, trained)
    assert rows == [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    assert notices == ([f"{path}: columns as in training: {setting('columns', used)}"] if used else [])
    texts, notices = read_as_trained(path, trained, labeled=False)
    assert texts == [{"text": text} for text in TEXTS]
    text = setting("columns", used and used.partition(",")[0])
    assert notices == ([f"{path}: columns as in training: {text}"] if used else [])


def test_given_columns_take_precedence_over_those_of_the_training_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", PAIRS)
    rows, notices = read_as_trained(path, PAIR_BY_NAME, columns="text=otro,label=clase")
    assert rows[0] == {"text": OTHERS[0], "label": LABELS[0]}
    (notice,) = notices
    assert notice.endswith(f"predictions are unreliable, because training used `columns='{PAIR_BY_NAME.setting}'`")
    assert not read_as_trained(path, BY_NAME, columns="text=otro,label=clase")[1]


def test_records_have_the_columns_of_the_training_rows_too(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"comentario": "a", "clase": "x", "text": "b", "label": "y"})
    assert read_as_trained(path, BY_NAME)[0] == [{"text": "a", "label": "x"}]
    assert read_as_trained(path, BY_NUMBER)[0] == [{"text": "b", "label": "y"}]


def test_a_file_of_texts_needs_no_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"{text}\n" for text in TEXTS))
    for trained in (BY_NAME, BY_NUMBER, Columns("1", label="2", has_header=False)):
        assert read_as_trained(path, trained, labeled=False) == ([{"text": text} for text in TEXTS], [])


@pytest.mark.parametrize(
    ("content", "trained", "remedy"),
    [
        (NO_HEADER, BY_NAME, "set `columns='text=2,label=1"),
        (HEADER, BY_NUMBER, "set `columns='text=comentario,label=clase"),  # its first row is not read as a row
        (HEADER, PAIR_BY_NAME, "set `columns='text=comentario,label=clase"),
        (table("label,SMS", LABELS, TEXTS), PAIR_BY_NAME, "set `columns='text=SMS,label=label"),  # no pair
        (table("premise,hypothesis,label", TEXTS, OTHERS, LABELS), BY_NAME, "set `columns='text=premise,pair=hypot"),
    ],
)
def test_a_file_without_the_columns_of_the_training_rows_is_one_clear_error(
    tmp_path: Path, content: str, trained: Columns, remedy: str
) -> None:
    with pytest.raises(DataError) as caught:
        read_as_trained(write(tmp_path / "a.tsv", content), trained)
    assert f"a.tsv:1: the file does not have the columns of the training rows, {trained.setting}: " in str(caught.value)
    assert remedy in str(caught.value)


@pytest.mark.parametrize("separator", [",", ";"])
def test_a_table_with_other_separators_is_not_read_as_a_file_of_texts(tmp_path: Path, separator: str) -> None:
    lines = [f"id{separator}comentario", f"1{separator}{TEXTS[0]}"]
    path = write(tmp_path / "a.txt", "\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"columns of the training rows.*set `format='csv'` if commas or semicolons"):
        read_as_trained(path, BY_NAME, labeled=False)
    assert len(read_as_trained(path, Columns("text", label="label"), labeled=False)[0]) == 2


def test_a_file_without_the_labels_of_the_training_rows_is_for_prediction(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", table("source,comentario", LABELS, TEXTS))
    with pytest.raises(DataError, match=r"no column 'clase', which held the labels .*; use predict for rows without"):
        read_as_trained(path, BY_NAME)
    assert read_as_trained(path, BY_NAME, labeled=False)[0][0] == {"text": TEXTS[0]}


def test_a_file_of_texts_has_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the columns of the training rows, text=comentario,pair=otro: 1 = "):
        read_as_trained(write(tmp_path / "a.tsv", "A text\n"), PAIR_BY_NAME, labeled=False)


# Choices


FIRST = [f"option number {number} is here" for number in range(12)]
SECOND = [f"choice number {number} is there" for number in range(12)]


@pytest.mark.parametrize(
    ("header", "columns", "settings", "expected"),
    [
        ("story,q,a1,a2,right", [TEXTS, OTHERS, FIRST, SECOND], {}, "text=story,pair=q,label=right,choices=a1+a2"),
        ("question,A,B,answer", [TEXTS, FIRST, SECOND], {}, "text=question,label=answer,choices=A+B"),
        (
            "story,a1,a2,right",
            [TEXTS, FIRST, SECOND],
            {"columns": "text=story,label=right"},
            "text=story,label=right,choices=a1+a2",
        ),
        ("story,good,bad,right", [TEXTS, FIRST, SECOND], {}, "text=COLUMN,label=right,choices=COLUMN+COLUMN"),
    ],
)
def test_missing_choices_are_an_error_that_suggests_columns(
    tmp_path: Path, header: str, columns: list[list[str]], settings: dict[str, Any], expected: str
) -> None:
    file = row_file(write(tmp_path / "a.tsv", table(header, *columns, ["0", "1"] * 6)), **settings)
    with pytest.raises(DataError) as caught:
        list(read_fields(file, labeled=True, choices=True))
    assert suggested_columns(caught.value.remedy) == expected
    assert "on_bad_row" not in str(caught.value)
    if "COLUMN" not in expected:
        (first, *_) = read_fields(row_file(file.path, columns=expected), labeled=True, choices=True)
        assert first.fields["choices"] == [FIRST[0], SECOND[0]]


def test_missing_choices_of_records_are_an_error_too(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", *[{"question": text, "label": 0, "picks": ["a", "b"]} for text in TEXTS])
    with pytest.raises(
        DataError, match=r"known to hold the choices; .*set `columns='text=question,label=label,choices="
    ):
        list(read_fields(row_file(path), labeled=True, choices=True))


@pytest.mark.parametrize("name", ["texts", "a.txt"])
def test_texts_with_labels_have_no_choices(tmp_path: Path, name: str) -> None:
    (tmp_path / "texts/ham").mkdir(parents=True)
    write(tmp_path / "texts/ham/1.txt", "text")
    write(tmp_path / "a.txt", "__label__x text\n")
    with pytest.raises(BertmillError, match=r"cannot read the format folder|cannot tell which columns"):
        list(read_fields(row_file(tmp_path / name), labeled=True, choices=True))


# Texts with labels


def test_a_text_file_in_the_format_of_fasttext_is_recognized(tmp_path: Path) -> None:
    path = write(tmp_path / "a.train", "\n__label__x one text\nno label\n__label__x __label__y two\n")
    assert fields(path) == [
        {"text": "one text", "label": ["x"]},
        {"text": "no label", "label": None},
        {"text": "two", "label": ["x", "y"]},
    ]
    assert fields(path, labeled=False) == [{"text": "one text"}, {"text": "no label"}, {"text": "two"}]
    later = write(tmp_path / "b.txt", "no label\n__label__x one text\n")
    assert fields(later, format="fasttext")[1] == {"text": "one text", "label": ["x"]}


@pytest.mark.parametrize(
    "settings", [{"format": "tsv"}, {"columns": "text=2,label=1"}, {"separator": "tab"}, {"quotes": "literal"}]
)
def test_settings_of_a_table_take_precedence_over_labels_in_the_text(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = write(tmp_path / "a.tsv", "__label__x\ttext\n")
    given = {"columns": "text=2,label=1", **settings}
    assert fields(path, **given) == [{"text": "text", "label": "__label__x"}]
    with pytest.raises(UsageError, match="`columns` cannot be used with this format"):
        fields(path, format="fasttext", columns="text=2,label=1")


def test_a_folder_per_class_is_read_with_labels(tmp_path: Path) -> None:
    for name in ("pos/1.txt", "neg/2.txt"):
        (tmp_path / name).parent.mkdir()
        write(tmp_path / name, f"text of {name}\n")
    assert fields(str(tmp_path)) == [
        {"text": "text of neg/2.txt", "label": "neg"},
        {"text": "text of pos/1.txt", "label": "pos"},
    ]
    with pytest.raises(UsageError, match="`columns` cannot be used with this format"):
        fields(str(tmp_path), columns="text=a,label=b")


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
    assert fields(file, labeled=False) == [{"text": text} for text in texts]


def test_several_columns_without_known_names_need_a_setting_for_prediction_too(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "ham\tText number 1\nspam\tText number 2\n")
    with pytest.raises(DataError, match=r"which columns hold the text: 1 = 'ham', 2 = .*set `columns='text=2'`$"):
        fields(file, labeled=False)
    assert fields(file, labeled=False, columns="text=2")[1] == {"text": "Text number 2"}


def test_labels_are_ignored_for_prediction(tmp_path: Path) -> None:
    file = write_records(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b"}, {"text": "c", "label": {}})
    expected = [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert fields(file, labeled=False) == expected
    assert fields(file, labeled=False, columns="text=text,label=label") == expected


def test_a_missing_label_column_is_an_error_only_if_labels_are_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "index\tsentence\n0\tA text\n")
    given = "text=sentence,label=label"
    assert fields(file, labeled=False, columns=given) == [{"text": "A text"}]
    with pytest.raises(DataError, match=r"a.tsv:1: there is no column 'label'; the columns are index = '0'"):
        fields(file, columns=given)


def test_a_header_is_not_read_as_a_row_for_prediction_either(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"looks like a header \(sentence, label\)"):
        fields(write(tmp_path / "a.tsv", "sentence\tlabel\nA text\t1\n"), columns="text=1,label=2", labeled=False)


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
    assert bad.problem.remedy == "correct it, or check `separator` and `quotes`"


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
    with pytest.raises(UsageError, match=f": `{next(iter(settings))}` cannot be used with this format"):
        fields(write_records(tmp_path / "a.jsonl", {"text": "a", "label": "b"}), **settings)


def test_reading_an_endless_file_of_bad_records_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = repeat(Record("-:1", {}, problem=BadRowError("bad", "bad")))
    monkeypatch.setattr("bertmill.rows.fields.read_records", lambda file, unfold: endless)
    with pytest.raises(DataError, match="1,000 of 1,000 rows"):
        list(read_labeled(row_file("-", format="jsonl", on_bad_row="skip")))


def test_parquet_gives_the_same_fields(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = str(tmp_path / "a.parquet")
    parquet.write_table(arrow.table({"sentence": ["one", "two"], "label": [0, 1]}), file)
    assert fields(file) == [{"text": "one", "label": 0}, {"text": "two", "label": 1}]
