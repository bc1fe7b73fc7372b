"""Tests for `bertmill predict`: output formats, ids, single requests, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

import bertmill
from bertmill.cli.main import main
from bertmill.cli.predict import answer_columns, rounded
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from tests.finetuned import MakeModel, RunMain


def test_labels_in_the_rows_are_ignored(classifier: Path, tmp_path: Path, run_main: RunMain) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na good film\tforeign\na dull film\t\n", encoding="utf-8")
    lines = run_main("predict", classifier, rows, "--quiet").splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["yes", "no"]


@pytest.mark.parametrize("has_ids", [False, True])
def test_predictions_have_the_id_or_the_number_of_their_row(
    has_ids: bool, classifier: Path, tmp_path: Path, run_main: RunMain
) -> None:
    texts = [f"a {word} film" for word in ("good", "dull") * 10]
    lines, ids = ["text", *texts[:7], " ", *texts[7:]], [*range(1, 8), *range(9, 22)]
    if has_ids:
        lines = ["index\ttext", *(f"n{number}\t{text}" for number, text in enumerate(texts))]
        ids = [f"n{number}" for number in range(20)]
    rows = tmp_path / "rows.tsv"
    rows.write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed = run_main("predict", classifier, rows, "--on-bad-row", "skip", "--quiet").splitlines()
    assert [json.loads(line)["id"] for line in printed] == ids


def test_long_rows_are_counted(classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, outcome in (([], "read in windows"), (["--truncate"], "truncated")):
        assert main(["predict", str(classifier), "--text", "dull " * 50, *flags]) == 0
        assert f"rows longer than 16 pieces ({outcome}): 1" in capsys.readouterr().err


def test_a_csv_has_the_fields_of_the_row_and_a_column_for_every_label(
    untrained: MakeModel, tmp_path: Path, run_main: RunMain
) -> None:
    folder = untrained(Classify(("a", "b"), multi_label=True))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one \\u001b[1m, two", "pair": "three"}\n{"text": "four", "pair": "five"}\n')
    answers = bertmill.load(folder).predict([("one \x1b[1m, two", "three"), ("four", "five")])
    run_main("predict", folder, rows, "--out", tmp_path / "a.csv")
    text = (tmp_path / "a.csv").read_bytes().decode()
    assert "\r" not in text
    table = list(csv.DictReader(io.StringIO(text)))
    assert list(table[0]) == ["id", "labels", "score:a", "score:b", "text", "pair"]
    for row, answer in zip(table, answers, strict=True):
        assert row["labels"] == "|".join(answer["labels"])
        assert float(row["score:b"]) == round(answer["scores"]["b"], 4)
    assert [row["pair"] for row in table] == ["three", "five"]


def test_control_characters_in_a_csv_are_escaped_except_line_ends(
    untrained: MakeModel, tmp_path: Path, run_main: RunMain
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a \\u001b[1m\\u009b\\u202e\\n\\tb", "id": "\\u0007"}\n')
    printed = run_main("predict", untrained(Classify(("a", "b"))), rows, "--output-format", "csv")
    (row,) = csv.DictReader(io.StringIO(printed))
    assert (row["id"], row["text"]) == ("\\x07", "a \\x1b[1m\\x9b\\u202e\n\tb")


CELLS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "-5", "+1.5e3", "=5", "a=b", "- -1", "-"]


def test_safe_csv_marks_cells_that_a_spreadsheet_would_execute(
    untrained: MakeModel, tmp_path: Path, run_main: RunMain
) -> None:
    folder, rows = untrained(Classify(("a", "b"))), tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": cell}) + "\n" for cell in CELLS))

    def texts(*flags: str) -> list[str]:
        printed = run_main("predict", folder, rows, "--output-format", "csv", *flags)
        return [row["text"] for row in csv.DictReader(io.StringIO(printed))]

    assert texts() == CELLS
    marked = {"=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "- -1", "-"}
    assert texts("--safe-csv") == [f"'{cell}" if cell in marked else cell for cell in CELLS]


def test_safe_csv_needs_csv(classifier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(classifier), "--text", "good", "--safe-csv"]) == 2
    assert "--safe-csv needs --output-format csv" in capsys.readouterr().err


def test_probabilities_are_rounded_and_other_numbers_are_as_precise_as_float32() -> None:
    third = 1 / 3
    entities = [{"start": 3, "score": third, "text": "score"}]
    answer = {"score": third, "scores": {"score": third, "number": third}, "number": 1000 * third, "top": entities}
    assert rounded(answer) == {
        "score": 0.3333,
        "scores": {"score": 0.3333, "number": 0.3333},
        "number": 333.3333,
        "top": [{"start": 3, "score": 0.3333, "text": "score"}],
    }
    assert rounded({"scores": [third, 1e-9], "label": "0.123456"}) == {"scores": [0.3333, 0.0], "label": "0.123456"}


@pytest.mark.parametrize("output_format", ["jsonl", "csv", "table"])
def test_probabilities_have_four_digits_in_every_format(
    output_format: str, untrained: MakeModel, run_main: RunMain
) -> None:
    folder = untrained(Classify(("a", "b", "c")))
    printed = run_main("predict", folder, "--text", "good", "--output-format", output_format)
    assert re.findall(r"\d\.\d+", printed)
    assert not re.findall(r"\d\.\d{5}", printed)
    (answer,) = bertmill.load(folder).predict(["good"])
    assert answer["score"] != round(answer["score"], 4)  # Python has all digits


def test_top_k_lists_the_most_likely_classes(untrained: MakeModel, tmp_path: Path, run_main: RunMain) -> None:
    folder = untrained(Classify(("a", "b", "c")))
    scores = json.loads(run_main("predict", folder, "--text", "good"))["scores"]
    answer = json.loads(run_main("predict", folder, "--text", "good", "--top-k", "2"))
    assert list(answer) == ["label", "score", "top"]
    assert answer["top"] == [
        {"label": label, "score": score} for label, score in sorted(scores.items(), key=lambda each: -each[1])[:2]
    ]
    rows = tmp_path / "rows.txt"
    rows.write_text("good\ndull film\n")
    table = run_main("predict", folder, rows, "--top-k", "1", "--output-format", "csv")
    assert table.splitlines()[0] == "id,label,score,top,text"
    assert main(["predict", str(folder), "--text", "good", "--top-k", "0"]) == 2


def test_the_last_line_says_how_many_rows_were_written_where(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "a\x1b[1m.jsonl"
    rows.write_text('{"text": "good"}\n{"text": ""}\n' + '{"text": "dull"}\n' * 999)
    request = ["predict", str(classifier), str(rows), "--on-bad-row", "skip"]
    assert main([*request, "--out", str(out)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"1,000 rows → {tmp_path}/a\\x1b[1m.jsonl"
    assert main(request) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "1,000 rows"
    assert main([*request, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["predict", str(classifier), "--text", "good"]) == 0
    assert capsys.readouterr().err == ""


def test_thresholds_of_the_model_folder_decide_which_labels_are_predicted(
    untrained: MakeModel, tmp_path: Path, run_main: RunMain, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = untrained(Classify(("a", "b"), multi_label=True))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "good", "label": ["a"]}\n{"text": "dull", "label": ["b"]}\n')
    for thresholds, labels, f1 in (({"a": 0, "b": 1}, ["a"], 1.0), ({"a": 1, "b": 1}, [], 0.0)):
        metadata = {"format": 1, "task": "classify", "metric": "macro_f1", "thresholds": thresholds}
        (folder / "bertmill.json").write_text(json.dumps(metadata))
        assert json.loads(run_main("predict", folder, "--text", "good"))["labels"] == labels
        assert bertmill.load(folder).predict(["good"])[0]["labels"] == labels
        evaluation = json.loads(run_main("evaluate", folder, rows, "--json"))
        assert (evaluation["metric"], evaluation["classes"][0]["recall"]) == ("macro_f1", f1)
    (folder / "bertmill.json").write_text(json.dumps({**metadata, "thresholds": {"a": 0.5}}))
    assert main(["predict", str(folder), "--text", "good"]) == 4
    assert "bertmill.json: thresholds must have" in capsys.readouterr().err


def test_scores_by_label_and_labels_become_columns() -> None:
    answer = {"number": 1.5, "scores": {"a": 0.25, "b": 0.75}, "labels": ["a", "b"], "words": ["x", "y"]}
    columns = {"number": 1.5, "score:a": 0.25, "score:b": 0.75, "labels": "a|b", "words": ["x", "y"]}
    assert answer_columns(answer) == columns


def test_a_table_has_a_prediction_per_line_without_control_characters(
    untrained: MakeModel, tmp_path: Path, run_main: RunMain
) -> None:
    folder = untrained(Classify(("a", "b")))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one \\u001b[1m, two", "pair": "three"}\n{"text": "four", "pair": "five"}\n')
    answers = bertmill.load(folder).predict([("one \x1b[1m, two", "three"), ("four", "five")])
    lines = run_main("predict", folder, rows, "--output-format", "table").splitlines()
    texts = ("one  [1m, two  three", "four  five")
    for line, answer, text in zip(lines, answers, texts, strict=True):
        assert line == f"{answer['label']} {answer['score']:.4f}  {text}"


def test_choices_are_written_with_their_texts(untrained: MakeModel, run_main: RunMain) -> None:
    words = ["--text", "She ran.", "--choice", "Then she sat.", "--choice", "Then she flew."]
    (row,) = csv.DictReader(io.StringIO(run_main("predict", untrained(Choose()), *words, "--output-format", "csv")))
    assert row["answer"] == words[2 * int(row["choice"]) + 3]
    assert json.loads(row["choices"]) == ["Then she sat.", "Then she flew."]
    assert json.loads(row["scores"])[int(row["choice"])] == float(row["score"])


def test_raw_text_gets_words_tags_and_entities_with_their_offsets(
    tagger: Path, tmp_path: Path, run_main: RunMain
) -> None:
    text = "good  film\tin New York, and a book in Paris."
    answer = json.loads(run_main("predict", tagger, "--text", text, "--quiet"))
    assert answer == rounded(bertmill.load(tagger).tag(text))
    found = [(each["type"], each["text"], text[each["start"] : each["end"]]) for each in answer["entities"]]
    assert {("LOC", "New York", "New York"), ("LOC", "Paris", "Paris")} <= set(found)
    file = tmp_path / "texts.txt"
    file.write_text(text + "\n", encoding="utf-8")
    request = ["predict", tagger, file, "--format", "lines", "--quiet"]
    lines = [f"{word}\t{tag}\n" for word, tag in zip(answer["words"], answer["tags"], strict=True)]
    assert run_main(*request, "--output-format", "conll") == "".join(lines) + "\n"
    assert "LOC New York" in run_main(*request, "--output-format", "table")
    assert json.loads(run_main(*request))["id"] == 1
    records = tmp_path / "records.jsonl"
    mixed = [{"id": "a", "tokens": ["new", "york"]}, {"id": "b", "text": "paris"}]
    records.write_text("".join(json.dumps(record) + "\n" for record in mixed), encoding="utf-8")
    assert json.loads(run_main("predict", tagger, records, "--quiet").splitlines()[0])["id"] == "a"
    table = csv.DictReader(io.StringIO(run_main("predict", tagger, records, "--output-format", "csv", "--quiet")))
    assert [(row["id"], json.loads(row["words"])) for row in table] == [("a", ["new", "york"]), ("b", ["paris"])]


def test_questions_are_answered(answerer: Path, questions_file: Path, run_main: RunMain) -> None:
    passage = "good film  PARIS cold book"
    request = ["predict", answerer, "--question", "where is it?", "--text", passage, "--quiet"]
    answer = json.loads(run_main(*request))
    assert answer["answer"] == passage[answer["start"] : answer["end"]] == "PARIS"
    three = json.loads(run_main(*request, "--top-k", "3"))
    assert json.loads(run_main("predict", "--top-k", "3", *request[1:])) == three
    assert len(three["answers"]) == 3
    assert three["answers"][0]["answer"] == "PARIS"
    lines = run_main("predict", answerer, questions_file, "--quiet").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(number) for number in range(160)]
    header = run_main("predict", answerer, questions_file, "--output-format", "csv", "--quiet").splitlines()[0]
    assert header == "id,answer,start,end,score,question,passage"


def test_the_output_file_may_not_be_the_input(
    untrained: MakeModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.txt"
    rows.write_text("one\n")
    (tmp_path / "link").symlink_to(rows)
    for out in (rows, tmp_path / "link"):
        assert main(["predict", str(untrained(Classify(("a", "b")))), str(rows), "--out", str(out)]) == 2
        assert f"{out}: is also the input file; choose another --out" in capsys.readouterr().err
    assert rows.read_text() == "one\n"


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("answer", ["--text", "a"], "the field 'question' is missing"),
        ("tag", ["--text", "a", "--question", "b"], "the task tag does not take the field 'question'"),
        ("tag", ["--text", "a", "--pair", "b"], "the task tag does not take the field 'pair'"),
        ("tag", ["--text", "a", "--choice", "b", "--choice", "c"], "does not take the field 'choices'"),
        ("tag", ["--text", "a", "--truncate"], "this task reads every piece"),
        (
            "tag",
            ["--text", "a", "--max-length", "32", "--stride", "33"],
            "the stride 33 must not exceed the window (32)",
        ),
        ("tag", ["--text", "a", "--stride", "2000"], "the stride 2000 must not exceed"),
        ("tag", ["--text", "a", "--top-k", "2"], "--top-k does not apply to a model for the task tag"),
        ("answer", ["--text", "a", "--question", "b", "--top-k", "21"], "--top-k: input should be less than or equal"),
        (
            "answer",
            ["--text", "a", "--question", "b", "--output-format", "conll"],
            "there is no output format called 'conll'; known: jsonl, csv, table",
        ),
    ],
)
def test_a_request_that_does_not_fit_the_task_is_refused(
    task: str, words: list[str], message: str,
    tagger: Path, answerer: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(["predict", str(tagger if task == "tag" else answerer), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_pretrained_model_has_no_predictions(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(tiny), "--text", "a film"]) == 2
    assert "is not fine-tuned for a task" in capsys.readouterr().err
