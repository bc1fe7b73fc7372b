"""Tests for `bertmill evaluate`: tables, JSON, and errors with their rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bertmill.cli.evaluate import _lines
from bertmill.cli.main import main
from bertmill.inference.evaluation import Baseline, Evaluation
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from tests.finetuned import MakeModel, RunMain


def test_json_has_metrics_classes_and_the_confusion_matrix(
    classifier: Path, rows_file: Path, run_main: RunMain
) -> None:
    report = json.loads(run_main("evaluate", classifier, "--data", rows_file, "--json", "--quiet"))
    accuracy = report["metrics"]["accuracy"]
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    right = sum(report["confusion"][number][number] for number in range(2))
    assert accuracy["value"] == pytest.approx(right / report["rows"])
    assert [each["label"] for each in report["classes"]] == ["no", "yes"]


def test_tables_have_the_number_of_rows_and_the_classes(tagger: Path, tagged_file: Path, run_main: RunMain) -> None:
    lines = run_main("evaluate", tagger, "--data", tagged_file).splitlines()
    assert lines[0] == "120 rows"
    assert any(line.startswith("  strict f1") and "95% CI" in line for line in lines)
    assert any(line.split()[:1] == ["LOC"] for line in lines)


def test_control_characters_in_a_file_name_are_escaped(untrained: MakeModel, tmp_path: Path, run_main: RunMain) -> None:
    rows = tmp_path / "a\x1b[31m\n\u202e.tsv"
    rows.write_text("text\tlabel\ngood\ta\ngood\tb\n", encoding="utf-8")
    printed = run_main("evaluate", untrained(Classify(("a", "b"))), "--data", rows, "--quiet")
    assert "a\\x1b[31m\\n\\u202e.tsv:" in printed
    assert "\x1b" not in printed


def test_an_error_is_shown_with_its_choices(untrained: MakeModel, tmp_path: Path, run_main: RunMain) -> None:
    folder = untrained(Choose())
    choices = ["Then she sat.", "Then she flew."]
    flags = [word for choice in choices for word in ("--choice", choice)]
    answer = json.loads(run_main("predict", folder, "--text", "She ran.", *flags))
    wrong = 1 - answer["choice"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"text": "She ran.", "choices": choices, "label": wrong}) + "\n", encoding="utf-8")
    out = run_main("evaluate", folder, "--data", rows)
    assert (
        f"{rows}:1: choice {1 - wrong} {answer['score']:.4f} {choices[1 - wrong]}, expected {choices[wrong]}\n" in out
    )
    assert out.endswith("    She ran.\n    Then she sat.\n    Then she flew.\n")


def test_long_texts_of_errors_are_shortened(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "good " * 500 + "\tno\n" + "dull\tno\n", encoding="utf-8")
    assert main(["evaluate", str(classifier), "--data", str(rows), "--max-length", "64", "--truncate"]) == 0
    printed = capsys.readouterr()
    assert f"    {'good ' * 20}…" in printed.out.splitlines()
    assert "rows longer than 64 pieces (truncated): 1" in printed.err


def test_a_large_confusion_matrix_is_left_to_json() -> None:
    task = Classify(tuple(map(str, range(13))))
    classes = task.class_report(np.array([[3, 3], [4, 3]]))
    evaluation = Evaluation(2, {}, {}, Baseline("", {}), classes, [], [])
    assert _lines(evaluation)[-1] == "  --json prints the confusion matrix of the 13 classes"
    assert evaluation.to_json()["confusion"][3][3:5] == [1, 1]


HEAD = "text\tlabel\na\tno\n"


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("classify", "bad.tsv", HEAD + "a film\tmaybe\n", "bad.tsv:3: the label 'maybe' is not one of no, yes"),
        ("classify", "bad.tsv", HEAD + "a film\n", "bad.tsv:3: this row has 1 column, but the first row has 2"),
        ("classify", "bad.tsv", HEAD + " \tno\n", "bad.tsv:3: the field 'text' is empty"),
        ("classify", "bad.tsv", HEAD + "a\tno\u200b\n", r"bad.tsv:3: the label 'no\u200b' contains unprintable"),
        ("classify", "bad.tsv", HEAD + "a film\t\n", "bad.tsv:3: the label is empty"),
        ("tag", "bad.conll", "good O\nfilm\n", "bad.conll:2: the line has 1 column, but the first line has 2"),
        ("tag", "bad.jsonl", '{"words": ["a"], "tags": ["O", "O"]}\n', "bad.jsonl:1: the row has 1 word but 2 tags"),
        ("tag", "bad.conll", "good B-ORG\n", "bad.conll:1, word 1: the tag 'B-ORG' is not one of O, B-LOC, I-LOC"),
        ("answer", "bad.jsonl", '{"question": "q", "context": "c", "answer": "d"}\n', "bad.jsonl:1: the answer 'd'"),
    ],
)  # fmt: skip
def test_a_bad_row_gives_one_line_with_its_place(
    task: str, name: str, content: str, message: str,
    classifier: Path, tagger: Path, answerer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    model = {"classify": classifier, "tag": tagger, "answer": answerer}[task]
    assert main(["evaluate", str(model), "--data", str(file), "--quiet"]) == 3
    said = capsys.readouterr().err
    assert message in said
    assert "set on_bad_row=skip" in said
    assert said.count("\n") == 1
