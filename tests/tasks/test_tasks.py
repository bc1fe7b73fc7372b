"""Classes, numbers and choices: what rows become, what is refused, what answers look like."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from bertmill.errors import DataError, UsageError
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify, labels_in, parse_class_weights
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.regress import Regress


def row(label: str | tuple[str, ...] | None, *choices: str) -> LabelledRow:
    return LabelledRow("file.tsv:7", ("a text",), label, choices)


def test_labels_are_ordered_by_value_then_by_name() -> None:
    rows = [row(label) for label in ("10", "nan", "9", "b", "inf", "a")]
    for _ in rows:
        rows = [*rows[1:], rows[0]]
        assert list(labels_in(rows, multi_label=False, file="f.tsv")) == ["9", "10", "a", "b", "inf", "nan"]


@pytest.mark.parametrize("multi_label", [False, True])
def test_one_label_alone_is_no_class(multi_label: bool) -> None:
    with pytest.raises(DataError, match=r"f.tsv: all rows have the same label 'a'; there must be at least two"):
        labels_in([row("a"), row("a")], multi_label, "f.tsv")
    with pytest.raises(DataError, match=r"f.tsv: all rows have no label; .* --multi-label"):
        labels_in([row(())], multi_label, "f.tsv")


def test_an_unknown_label_is_told_with_its_place() -> None:
    with pytest.raises(DataError, match=r"file.tsv:7: the label 'c' is not one of a, b"):
        Classify(("a", "b")).example(row("c"))


def test_several_labels_are_written_in_one_field_or_as_a_list() -> None:
    task = Classify(("a", "b", "c"), multi_label=True)
    assert task.example(row("a|c")).target == task.example(row(("c", "a"))).target == (1.0, 0.0, 1.0)
    with pytest.raises(DataError, match="--multi-label"):
        Classify(("a", "b")).example(row(("a", "b")))


def test_balanced_weights_make_rare_classes_as_heavy() -> None:
    counts = Counter({"ham": 30, "spam": 10})
    weights = parse_class_weights("balanced", counts)
    assert weights[0] * 30 == pytest.approx(weights[1] * 10)
    assert parse_class_weights("spam=5", counts) == parse_class_weights("ham=1, spam = 5", counts) == (1.0, 5.0)
    with pytest.raises(UsageError, match="the labels are ham, spam"):
        parse_class_weights("eggs=2", counts)
    for wrong in ("spam", "spam=x", "eggs=2", "spam=-1"):
        with pytest.raises(UsageError):
            parse_class_weights(wrong, counts)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, (1.0, 4.0)])
def test_the_loss_is_torchs_weighted_mean(smoothing: float, weights: tuple[float, ...] | None) -> None:
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    targets = [0, 1, 1, 0, 1]
    task = Classify(("a", "b"), class_weights=weights, label_smoothing=smoothing)
    mean = task.loss(list(logits), targets) / sum(map(task.weight, targets))
    expected = torch.nn.functional.cross_entropy(
        logits, torch.tensor(targets), None if weights is None else torch.tensor(weights), label_smoothing=smoothing
    )
    assert float(mean) == pytest.approx(float(expected), rel=1e-6)


def test_a_number_that_is_none_is_refused() -> None:
    assert Regress().example(row("2.5")).target == 2.5
    for label in ("high", "nan", "inf"):
        with pytest.raises(DataError, match="is not a number"):
            Regress().example(row(label))


def test_choices_are_sequences_and_may_differ_in_number() -> None:
    task = Choose()
    example = task.example(LabelledRow("f:1", ("She ran.", "Then she"), "sat.", ("ate.", "sat.", "flew.")))
    assert example.sequences == (
        ("She ran.", "Then she ate."),
        ("She ran.", "Then she sat."),
        ("She ran.", "Then she flew."),
    )
    assert example.target == 1
    outputs = [torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1.0, 3.0])]
    expected = sum(float(-output.log_softmax(0)[target]) for output, target in zip(outputs, [1, 0], strict=True))
    assert float(task.loss(outputs, [1, 0])) == pytest.approx(expected)
    with pytest.raises(DataError, match="no choices"):
        task.example(row("x"))


def test_answers_name_labels_with_probabilities() -> None:
    answer = Classify(("no", "yes")).decode(np.array([0.0, np.log(3)], np.float32))
    assert answer["label"] == "yes"
    assert answer["score"] == pytest.approx(0.75)
    assert answer["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
    several = Classify(("a", "b"), multi_label=True).decode(np.array([3.0, -3.0], np.float32))
    assert several["labels"] == ["a"]


def test_one_row_has_no_correlation() -> None:
    metrics = Regress().metrics([np.array([2.0], np.float32)], [3.0])
    assert metrics == {"pearson": 0.0, "spearman": 0.0, "mean_squared_error": 1.0, "mean_absolute_error": 1.0}
