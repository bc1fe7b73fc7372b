"""Tests for evaluation: metrics with intervals, classes, and the most confident errors first."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bertmill.inference.evaluation import Evaluation, evaluate, evaluate_outputs
from bertmill.inference.runner import Runner
from bertmill.rows.source import RowFile
from bertmill.tasks.base import AnyTask, Example, encode_rows
from bertmill.tasks.classify import Classify, ClassRow
from bertmill.tasks.label_sets import sigmoid
from bertmill.tasks.regress import NumberRow, Regress


@pytest.fixture(scope="module")
def runner(classifier: Path) -> Runner:
    return Runner(classifier, "cpu")


def evaluate_rows(runner: Runner, rows: list[ClassRow], num_errors: int) -> Evaluation:
    examples = encode_rows(runner.task, rows, runner.windows, RowFile("f.tsv"))
    return evaluate(runner.task, runner.model, examples, runner.device, num_errors, runner.metric)


def test_metrics_have_intervals_and_agree_with_the_confusion_matrix(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labeled=True))
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
    names = ["rows", "metric", "metrics", "baseline", "warning", "classes", "confusion", "reliability", "worst"]
    assert list(content) == names
    assert list(content["metrics"]["accuracy"]) == ["value", "low", "high"]
    (worst,) = content["worst"]
    assert worst["place"] == "f.tsv:2"
    assert (worst["id"], worst["text"], worst["pair"], worst["expected"]) == ("x", "good film", "a pair", ["no"])
    assert worst["answer"]["label"] == "yes"


def test_the_baseline_is_the_best_constant_prediction(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labeled=True))
    baseline = evaluate_rows(runner, rows, 0).baseline
    labels = [row.label for row in rows if isinstance(row, ClassRow)]
    majority = max(set(labels), key=labels.count)
    assert baseline.answer == f"always {majority}"
    assert baseline.metrics["accuracy"] == pytest.approx(labels.count(majority) / len(labels))


class Outputs(NamedTuple):
    """A stand-in for a model: the outputs that a task should get for its examples."""

    task: AnyTask
    outputs: list[np.ndarray]
    targets: list[Any]

    def evaluate(self, metric: str, *, is_tuned_on_examples: bool = False) -> Evaluation:
        kind = NumberRow if isinstance(self.task, Regress) else ClassRow
        row = kind("f.tsv:2", ("a text",))
        examples = [Example(row, (), target) for target in self.targets]
        outputs = list(zip(examples, self.outputs, strict=True))
        return evaluate_outputs(self.task, outputs, 0, metric, is_tuned_on_examples=is_tuned_on_examples)


def classes(num_right: int) -> Outputs:
    """40 rows, 30 of the class a. All are predicted as a, except the first `num_right` of the class b."""
    targets = [0] * 30 + [1] * 10
    predicted = [0] * 30 + [1] * num_right + [0] * (10 - num_right)
    return Outputs(Classify(("a", "b")), [np.eye(2)[each] for each in predicted], targets)


def test_a_model_that_is_not_better_than_the_baseline_beyond_its_interval_gets_a_warning() -> None:
    useless = classes(0).evaluate("accuracy")
    assert useless.warning.startswith(
        "the model is not clearly better than the baseline (always a): accuracy 0.7500 (95% CI: 0.6"
    )
    assert useless.summary.endswith("), baseline 0.7500 (always a)")
    slightly = classes(2).evaluate("accuracy")
    assert slightly.intervals["accuracy"][0] < 0.75 < slightly.metrics["accuracy"]
    assert "accuracy 0.8000" in slightly.warning
    assert classes(10).evaluate("accuracy").warning == ""


@pytest.mark.parametrize(
    ("slope", "offset", "is_useful"), [(1, 0, True), (0, 4.5, False), (1, 9, False), (-1, 9, False)]
)
def test_predicted_numbers_must_correlate_and_be_closer_than_the_mean(
    slope: float, offset: float, is_useful: bool
) -> None:
    targets = [float(number % 10) for number in range(100)]
    model = Outputs(Regress(), [np.array([slope * each + offset]) for each in targets], targets)
    warning = model.evaluate("pearson").warning
    assert (not warning) == is_useful
    assert ("pearson" in warning) == (slope <= 0)
    assert ("mean squared error" in warning) == (not is_useful)


def test_thresholds_tuned_on_the_same_rows_do_not_hide_that_nothing_was_learned() -> None:
    generator = np.random.default_rng(0)
    targets = generator.random((200, 60)) < 0.2
    task = Classify(tuple(map(str, range(60))), multi_label=True)
    scores = generator.normal(0, 0.2, targets.shape)
    tuned, _ = task.tuned(lambda: np.stack([sigmoid(scores), targets], 1), "micro_f1")
    noise = Outputs(tuned, list(scores), list(targets))
    biased = noise.evaluate("micro_f1")
    assert biased.intervals["micro_f1"][0] > biased.baseline.metrics["micro_f1"]
    warning = noise.evaluate("micro_f1", is_tuned_on_examples=True).warning
    assert "not clearly better" in warning
    assert warning.endswith(", with each half of the rows judged by thresholds tuned on the other half.")
    signal = Outputs(tuned, list(scores + targets), list(targets))
    assert signal.evaluate("micro_f1", is_tuned_on_examples=True).warning == ""


def test_rows_that_alternate_between_two_kinds_are_not_split_by_kind() -> None:
    targets = [(1.0, 0.0), (0.0, 1.0)] * 40
    logits = [np.array([-1.0, -3.0]) if first else np.array([-3.0, -1.0]) for first, _ in targets]
    task = Classify(("a", "b"), multi_label=True)
    tuned, _ = task.tuned(lambda: np.stack([sigmoid(np.array(logits)), np.array(targets)], 1), "micro_f1")
    assert Outputs(tuned, logits, targets).evaluate("micro_f1", is_tuned_on_examples=True).warning == ""


def test_a_single_row_may_be_the_whole_dev_set() -> None:
    one = Outputs(Classify(("a", "b"), multi_label=True), [np.array([1.0, -1.0])], [(1.0, 0.0)])
    assert one.evaluate("micro_f1", is_tuned_on_examples=True).num_rows == 1


def test_bins_of_confidence_hold_every_decision_once(runner: Runner, rows_file: Path) -> None:
    rows = list(runner.read(RowFile(str(rows_file)), labeled=True))
    evaluation = evaluate_rows(runner, rows, 0)
    bins = evaluation.reliability
    assert sum(each.count for each in bins) == len(rows)
    assert sum(each.count * each.accuracy for each in bins) / len(rows) == pytest.approx(evaluation.metrics["accuracy"])
    confidences = [each.confidence for each in bins]
    assert confidences == sorted(confidences)
    assert all(0.5 <= each <= 1 for each in confidences)  # of the likelier of two classes
