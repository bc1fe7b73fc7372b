"""What a column is for is told, or guessed only where the guess is safe."""

from pathlib import Path

import pytest

from bertmill.config.commands import RowSettings
from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.tasks.columns import PRESETS, Columns, choose_columns, parse_columns, told_columns
from bertmill.tasks.reading import RowCounts, read_labelled
from bertmill.tasks.rows import read_rows


def guess(
    tmp_path: Path, content: str, *, name: str = "a.tsv", need_label: bool = True, told: str | None = None
) -> Columns:
    (tmp_path / name).write_text(content)
    rows = read_rows(str(tmp_path / name))
    return choose_columns(rows, told_columns(told, None), need_label=need_label)[0]


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
def test_columns_are_told_by_name_or_by_number(text: str, columns: Columns) -> None:
    assert parse_columns(text) == columns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read at ''"),
        ("sentence", "cannot be read at 'sentence'; write KEY=COLUMN,… with each of text, pair, label, choices"),
        ("text=a,txt=b", "cannot be read at 'txt=b'"),
        ("text=a,text=b", "cannot be read at 'text=b'"),
        ("text=", "cannot be read at 'text='"),
        ("label=a", "names no text; add text=COLUMN"),
        ("text=a,label=a", "uses a column twice"),
        ("text=a,choices=b++c", "or an empty name"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_columns(text)
    assert message in str(caught.value)


def test_presets_and_columns_exclude_each_other() -> None:
    assert told_columns(None, "cola") == Columns("4", label="2", has_header=False)
    assert told_columns(None, None) is None
    with pytest.raises(UsageError, match="say the same thing"):
        told_columns("text=a", "cola")
    with pytest.raises(UsageError, match="no preset 'glue'; choose one of sst2, cola"):
        told_columns(None, "glue")


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


@pytest.mark.parametrize("preset", PRESETS.keys() - {"cola"})
def test_the_layouts_of_glue_are_recognised_by_their_headers(tmp_path: Path, preset: str) -> None:
    row = "\t".join(f"value {number}" for number in range(HEADERS[preset].count("\t") + 1))
    assert guess(tmp_path, f"{HEADERS[preset]}\n{row}\n") == PRESETS[preset]


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("Label\tSMS\nham\tOk\n", Columns("SMS", label="Label")),
        ("id\t Review \tclass\n1\tgood\t1\n", Columns("Review", label="class")),
        ("label\tcomentario\n1\tbueno\n", Columns("comentario", label="label")),
    ],
)
def test_well_known_names_are_found_whatever_their_case(tmp_path: Path, content: str, columns: Columns) -> None:
    assert guess(tmp_path, content) == columns


@pytest.mark.parametrize(
    ("record", "columns"),
    [
        ('{"text": "a", "label": 1}', Columns("text", label="label")),
        ('{"premise": "a", "hypothesis": "b", "label": 1}', Columns("premise", "hypothesis", "label")),
        (
            '{"context": "c", "question": "q", "options": ["a", "b"], "answer": 1}',
            Columns("context", "question", "answer", ("options",)),
        ),
        ('{"question": "q", "choices": ["a", "b"], "label": "b"}', Columns("question", None, "label", ("choices",))),
        ('{"question": "q", "endings": "no list", "label": "b"}', Columns("question", None, "label")),
    ],
)
def test_keys_of_records_are_names_too(tmp_path: Path, record: str, columns: Columns) -> None:
    assert guess(tmp_path, f"not JSON\n{record}\n", name="a.jsonl") == columns


def test_two_columns_without_header_are_told_apart_by_their_values(tmp_path: Path) -> None:
    lines = [f"text number {number}\t{'pos' if number % 3 else 'neg'}" for number in range(12)]
    assert guess(tmp_path, "\n".join(lines)) == Columns("1", label="2", has_header=False)
    swapped = ["\t".join(reversed(line.split("\t"))) for line in lines]
    assert guess(tmp_path, "\n".join(swapped)) == Columns("2", label="1", has_header=False)


def test_a_label_that_is_called_like_a_column_is_no_header(tmp_path: Path) -> None:
    lines = [f"what is {number}\t{'question' if number % 2 == 0 else 'answer'}" for number in range(20)]
    assert guess(tmp_path, "\n".join(lines)) == Columns("1", label="2", has_header=False)


@pytest.mark.parametrize(
    "content",
    [
        "gj04\t1\t\tOne text.\ngj04\t0\t*\tAnother.\n",  # four columns, no names
        "a\tb\nc\td\n",  # two alike
        "comentario\tclase\n" + "".join(f"texto {number}\t{number % 2}\n" for number in range(20)),  # maybe a header
        "text\treview\tlabel\na\tb\t1\n",  # two texts
        "text\tlabel\tscore\na\tb\t1\n",  # two labels
        "text\tid\tother\na\tb\t1\n",  # no label
        "index\tsentence\n0\tA text\n1\tAnother\n",  # no label, though there are two columns
    ],
)
def test_who_is_unsure_asks(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError) as caught:
        guess(tmp_path, content)
    assert "a.tsv:1: cannot tell which column is the text and which the label: 1 = " in str(caught.value)
    assert "; say it, for example --columns text=" in str(caught.value)


def test_records_show_their_keys_when_unsure(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"id = '3', body_text = 'x'; say it, for example --columns text=body_text,label=id$"
    ):
        guess(tmp_path, '{"id": 3, "body_text": "x"}\n', name="a.jsonl")


@pytest.mark.parametrize(
    ("content", "columns"),
    [
        ("index\tsentence\n0\tA text\n", Columns("sentence")),
        ("sentence\nA text\n", Columns("sentence")),
        ("A text\nAnother\n", Columns("1", has_header=False)),
        ("text\tlabel\tscore\na\tb\t1\n", Columns("text")),
    ],
)
def test_without_need_of_labels_texts_are_enough(tmp_path: Path, content: str, columns: Columns) -> None:
    assert guess(tmp_path, content, need_label=False) == columns


def test_a_column_that_is_left_out_because_it_looks_like_labels_is_named(tmp_path: Path) -> None:
    content = "".join(f"{'spam' if number % 3 else 'ham'}\tText number {number}\n" for number in range(40))
    assert guess(tmp_path, content, need_label=False) == Columns("2", has_header=False, not_read="1")
    file = tmp_path / "b.tsv"
    file.write_text(content, encoding="utf-8")
    counts = RowCounts()
    assert len(list(read_labelled(str(file), counts=counts, with_label=False))) == 40
    assert counts.remark == "column 1 is not read: it looks like labels (--columns says otherwise)"


def test_a_label_that_is_told_but_not_there_is_missed_only_where_it_is_needed(tmp_path: Path) -> None:
    content = "index\tsentence\n0\tA text\n"
    assert guess(tmp_path, content, told="text=sentence,label=label", need_label=False) == Columns("sentence")
    with pytest.raises(DataError, match=r"a.tsv:1: has no column 'label'; it has 1 = 'index', 2 = 'sentence'; say"):
        guess(tmp_path, content, told="text=sentence,label=label")


def test_a_header_is_no_row_where_labels_are_not_wanted_either(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="looks like a header: sentence, label"):
        guess(tmp_path, "sentence\tlabel\nA text\t1\n", told="text=1,label=2", need_label=False)


def test_a_name_that_stands_there_twice_in_other_letters_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot tell which column is the text"):
        guess(tmp_path, "Text\ttext\tlabel\na\tb\t1\n")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("text=nothing,label=label", "has no column 'nothing'"),
        ("text=text,label=twice", "has several columns 'twice'"),
        ("text=7,label=2", "has no column '7'"),
        ("text=1,label=2", "looks like a header: text, label; use the names"),
        ("text=text", "--columns names no label; add label=COLUMN"),
    ],
)
def test_columns_that_do_not_fit_the_file_are_refused(tmp_path: Path, told: str, message: str) -> None:
    with pytest.raises(BertmillError) as caught:
        guess(tmp_path, "text\tlabel\ttwice\ttwice\na\t1\t2\t3\n", told=told)
    assert message in str(caught.value)


def test_a_pair_that_the_first_record_does_not_have_is_not_lost_silently(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a", "label": "x"}\n{"text": "b", "pair": "c", "label": "y"}\n')
    with pytest.raises(DataError, match=r"a.jsonl:2: has a pair of texts, the second in 'pair'"):
        list(read_labelled(str(file)))
    assert [row.texts for row in read_labelled(str(file), RowSettings(columns="text=text,label=label"))] == [
        ("a",),
        ("b",),
    ]
