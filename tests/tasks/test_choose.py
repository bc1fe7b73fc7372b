"""Tests for choose: sequences, the correct choice, losses and predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertmill.batching.windows import Windows
from bertmill.rows.bad_rows import BadRowError
from bertmill.tasks.base import Example
from bertmill.tasks.choose import ChoiceRow, Choose, right_choice
from bertmill.text.tokenizer import BertTokenizer

TOKENIZER = BertTokenizer.from_pretrained("minilm")
WINDOWS = Windows(TOKENIZER, 64)
TASK = Choose()


def encoded(texts: tuple[str, ...], *choices: str, right: int | None = None) -> Example:
    return TASK.encode(ChoiceRow("f:1", texts, choices, right), WINDOWS)


def test_each_choice_is_a_sequence_that_continues_the_pair() -> None:
    example = encoded(("She ran.", "Then she"), "ate.", "sat.", "flew.", right=1)
    assert example.target == 1
    expected = [TOKENIZER("She ran.", f"Then she {choice}")["input_ids"] for choice in ("ate.", "sat.", "flew.")]
    assert [windows[0].ids.tolist() for windows in example.sequences] == expected


def test_rows_may_have_different_numbers_of_choices() -> None:
    examples = [encoded(("She ran.",), "a", "b", "c", right=1), encoded(("She ran.",), "a", "b", right=0)]
    outputs = [torch.tensor([0.0, 2.0, 1.0]), torch.tensor([1.0, 3.0])]
    expected = sum(float(-output.log_softmax(0)[target]) for output, target in zip(outputs, [1, 0], strict=True))
    assert float(TASK.loss(outputs, examples)) == pytest.approx(expected)


@pytest.mark.parametrize(("label", "number"), [("sat.", 1), (1, 1), ("1", 1), ("B", 1), (" C ", 2), ("A", 0)])
def test_a_label_is_a_text_a_number_or_a_letter(label: object, number: int) -> None:
    assert right_choice(label, ["ate.", "sat.", "flew."]) == number


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (3, "the label 3 matches none of the 3 choices; use the text of a choice, a number from 0 to 2, or a letter"),
        (-1, "matches none of"),
        (True, "matches none of"),
        ("D", "matches none of"),
        ("ran", "matches none of"),
        ("", "the label is empty"),
        (None, "the label is empty"),
        ("x", "the label 'x' matches several identical choices"),
    ],
)
def test_a_label_that_is_not_a_choice_is_rejected(label: object, message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        right_choice(label, ["x", "y", "x"] if label == "x" else ["ate.", "sat.", "flew."])


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (None, "the field 'choices' is missing; provide at least two choices"),
        ("ab", "the field 'choices' must be a list of strings"),
        (["a", 2], "the field 'choices' must be a list of strings"),
        (["a"], "needs at least two texts, and none may be empty"),
        (["a", " "], "needs at least two texts, and none may be empty"),
    ],
)
def test_a_request_needs_at_least_two_choices(choices: object, message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        TASK.request({"text": "She ran.", "choices": choices})


def test_a_prediction_has_the_number_and_the_text_of_the_choice() -> None:
    (answer,) = TASK.decode([encoded(("a",), "x", "y")], [np.array([0.0, np.log(3)], np.float32)])
    assert answer == {"choice": 1, "answer": "y", "score": pytest.approx(0.75), "scores": pytest.approx([0.25, 0.75])}
    assert TASK.show(answer) == "choice 1 0.7500 y"


def test_a_score_is_whether_the_choice_is_correct() -> None:
    example = encoded(("a",), "x", "y", right=0)
    right, wrong = np.array([2, 1], np.float32), np.array([1, 3], np.float32)
    assert TASK.score(example, right).tolist() == [True]
    assert TASK.score(example, wrong).tolist() == [False]
    assert TASK.mistake(example, right, TASK.score(example, right))[0] == 0.0
    assert TASK.mistake(example, wrong, TASK.score(example, wrong)) == (2.0, ("x",))
    assert TASK.metrics(np.array([[True], [False], [True], [True]])) == {"accuracy": 0.75}


def test_the_label_in_the_summary_is_the_number_of_the_choice() -> None:
    row = ChoiceRow("f:1", ("a",), ("x", "y"), 1)
    assert TASK.labels(row) == ("choice 1",)
    assert row.all_texts == ("a", "x", "y")


def test_the_baseline_is_the_most_frequent_choice_and_confidence_its_probability() -> None:
    examples = [encoded(("She ran.",), "a", "b", right=right) for right in (1, 0, 1)]
    answer, scores = TASK.baseline(examples, "accuracy")
    assert (answer, TASK.metrics(scores)["accuracy"]) == ("always choice 1", pytest.approx(2 / 3))
    ((confidence, is_right),) = TASK.confidences(examples[0], np.array([0.0, 1.0], np.float32))
    assert (confidence, is_right) == (pytest.approx(1 / (1 + np.exp(-1))), True)
