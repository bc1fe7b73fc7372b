"""Tests for regress: numeric labels, predictions and metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from bertmill.batching.windows import Windows
from bertmill.errors import DataError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.metrics import ClassReport
from bertmill.tasks.regress import NumberRow, Regress
from bertmill.text.tokenizer import BertTokenizer

WINDOWS = Windows(BertTokenizer.from_pretrained("minilm"), 64)
TASK = Regress()


def read(path: Path, *labels: str) -> list[NumberRow]:
    path.write_text("".join(["text\tlabel\n", *(f"a text\t{label}\n" for label in labels)]), encoding="utf-8")
    return list(Regress.read(RowFile(str(path)), TaskOptions(), labeled=True))


def test_labels_are_numbers_in_any_notation(tmp_path: Path) -> None:
    assert [row.number for row in read(tmp_path / "a.tsv", "2.5", " -1e3 ", "7")] == [2.5, -1000.0, 7.0]


@pytest.mark.parametrize("label", ["high", "nan", "inf", "1_000"])
def test_a_label_that_is_not_a_number_is_rejected(label: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"a.tsv:3: the label '{label}' is .*; correct it, use classify, or"):
        read(tmp_path / "a.tsv", "1", label)


def test_a_label_whose_square_overflows_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'-1e300' is too large"):
        read(tmp_path / "a.tsv", "-1e300")


def test_identical_numbers_cannot_be_learned(tmp_path: Path) -> None:
    for labels in (["1", "1.0"], ["1"]):
        rows = read(tmp_path / "a.tsv", *labels)
        with pytest.raises(DataError, match=r"a.tsv: all rows have the same number; regress needs at least two"):
            Regress.from_rows(rows, TaskOptions(), WINDOWS.tokenizer, RowFile("a.tsv"))


def test_rows_with_choices_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "choices": ["b", "c"], "label": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"a.jsonl:1: the row has choices, which the task regress does not read"):
        list(Regress.read(RowFile(str(path)), TaskOptions(), labeled=True))


def test_the_loss_is_the_squared_error() -> None:
    examples = [TASK.encode(NumberRow("f:1", ("a",), number), WINDOWS) for number in (1.0, 4.0)]
    assert float(TASK.loss([torch.tensor([2.0]), torch.tensor([2.0])], examples)) == 5.0


def test_a_prediction_is_a_number() -> None:
    example = TASK.encode(NumberRow("f:1", ("a",), 3.0), WINDOWS)
    output = np.array([2.5], np.float32)
    (answer,) = TASK.decode([example], [output])
    assert (answer, TASK.show(answer)) == ({"number": 2.5}, "2.5000")
    score = TASK.score(example, output)
    assert score.tolist() == [2.5, 3.0]
    assert TASK.mistake(example, output, score)[0] == 0.5
    assert TASK.labels(example.row) == ("3",)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=20))
def test_correlations_match_scipy(pairs: list[tuple[int, int]]) -> None:
    scores = np.array(pairs, np.float64)
    assume(all(len(set(column)) > 1 for column in scores.T.tolist()))
    metrics = TASK.metrics(scores)
    assert metrics["pearson"] == pytest.approx(scipy.stats.pearsonr(*scores.T)[0])
    assert metrics["spearman"] == pytest.approx(scipy.stats.spearmanr(*scores.T)[0])


def test_numbers_on_a_line_are_correlated_and_have_errors() -> None:
    numbers = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    assert TASK.metrics(numbers)["pearson"] == pytest.approx(1.0)
    assert TASK.metrics(numbers)["mean_absolute_error"] == 2.0
    assert TASK.class_report(numbers) == ClassReport()


def test_the_correlation_of_a_single_row_is_zero() -> None:
    metrics = TASK.metrics(np.array([[2.0, 3.0]]))
    assert metrics == {"pearson": 0.0, "spearman": 0.0, "mean_squared_error": 1.0, "mean_absolute_error": 1.0}


def test_the_baseline_is_the_mean_and_there_are_no_probabilities() -> None:
    examples = [TASK.encode(NumberRow("f:1", ("a text",), number), WINDOWS) for number in (1.0, 2.0, 6.0)]
    answer, scores = TASK.baseline(examples, "pearson")
    metrics = TASK.metrics(scores)
    assert answer == "always the mean, 3"
    assert (metrics["pearson"], metrics["mean_absolute_error"]) == (0, 2)
    assert not list(TASK.confidences(examples[0], np.array([1.0], np.float32)))
