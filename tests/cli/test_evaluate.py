"""Tests for `bertmill evaluate`: tables, JSON, and errors with their rows."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from bertmill.cli.evaluate import _class_lines
from bertmill.cli.main import main
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from tests.conftest import RunCommand
from tests.finetuned import MakeModel, RunMain


def test_json_has_metrics_classes_and_the_confusion_matrix(
    classifier: Path, rows_file: Path, run_main: RunMain
) -> None:
    report = json.loads(run_main("evaluate", classifier, rows_file, "--json", "--quiet"))
    accuracy = report["metrics"]["accuracy"]
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    right = sum(report["confusion"][number][number] for number in range(2))
    assert accuracy["value"] == pytest.approx(right / report["rows"])
    assert [each["label"] for each in report["classes"]] == ["no", "yes"]


def test_tables_have_the_number_of_rows_and_the_classes(tagger: Path, tagged_file: Path, run_main: RunMain) -> None:
    lines = run_main("evaluate", tagger, tagged_file).splitlines()
    assert lines[0] == "120 rows"
    assert any(line.startswith("  strict f1") and "95% CI" in line for line in lines)
    assert any(line.split()[:1] == ["LOC"] for line in lines)


def test_control_characters_in_a_file_name_are_escaped(untrained: MakeModel, tmp_path: Path, run_main: RunMain) -> None:
    rows = tmp_path / "a\x1b[31m\n\u202e.tsv"
    rows.write_text("text\tlabel\ngood\ta\ngood\tb\n", encoding="utf-8")
    printed = run_main("evaluate", untrained(Classify(("a", "b"))), rows, "--quiet")
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
    out = run_main("evaluate", folder, rows)
    assert (
        f"{rows}:1: choice {1 - wrong} {answer['score']:.4f} {choices[1 - wrong]}, expected {choices[wrong]}\n" in out
    )
    assert out.endswith("    She ran.\n    Then she sat.\n    Then she flew.\n")


def test_long_texts_of_errors_are_shortened(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\n" + "good " * 500 + "\tno\n" + "dull\tno\n", encoding="utf-8")
    assert main(["evaluate", str(classifier), str(rows), "--max-length", "64", "--truncate"]) == 0
    printed = capsys.readouterr()
    assert f"    {'good ' * 20}…" in printed.out.splitlines()
    assert "rows longer than 64 pieces (truncated): 1" in printed.err


def shown(
    predicted: list[int], expected: list[int], names: list[str], sort_by: str = "rows", *, show_all: bool = False
) -> list[str]:
    """The lines about classes."""
    report = Classify(tuple(names)).class_report(np.stack([predicted, expected], 1))
    return list(_class_lines(report, sort_by, show_all=show_all))


def table(lines: list[str], head: str) -> list[list[str]]:
    """The cells of the lines below a head."""
    start = next(number for number, line in enumerate(lines) if line.split()[: len(head.split())] == head.split())
    rows = itertools.takewhile(bool, lines[start + 1 :])
    return [row.split() for row in rows]


LETTERS = "abcdefghijklmnopqrstuvwx"
ROWS = [number for number in range(24) for _ in range(number + 1)]  # n + 1 rows of class n


@pytest.mark.parametrize(
    ("sort_by", "order"), [("rows", LETTERS[::-1]), ("f1", LETTERS[:0:-1] + "a"), ("name", LETTERS)]
)
def test_the_first_classes_are_shown_or_all(sort_by: str, order: str) -> None:
    always_a = [0] * len(ROWS)
    lines = shown(always_a, ROWS, list(LETTERS), sort_by)
    *rows, rest = table(lines, "class precision")
    assert "".join(row[0] for row in rows) == order[:20]
    assert " ".join(rest) == "… and 4 more; --all shows all classes, --sort-by f1 the weakest first"
    everything = table(shown(always_a, ROWS, list(LETTERS), sort_by, show_all=True), "class precision")
    assert "".join(row[0] for row in everything) == order


def test_the_most_confused_pairs_are_shown_first() -> None:
    lines = shown([0, 1, 2, 2, 1, 1], [0, 0, 0, 0, 2, 1], ["a", "b", "c"])
    assert table(lines, "most confused") == [["a", "2", "c"], ["a", "1", "b"], ["c", "1", "b"]]
    assert not any("confused" in line for line in shown([0, 1], [0, 0], ["a", "b"]))  # the matrix shows the only pairs
    assert not any("confused" in line for line in shown([0, 1, 2], [0, 1, 2], ["a", "b", "c"]))
    always_a = [0] * len(ROWS)
    assert len(table(shown(always_a, ROWS, list(LETTERS)), "most confused")) == 10
    assert len(table(shown(always_a, ROWS, list(LETTERS), show_all=True), "most confused")) == 23


def test_a_large_confusion_matrix_is_left_to_json() -> None:
    twelve, thirteen = ([str(number) for number in range(count)] for count in (12, 13))
    assert any("(columns)" in line for line in shown([3, 4], [3, 3], twelve))
    assert not any("(columns)" in line for line in shown([3, 4], [3, 3], thirteen))


@pytest.mark.parametrize("count", [2, 12, 30])
def test_long_names_of_classes_fit_on_a_screen(
    count: int, untrained: MakeModel, tmp_path: Path, run_main: RunMain
) -> None:
    names = [f"{letter} {'very ' * 50}long" for letter in (LETTERS + LETTERS.upper())[:count]]
    rows = tmp_path / "rows.tsv"
    rows.write_text("".join(["text\tlabel\n", *(f"good\t{name}\n" for name in names)]), encoding="utf-8")
    lines = run_main("evaluate", untrained(Classify(tuple(names))), rows, "--worst", "0", "--all").splitlines()
    assert max(map(len, lines)) <= 120


def test_a_model_that_learned_nothing_is_reported(
    untrained: MakeModel, classifier: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(untrained(Classify(("no", "yes"))))
    assert main(["evaluate", model, str(rows_file)]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("warning: the model is not clearly better than the baseline (always ")
    assert "  The baseline is the best constant prediction: always " in printed.out
    baseline = re.search(r"  accuracy .* baseline: ([\d.]+)\n", printed.out)
    assert baseline
    assert 0.5 <= float(baseline[1]) < 1
    assert main(["evaluate", model, str(rows_file), "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "not clearly better" in json.loads(printed.out)["warning"]
    assert printed.err == ""
    assert main(["evaluate", str(classifier), str(rows_file)]) == 0
    assert "warning" not in capsys.readouterr().err


def test_the_file_has_no_flag(bertmill: RunCommand) -> None:
    said = bertmill("evaluate", "model", "--data", "rows.tsv").stderr
    assert said.startswith("bertmill: unknown flag --data; give MODEL and FILE without a flag")


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
    assert main(["evaluate", str(model), str(file), "--quiet"]) == 3
    said = capsys.readouterr().err
    assert message in said
    assert "set --on-bad-row skip" in said
    assert said.count("\n") == 1
