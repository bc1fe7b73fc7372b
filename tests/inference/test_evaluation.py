"""Tests for evaluation: metrics with intervals, classes, and the most confident errors first."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertmill.inference.evaluation import Evaluation, evaluate
from bertmill.inference.runner import Runner
from bertmill.rows.source import RowFile
from bertmill.tasks.base import encode_rows
from bertmill.tasks.classify import ClassRow


@pytest.fixture(scope="module")
def runner(classifier: Path) -> Runner:
    return Runner(classifier, "cpu")


def evaluate_rows(runner: Runner, rows: list[ClassRow], num_errors: int) -> Evaluation:
    examples = encode_rows(runner.task, rows, runner.windows, RowFile("f.tsv"))
    return evaluate(runner.task, runner.model, examples, runner.device, num_errors)


def test_metrics_have_intervals_and_agree_with_the_confusion_matrix(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labelled=True))
    evaluation = evaluate_rows(runner, rows, 5)
    assert evaluation.num_rows == 120
    low, high = evaluation.intervals["accuracy"]
    assert low <= evaluation.metrics["accuracy"] <= high
    confusion = evaluation.classes.confusion
    assert evaluation.metrics["accuracy"] == pytest.approx(sum(confusion[n][n] for n in range(2)) / 120)
    assert [each.label for each in evaluation.classes.figures] == ["no", "yes"]


def test_errors_are_the_most_confident_ones_first(runner: Runner) -> None:
    texts = ["good good good", "dull", "good dull dull dull", "cold book"]
    wrong = [
        ClassRow(f"f.tsv:{number}", (text,), "no" if "good" in text else "yes") for number, text in enumerate(texts)
    ]
    right = [ClassRow("f.tsv:9", ("good film",), "yes")]
    evaluation = evaluate_rows(runner, [*right, *wrong], 3)
    assert len(evaluation.errors) == 3
    scores = [error.answer["score"] for error in evaluation.errors]
    assert scores == sorted(scores, reverse=True)
    assert all(error.row.place != "f.tsv:9" for error in evaluation.errors)
    assert all(error.expected == (error.row.label,) for error in evaluation.errors if isinstance(error.row, ClassRow))
    assert not evaluate_rows(runner, right, 3).errors


def test_an_evaluation_is_json(runner: Runner) -> None:
    rows = [ClassRow("f.tsv:2", ("good film", "a pair"), "no", id="x"), ClassRow("f.tsv:3", ("dull",), "no")]
    content = evaluate_rows(runner, rows, 5).to_json()
    assert list(content) == ["rows", "metrics", "baseline", "classes", "confusion", "reliability", "worst"]
    assert list(content["metrics"]["accuracy"]) == ["value", "low", "high"]
    (worst,) = content["worst"]
    assert worst["place"] == "f.tsv:2"
    assert (worst["id"], worst["text"], worst["pair"], worst["expected"]) == ("x", "good film", "a pair", ["no"])
    assert worst["answer"]["label"] == "yes"


def test_the_baseline_is_the_best_constant_prediction(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labelled=True))
    baseline = evaluate_rows(runner, rows, 0).baseline
    labels = [row.label for row in rows if isinstance(row, ClassRow)]
    majority = max(set(labels), key=labels.count)
    assert baseline.answer == f"always {majority}"
    assert baseline.metrics["accuracy"] == pytest.approx(labels.count(majority) / len(labels))


def test_bins_of_confidence_hold_every_decision_once(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labelled=True))
    evaluation = evaluate_rows(runner, rows, 0)
    bins = evaluation.reliability
    assert sum(each.count for each in bins) == len(rows)
    assert sum(each.count * each.accuracy for each in bins) / len(rows) == pytest.approx(evaluation.metrics["accuracy"])
    confidences = [each.confidence for each in bins]
    assert confidences == sorted(confidences)
    assert all(0.5 <= each <= 1 for each in confidences)  # of the likelier of two classes
