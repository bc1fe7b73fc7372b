"""Classes, numbers and choices: what rows become, what is refused, what answers look like."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import read_labelled
from hypothesis import given
from hypothesis import strategies as st

from bertmill.errors import DataError, UsageError
from bertmill.tasks.base import EncodedExample, Task
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify, labels_in, parse_class_weights
from bertmill.tasks.metrics import ByClass, intervals
from bertmill.tasks.regress import Regress


def row(label: str | tuple[str, ...] | None, *choices: str) -> LabelledRow:
    return LabelledRow("file.tsv:7", ("a text",), label, choices)


def encoded(task: Task, given: LabelledRow) -> EncodedExample:
    """What an output is set against; the pieces do not matter here."""
    return EncodedExample(task.example(given), ())


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


def test_a_file_has_one_separator_of_labels() -> None:
    rows = [row("Arts, Culture|Music"), row("Arts, Culture"), row(("Law", "Music"))]
    labels = tuple(labels_in(rows, multi_label=True, file="f.tsv"))
    assert labels == ("Arts, Culture", "Law", "Music")
    assert Classify(labels, multi_label=True).example(rows[1]).target == (1.0, 0.0, 0.0)
    assert list(labels_in([row("a, b"), row("c")], multi_label=True, file="f.tsv")) == ["a", "b", "c"]


def test_balanced_weights_make_rare_classes_as_heavy() -> None:
    counts = Counter({"ham": 30, "spam": 10})
    weights = parse_class_weights("balanced", counts)
    assert weights[0] * 30 == pytest.approx(weights[1] * 10)
    assert parse_class_weights("spam=5", counts) == parse_class_weights("ham=1, spam = 5", counts) == (1.0, 5.0)
    with pytest.raises(UsageError, match="the labels are ham, spam"):
        parse_class_weights("eggs=2", counts)
    with pytest.raises(UsageError, match="names no label of the data, or one again"):
        parse_class_weights("ham=1,ham=2", counts)
    for wrong in ("spam", "Balanced", "spam=x", "spam=-1"):
        with pytest.raises(UsageError, match=r"is not LABEL=NUMBER above 0; or say balanced"):
            parse_class_weights(wrong, counts)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weights", [None, (1.0, 4.0)])
def test_the_loss_is_torchs_weighted_mean(smoothing: float, weights: tuple[float, ...] | None) -> None:
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    targets = [0, 1, 1, 0, 1]
    task = Classify(("a", "b"), class_weights=weights, label_smoothing=smoothing)
    examples = [encoded(task, row("ab"[target])) for target in targets]
    mean = task.loss(list(logits), examples) / sum(map(task.weight, examples))
    expected = torch.nn.functional.cross_entropy(
        logits, torch.tensor(targets), None if weights is None else torch.tensor(weights), label_smoothing=smoothing
    )
    assert float(mean) == pytest.approx(float(expected), rel=1e-6)


def test_a_number_that_is_none_is_refused() -> None:
    assert Regress().example(row("2.5")).target == 2.5
    for label in ("high", "nan", "inf", "1_000"):
        with pytest.raises(DataError, match="is not a number"):
            Regress().example(row(label))
    with pytest.raises(DataError, match="'-1e300' is too large"):
        Regress().example(row("-1e300"))


def test_several_labels_are_separated_by_the_first_mark_that_is_there() -> None:
    task = Classify(("Arts, Culture", "Music"), multi_label=True)
    assert task.example(row("Arts, Culture|Music")).target == (1.0, 1.0)
    assert task.example(row("Music")).target == (0.0, 1.0)
    assert Classify(("a", "b"), multi_label=True).example(row("a; b")).target == (1.0, 1.0)


def test_choices_are_refused_where_none_are_known() -> None:
    with_choices = LabelledRow("f:1", ("a",), None, ("b", "c"))
    for task in (Regress(), Classify(("a", "b"))):
        with pytest.raises(DataError, match=f"f:1: has choices, which {task.name} does not know"):
            task.example(with_choices)


def test_choices_are_sequences_and_may_differ_in_number() -> None:
    task = Choose()
    example = task.example(LabelledRow("f:1", ("She ran.", "Then she"), "sat.", ("ate.", "sat.", "flew.")))
    assert task.sequences_of(example.row) == (
        ("She ran.", "Then she ate."),
        ("She ran.", "Then she sat."),
        ("She ran.", "Then she flew."),
    )
    assert example.target == 1
    outputs = [torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1.0, 3.0])]
    expected = sum(float(-output.log_softmax(0)[target]) for output, target in zip(outputs, [1, 0], strict=True))
    fewer = task.example(LabelledRow("f:2", ("She ran.",), "a", ("a", "b")))
    examples = [EncodedExample(each, ()) for each in (example, fewer)]
    assert float(task.loss(outputs, examples)) == pytest.approx(expected)
    with pytest.raises(DataError, match="no choices"):
        task.example(row("x"))


def test_answers_name_labels_with_probabilities() -> None:
    one = Classify(("no", "yes"))
    answer = one.decode(encoded(one, row(None)), np.array([0.0, np.log(3)], np.float32))
    assert answer["label"] == "yes"
    assert answer["score"] == pytest.approx(0.75)
    assert answer["scores"] == pytest.approx({"no": 0.25, "yes": 0.75})
    several = Classify(("a", "b"), multi_label=True)
    assert several.decode(encoded(several, row(None)), np.array([3.0, -3.0], np.float32))["labels"] == ["a"]


def test_a_choice_is_answered_with_its_number_and_its_text() -> None:
    answer = Choose().decode(encoded(Choose(), row("x", "x", "y")), np.array([0.0, np.log(3)], np.float32))
    assert answer == {"choice": 1, "answer": "y", "score": pytest.approx(0.75), "scores": pytest.approx([0.25, 0.75])}


# Judgements and metrics


@pytest.mark.filterwarnings("ignore:A single label")
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40), st.integers(2, 4))
def test_metrics_of_classes_are_scikit_learns(answers: list[tuple[int, int]], num_classes: int) -> None:
    judgements = np.minimum(np.array(answers), num_classes - 1)
    given, wanted = judgements[:, 0], judgements[:, 1]
    average = "binary" if num_classes == 2 else "macro"
    assert Classify(tuple("abcd"[:num_classes])).metrics(judgements) == pytest.approx(
        {
            "accuracy": (given == wanted).mean(),
            "f1": sklearn.metrics.f1_score(wanted, given, zero_division=0.0, average=average),
            "matthews": sklearn.metrics.matthews_corrcoef(wanted, given),
        }
    )


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=20))
def test_metrics_of_several_labels_are_scikit_learns(answers: list[list[bool]]) -> None:
    judgements = np.array(answers).reshape(-1, 2, 3)
    given, wanted = judgements[:, 0], judgements[:, 1]
    task = Classify(("a", "b", "c"), multi_label=True)
    figures = task.metrics(judgements)
    for average in ("micro", "macro"):
        expected = sklearn.metrics.f1_score(wanted, given, average=average, zero_division=0.0)
        assert figures[f"{average}_f1"] == pytest.approx(expected)
    columns = sklearn.metrics.precision_recall_fscore_support(wanted, given, average=None, zero_division=0.0)
    ours = [(each.precision, each.recall, each.f1, each.rows) for each in task.by_class(judgements).figures]
    assert ours == [pytest.approx(each) for each in zip(*columns, strict=True)]


def test_a_label_with_a_separator_in_it_may_have_blanks_around_it(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text("text\tlabel\nx\tc, d\ny\tc, d \nz\ta|b\n")
    rows = list(read_labelled(str(file)))
    task = Classify(tuple(labels_in(rows, True, "a.tsv")), multi_label=True)
    assert [task.labels_of(row) for row in rows] == [("c, d",), ("c, d",), ("a", "b")]


def test_an_output_is_judged_once_and_tells_what_metrics_need() -> None:
    several = Classify(("a", "b"), multi_label=True)
    judged = several.judge(encoded(several, row("a")), np.array([-1.0, 2.0], np.float32))
    assert judged.tolist() == [[False, True], [True, False]]
    assert several.error(encoded(several, row("a")), np.array([-1.0, 2.0], np.float32), judged) == 3.0
    assert Classify(("a", "b")).judge(encoded(Classify(("a", "b")), row("a")), np.array([0, 1])).tolist() == [1, 0]
    assert Choose().judge(encoded(Choose(), row("x", "x", "y")), np.array([2, 1])).tolist() == [True]
    numbers = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    assert Regress().metrics(numbers)["pearson"] == pytest.approx(1.0)
    assert Regress().metrics(numbers)["mean_absolute_error"] == 2.0


def test_tables_by_class_are_where_classes_are() -> None:
    judgements = np.array([[0, 0], [1, 0], [1, 1]])
    table = Classify(("a", "b")).by_class(judgements)
    assert table.confusion == [[1, 1], [0, 1]]
    assert [(each.label, each.precision, each.recall, each.rows) for each in table.figures] == [
        ("a", 1.0, 0.5, 2),
        ("b", 0.5, 1.0, 1),
    ]
    assert Regress().by_class(judgements) == ByClass()
    many = Classify(tuple(map(str, range(50_000)))).by_class(judgements)  # a matrix would have 2.5 billion cells
    assert (many.confusion, many.figures[1].rows, len(many.figures)) == ([], 1, 50_000)


def test_intervals_are_those_of_drawn_rows_and_the_same_every_time() -> None:
    judgements = np.array([[True]] * 80 + [[False]] * 20)
    low, high = intervals(Choose().metrics, judgements)["accuracy"]
    assert 0.68 < low < 0.76 < 0.84 < high < 0.92  # 0.8 ± 1.96 · 0.04
    assert intervals(Choose().metrics, judgements)["accuracy"] == (low, high)


def test_one_row_has_no_correlation() -> None:
    metrics = Regress().metrics(np.array([[2.0, 3.0]]))
    assert metrics == {"pearson": 0.0, "spearman": 0.0, "mean_squared_error": 1.0, "mean_absolute_error": 1.0}
