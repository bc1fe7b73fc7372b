"""Tests for classify: labels, targets, losses, predictions and metrics."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertmill.batching.windows import Windows
from bertmill.errors import DataError, UsageError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Example
from bertmill.tasks.class_labels import Label, count_labels, parse_class_weights
from bertmill.tasks.classify import Classify, ClassifyOptions, ClassRow
from bertmill.text.tokenizer import BertTokenizer

WINDOWS = Windows(BertTokenizer.from_pretrained("minilm"), 64)
MULTI_LABEL = ClassifyOptions(multi_label=True)


def row(label: Label | None) -> ClassRow:
    return ClassRow("file.tsv:7", ("a text",), label)


def encoded(task: Classify, label: Label | None) -> Example:
    return task.encode(row(label), WINDOWS)


def read(path: Path, content: str, options: ClassifyOptions | None = None) -> list[ClassRow]:
    path.write_text(content, encoding="utf-8")
    return list(Classify.read(RowFile(str(path)), options or ClassifyOptions(), labeled=True))


# Labels


def test_labels_are_ordered_by_value_then_by_name() -> None:
    rows = [row(label) for label in ("10", "nan", "9", "b", "inf", "a")]
    for _ in rows:
        rows = [*rows[1:], rows[0]]
        assert list(count_labels([each.label for each in rows], multi_label=False, where="f.tsv")) == [
            "9",
            "10",
            "a",
            "b",
            "inf",
            "nan",
        ]


@pytest.mark.parametrize("multi_label", [False, True])
def test_a_single_label_cannot_be_learned(multi_label: bool) -> None:
    with pytest.raises(DataError, match=r"f.tsv: all rows have the same label 'a'; classify needs at least two"):
        count_labels(["a", "a"], multi_label, "f.tsv")
    with pytest.raises(DataError, match=r"f.tsv: no row has a label; .* `multi_label=True`"):
        count_labels([()], multi_label, "f.tsv")


def test_the_task_has_the_labels_of_its_rows_and_its_options() -> None:
    rows = [row("b"), row("a"), row("b")]
    options = ClassifyOptions(class_weights="b=2", label_smoothing=0.1)
    task = Classify.from_rows(rows, options, WINDOWS.tokenizer, RowFile("f.tsv"))
    assert task == Classify(("a", "b"), class_weights=(1.0, 2.0), label_smoothing=0.1)
    assert task.folder_entries() == ({"id2label": {0: "a", 1: "b"}, "problem_type": "single_label_classification"}, {})
    with pytest.raises(ValueError, match="cannot be used with `multi_label`"):
        ClassifyOptions(multi_label=True, class_weights="balanced")


def test_many_numeric_labels_suggest_regress() -> None:
    remark = "all 30 labels are numbers, and each is a class; use regress to predict a number"
    for multi_label, count, expected in ((False, 2, []), (True, 30, []), (False, 30, [remark])):
        file = RowFile("f.tsv")
        rows = [row(str(number)) for number in range(count)]
        Classify.from_rows(rows, ClassifyOptions(multi_label=multi_label), WINDOWS.tokenizer, file)
        assert file.counts.notices == expected


def test_rows_without_a_label_are_counted_with_multi_label() -> None:
    file = RowFile("f.tsv")
    Classify.from_rows([row("a"), row(()), row("b"), row(())], MULTI_LABEL, WINDOWS.tokenizer, file)
    assert file.counts.notices == ["2 of 4 rows have no label"]


def test_an_unknown_label_is_reported_with_its_place() -> None:
    with pytest.raises(BadRowError, match=r"file.tsv:7: the label 'c' is not one of a, b"):
        encoded(Classify(("a", "b")), "c")


def test_an_unlabeled_row_has_no_target() -> None:
    task = Classify(("a", "b"))
    assert encoded(task, None).target is None
    assert task.labels(row(None)) == ()
    assert task.labels(row("a")) == ("a",)


def test_rows_with_choices_are_rejected(tmp_path: Path) -> None:
    content = '{"text": "a", "choices": ["b", "c"], "label": "x"}\n'
    with pytest.raises(DataError, match=r"a.jsonl:1: the row has choices, which the task classify does not read"):
        read(tmp_path / "a.jsonl", content)


# Several labels


def test_several_labels_are_one_string_or_a_list() -> None:
    task = Classify(("a", "b", "c"), multi_label=True)
    assert encoded(task, "a|c").target == encoded(task, ("c", "a")).target == (1.0, 0.0, 1.0)
    assert encoded(task, ()).target == (0.0, 0.0, 0.0)
    with pytest.raises(BadRowError, match=r"file.tsv:7: the row has 2 labels; set `multi_label=True`"):
        encoded(Classify(("a", "b")), ("a", "b"))


def test_the_labels_of_a_file_have_one_separator() -> None:
    rows = [row("Arts, Culture|Music"), row("Arts, Culture"), row(("Law", "Music"))]
    labels = tuple(count_labels([each.label for each in rows], multi_label=True, where="f.tsv"))
    assert labels == ("Arts, Culture", "Law", "Music")
    assert encoded(Classify(labels, multi_label=True), rows[1].label).target == (1.0, 0.0, 0.0)
    assert list(count_labels(["a, b", "c"], multi_label=True, where="f.tsv")) == ["a", "b", "c"]


def test_the_first_separator_that_occurs_separates_labels() -> None:
    task = Classify(("Arts, Culture", "Music"), multi_label=True)
    assert encoded(task, "Arts, Culture|Music").target == (1.0, 1.0)
    assert encoded(task, "Music").target == (0.0, 1.0)
    assert encoded(Classify(("a", "b"), multi_label=True), "a; b").target == (1.0, 1.0)


def test_a_label_that_contains_a_separator_may_have_surrounding_spaces(tmp_path: Path) -> None:
    rows = read(tmp_path / "a.tsv", "text\tlabel\nx\tc, d\ny\tc, d \nz\ta|b\nw\t\n", MULTI_LABEL)
    task = Classify.from_rows(rows, MULTI_LABEL, WINDOWS.tokenizer, RowFile("a.tsv"))
    assert [task.labels(each) for each in rows] == [("c, d",), ("c, d",), ("a", "b"), ()]


# Losses


def test_balanced_weights_give_every_class_the_same_total() -> None:
    counts = Counter({"ham": 30, "spam": 10})
    weights = parse_class_weights("balanced", counts)
    assert weights[0] * 30 == pytest.approx(weights[1] * 10)
    assert parse_class_weights("spam=5", counts) == parse_class_weights("ham=1, spam = 5", counts) == (1.0, 5.0)
    with pytest.raises(UsageError, match="the labels are ham, spam"):
        parse_class_weights("eggs=2", counts)
    with pytest.raises(UsageError, match="names an unknown or repeated label"):
        parse_class_weights("ham=1,ham=2", counts)
    for wrong in ("spam", "Balanced", "spam=x", "spam=-1"):
        with pytest.raises(
            UsageError, match=r"expected LABEL=NUMBER with a positive number, got .*; correct it, or use balanced"
        ):
            parse_class_weights(wrong, counts)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, (1.0, 4.0)])
def test_the_loss_is_the_weighted_mean_as_in_torch(smoothing: float, weights: tuple[float, ...] | None) -> None:
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    targets = [0, 1, 1, 0, 1]
    task = Classify(("a", "b"), class_weights=weights, label_smoothing=smoothing)
    examples = [encoded(task, "ab"[target]) for target in targets]
    mean = task.loss(list(logits), examples) / sum(example.weight for example in examples)
    expected = torch.nn.functional.cross_entropy(
        logits, torch.tensor(targets), None if weights is None else torch.tensor(weights), label_smoothing=smoothing
    )
    assert float(mean) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("weights", [None, (1.0, 4.0)])
def test_the_loss_of_guessing_is_the_smallest_loss_of_a_constant(weights: tuple[float, ...] | None) -> None:
    task = Classify(("a", "b"), class_weights=weights)
    examples = [encoded(task, label) for label in "aaab"]
    total = sum(example.weight for example in examples)
    constants = ([torch.tensor([0.0, each])] * len(examples) for each in torch.linspace(-4, 4, 801).tolist())
    smallest = min(float(task.loss(constant, examples)) / total for constant in constants)
    assert task.guessing_loss(examples) == pytest.approx(smallest, abs=1e-4)
    assert math.isnan(Classify(("a", "b"), label_smoothing=0.1).guessing_loss(examples))


# Predictions


def test_predictions_have_labels_and_probabilities() -> None:
    task = Classify(("no", "yes"))
    (answer,) = task.decode([encoded(task, None)], [np.array([0.0, np.log(3)], np.float32)])
    assert answer["label"] == "yes"
    assert answer["score"] == pytest.approx(0.75)
    assert answer["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
    assert task.show(answer) == "yes 0.7500"


def test_multi_label_predictions_list_the_labels_above_the_threshold() -> None:
    task = Classify(("a", "b", "c"), multi_label=True)
    examples = [encoded(task, None)] * 2
    both, none = task.decode(examples, [np.array([3, -3, 3], np.float32), np.array([-3, -3, -3], np.float32)])
    assert (both["labels"], none["labels"]) == (["a", "c"], [])
    assert (task.show(both), task.show(none)) == ("a 0.9526, c 0.9526", "none")


def test_every_label_may_have_its_own_threshold() -> None:
    task = Classify(("a", "b"), multi_label=True, thresholds=(0.2, 0.8))
    example, output = encoded(task, "b"), np.array([-1, 1], np.float32)  # probabilities 0.27 and 0.73
    assert task.decode([example], [output])[0]["labels"] == ["a"]
    scores = np.stack([task.score(example, output)])
    assert task.metrics(scores)["micro_f1"] == 0
    assert [each.rows for each in task.class_report(scores).figures] == [0, 1]
    size, expected = task.mistake(example, output, scores[0])
    assert (size, expected) == (pytest.approx((np.log(4) - 1) + (np.log(4) - 1)), ("b",))
    assert list(task.confidences(example, output)) == [(pytest.approx(1 / (1 + np.e)), False)] * 2


def test_thresholds_are_tuned_for_the_metric_and_restored_from_the_folder() -> None:
    task = Classify(("a", "b"), multi_label=True)
    likely = np.linspace(0.01, 0.4, 40)
    scores = np.stack([np.stack([likely, likely], 1), np.stack([likely > 0.3, likely > 0.2], 1)], 1)
    assert task.metrics(scores)["micro_f1"] == 0
    tuned, description = task.tuned(lambda: scores, "micro_f1")
    assert tuned.metrics(scores)["micro_f1"] == 1
    assert tuned.thresholds == pytest.approx((0.3, 0.2), abs=0.01)
    assert description == f"thresholds of 2 labels, from {min(tuned.thresholds):.4f} to {max(tuned.thresholds):.4f}"
    config, metadata = tuned.folder_entries()
    assert Classify.from_folder(BertConfig.of_size("tiny").with_settings(**config), metadata) == tuned
    assert task.tuned(pytest.fail, "subset_accuracy") == (task, "")
    assert Classify(("a", "b")).tuned(pytest.fail, "accuracy") == (Classify(("a", "b")), "")


def test_top_k_lists_the_most_likely_classes_instead_of_all_scores() -> None:
    output = np.log(np.array([0.2, 0.5, 0.3]))
    task = Classify(("a", "b", "c"), top_k=2)
    (answer,) = task.decode([encoded(task, None)], [output])
    assert list(answer) == ["label", "score", "top"]
    assert [each["label"] for each in answer["top"]] == ["b", "c"]
    assert answer["score"] == answer["top"][0]["score"] == pytest.approx(0.5)
    assert task.show(answer) == "b 0.5000, c 0.3000"
    several = Classify(("a", "b", "c"), multi_label=True, top_k=1)
    (answer,) = several.decode([encoded(several, None)], [np.array([1.0, 2.0, -1.0])])
    assert (answer["labels"], [each["label"] for each in answer["top"]]) == (["a", "b"], ["b"])
    assert len(Classify(("a", "b"), top_k=5).decode([encoded(task, None)], [output[:2]])[0]["top"]) == 2


# Scores and metrics


@pytest.mark.filterwarnings("ignore:A single label")
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40), st.integers(2, 4))
def test_single_label_metrics_match_scikit_learn(answers: list[tuple[int, int]], num_classes: int) -> None:
    scores = np.minimum(np.array(answers), num_classes - 1)
    predicted, expected = scores[:, 0], scores[:, 1]
    average = "binary" if num_classes == 2 else "macro"
    assert Classify(tuple("abcd"[:num_classes])).metrics(scores) == pytest.approx(
        {
            "accuracy": (predicted == expected).mean(),
            "f1": sklearn.metrics.f1_score(expected, predicted, zero_division=0.0, average=average),
            "matthews": sklearn.metrics.matthews_corrcoef(expected, predicted),
        }
    )


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=20))
def test_multi_label_metrics_match_scikit_learn(answers: list[list[bool]]) -> None:
    scores = np.array(answers).reshape(-1, 2, 3)
    predicted, expected = scores[:, 0], scores[:, 1]
    task = Classify(("a", "b", "c"), multi_label=True)
    figures = task.metrics(scores)
    for average in ("micro", "macro"):
        theirs = sklearn.metrics.f1_score(expected, predicted, average=average, zero_division=0.0)
        assert figures[f"{average}_f1"] == pytest.approx(theirs)
    columns = sklearn.metrics.precision_recall_fscore_support(expected, predicted, average=None, zero_division=0.0)
    ours = [(each.precision, each.recall, each.f1, each.rows) for each in task.class_report(scores).figures]
    assert ours == [pytest.approx(each) for each in zip(*columns, strict=True)]


def test_a_score_contains_what_the_metrics_need() -> None:
    several = Classify(("a", "b"), multi_label=True)
    output = np.array([-1.0, 2.0], np.float32)
    score = several.score(encoded(several, "a"), output)
    assert score.tolist() == [pytest.approx([1 / (1 + np.e), 1 / (1 + np.exp(-2))]), [1, 0]]
    assert several.mistake(encoded(several, "a"), output, score) == (pytest.approx(3.0), ("a",))
    single = Classify(("a", "b"))
    score = single.score(encoded(single, "a"), np.array([0, 1], np.float32))
    assert score.tolist() == [1, 0]
    assert single.mistake(encoded(single, "a"), np.array([0, 1], np.float32), score) == (1.0, ("a",))


def test_the_class_report_has_metrics_and_a_confusion_matrix() -> None:
    scores = np.array([[0, 0], [1, 0], [1, 1]])
    report = Classify(("a", "b")).class_report(scores)
    assert report.confusion == [[1, 1], [0, 1]]
    assert [(each.label, each.precision, each.recall, each.rows) for each in report.figures] == [
        ("a", 1.0, 0.5, 2),
        ("b", 0.5, 1.0, 1),
    ]
    many = Classify(tuple(map(str, range(50_000)))).class_report(scores)  # a matrix would have 2.5 billion cells
    assert (many.confusion, many.figures[1].rows, len(many.figures)) == ([], 1, 50_000)


# Baseline and confidence


def test_the_baseline_is_the_majority_class() -> None:
    task = Classify(("a", "b", "c"))
    answer, scores = task.baseline([encoded(task, label) for label in ("c", "a", "c", "b")], "accuracy")
    assert (answer, task.metrics(scores)["accuracy"]) == ("always c", 0.5)


def test_the_baseline_is_the_constant_with_the_best_metric() -> None:
    task = Classify(("a", "b"))
    answer, scores = task.baseline([encoded(task, label) for label in "aab"], "f1")
    assert (answer, task.metrics(scores)["f1"]) == ("always b", 0.5)  # "always a" has an F1 of 0
    several = Classify(("a", "b"), multi_label=True)
    examples = [encoded(several, label) for label in ("a", (), ())]
    assert several.baseline(examples, "macro_f1")[0] == "every label"
    assert several.baseline(examples, "subset_accuracy")[0] == "no label"


def test_the_baseline_of_several_labels_has_the_labels_with_the_best_micro_f1() -> None:
    task = Classify(("a", "b"), multi_label=True)
    answer, scores = task.baseline([encoded(task, label) for label in ("a", (), "a|b")], "micro_f1")
    assert (answer, task.metrics(scores)["micro_f1"]) == ("always a", pytest.approx(2 / 3))
    assert task.baseline([encoded(task, ())], "micro_f1")[0] == "no label"


def test_confidence_is_the_probability_of_each_decision() -> None:
    task = Classify(("a", "b"))
    ((confidence, is_right),) = task.confidences(encoded(task, "a"), np.array([0.0, 1.0], np.float32))
    assert (confidence, is_right) == (pytest.approx(1 / (1 + np.exp(-1))), False)
    task = Classify(("a", "b"), multi_label=True)
    decisions = list(task.confidences(encoded(task, "a"), np.array([2.0, 1.0], np.float32)))
    assert decisions == [(pytest.approx(1 / (1 + np.exp(-2))), True), (pytest.approx(1 / (1 + np.exp(-1))), False)]
