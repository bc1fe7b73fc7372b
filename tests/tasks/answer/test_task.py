"""Tests for answer: answers are parts of the passage; no answer, the null threshold and the length limit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from bertmill.batching.windows import Windows, make_windows
from bertmill.config.commands import WindowSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.answer.rows import QuestionRow
from bertmill.tasks.answer.spans import QuestionExample
from bertmill.tasks.answer.task import DEFAULT_ANSWER_PIECES, AnswerQuestions
from bertmill.tasks.base import Answer, TaskOptions
from bertmill.tasks.metrics import intervals
from tests.tasks.answer.questions import PASSAGE, QUESTION, TASK, TOKENIZER, encode, logits_for, row_of

ALL = AnswerQuestions(top_k=20)


def decode(task: AnswerQuestions, example: QuestionExample, output: np.ndarray) -> Answer:
    (answer,) = task.decode([example], [output])
    return answer


def from_rows(*rows: QuestionRow, file: RowFile | None = None) -> AnswerQuestions:
    return AnswerQuestions.from_rows(rows, TaskOptions(), TOKENIZER, file or RowFile("file"))


def test_the_answer_is_the_best_span_of_the_passage() -> None:
    example = encode(row_of(PASSAGE, "Paris"))
    ((first, last),) = example.spans
    (window,) = example.sequences[0]
    assert TOKENIZER.convert_ids_to_tokens(window.ids[first : last + 1].tolist()) == ["paris"]
    output = np.zeros((example.num_pieces, 2), np.float32)
    output[first, 0] = output[last, 1] = 5
    answer = decode(TASK, example, output)
    assert (answer["answer"], answer["start"], answer["end"]) == ("Paris", 25, 30)
    assert TASK.show(answer) == f"Paris (25–30) {answer['score']:.4f}"
    several = decode(ALL, example, output)
    assert len(several["answers"]) == 20
    assert several["answers"][0] == answer
    assert sum(each["score"] for each in several["answers"]) == pytest.approx(1)


def test_decoding_a_batch_gives_the_same_answers_as_each_example_alone() -> None:
    examples = [encode(row_of(passage, question="q ?"), 20, 7) for passage in ("a bb", "ccc " * 30, "\u200b")]
    outputs = [logits_for(example, seed) for seed, example in enumerate(examples)]
    alone = [decode(ALL, example, output) for example, output in zip(examples, outputs, strict=True)]
    assert ALL.decode(examples, outputs) == alone


def test_the_loss_is_the_mean_of_start_and_end_over_the_windows() -> None:
    example = encode(row_of(" ".join(f"w{number}" for number in range(60)), "w30"), 48, 20)
    assert example.weight == len(example.spans) > 2
    output = torch.from_numpy(logits_for(example))
    begin, expected = 0, 0.0
    for window, span in zip(example.sequences[0], example.spans, strict=True):
        of_window = output[begin : begin + len(window.ids)]
        begin += len(window.ids)
        for column, place in enumerate(span):
            expected += float(-of_window[:, column].log_softmax(0)[place]) / 2
    assert float(TASK.loss([output], [example])) == pytest.approx(expected, rel=1e-5)


# No answer


def test_the_tuned_threshold_has_the_best_f1() -> None:
    # Margins 3, 1, -1, -3. The first and the third question are answerable, and their answers are found.
    scores = np.array([[1, 1, 1, 3.0], [0, 0, 0, 1.0], [1, 1, 1, -1.0], [0, 0, 0, -3.0]])
    task = AnswerQuestions(0.0)
    assert task.metrics(scores)["f1"] == 0.5
    tuned, description = task.tuned(lambda: scores, "f1")
    assert tuned.null_threshold == 2.0  # as good as -2, but answers fewer questions
    assert description == "null threshold 2"
    assert tuned.metrics(scores)["f1"] == tuned.metrics(scores)["exact"] == 0.75
    assert tuned.metrics(scores)["f1_at_zero"] == 0.5
    assert TASK.tuned(pytest.fail, "f1") == (TASK, "")  # without unanswerable questions, no scores are computed


def test_questions_with_the_same_margin_are_all_answered_or_all_unanswered() -> None:
    ties = np.array([[0, 0, 0, 2.0], [1, 1, 1, 1.0], [1, 1, 1, 1.0], [0, 0, 0, 1.0]])
    assert AnswerQuestions(0.0).tuned(lambda: ties, "f1")[0].metrics(ties)["f1"] == 0.5


def test_the_threshold_may_be_beyond_all_margins() -> None:
    never, _ = AnswerQuestions(0.0).tuned(lambda: np.array([[0, 0, 0, 3.0], [0, 0, 0, 1.0]]), "f1")
    assert never.null_threshold is not None
    assert never.null_threshold > 3
    always, _ = AnswerQuestions(0.0).tuned(lambda: np.array([[1, 1, 1, 3.0], [1, 1, 1, -1e9]]), "f1")
    assert always.null_threshold is not None
    assert always.null_threshold < -1e8


def test_no_answer_is_an_empty_text_with_its_probability() -> None:
    example = encode(row_of(PASSAGE, "Paris"))
    output = np.zeros((example.num_pieces, 2), np.float32)
    output[0] = 5
    assert decode(TASK, example, output)["answer"]  # without a threshold, every question has an answer
    task = AnswerQuestions(0.0)
    answer = decode(task, example, output)
    assert (answer["answer"], answer["start"], answer["end"]) == ("", 0, 0)
    assert answer["score"] > 0.99
    assert task.show(answer).startswith("no answer")
    several = decode(AnswerQuestions(-20.0, top_k=3), example, output)["answers"]
    assert [bool(each["answer"]) for each in several] == [True, False, True]
    confidence, expected = task.mistake(example, output, task.score(example, output))
    assert confidence > 0
    assert expected == ("Paris",)
    assert decode(AnswerQuestions(-20.0), example, output)["answer"]


def test_a_passage_without_pieces_has_no_answer() -> None:
    example = encode(row_of("\u200b"))
    for task in (TASK, AnswerQuestions(0.0)):
        assert decode(task, example, logits_for(example)) == {"answer": "", "start": 0, "end": 0, "score": 1.0}


def test_metrics_over_answerable_questions_are_missing_if_there_are_none() -> None:
    scores = np.array([[1, 1, 1, 3.0], [0, 0, 0, 1.0]])
    task = AnswerQuestions(0.0)
    assert "unanswerable_accuracy" not in task.metrics(scores[:1])
    assert "answerable_f1" not in task.metrics(scores[1:])
    assert intervals(task.metrics, scores)["answerable_f1"] == (1.0, 1.0)  # samples without any are ignored


# Construction


def test_unanswerable_training_questions_give_a_threshold() -> None:
    assert from_rows(row_of(PASSAGE, "Paris")).null_threshold is None
    task = from_rows(row_of(PASSAGE, "Paris"), replace(row_of(PASSAGE), answers=()))
    assert task.null_threshold == 0.0
    assert task.reads_cls
    assert task.labels(row_of(PASSAGE, "Paris")) == ("answerable",)
    assert task.labels(row_of(PASSAGE)) == ()


def test_the_length_limit_covers_99_percent_of_the_training_answers() -> None:
    file = RowFile("file")

    def task_for(*lengths: int) -> AnswerQuestions:
        passage = " ".join(["word"] * max(lengths))
        return from_rows(*(row_of(passage, " ".join(["word"] * length)) for length in lengths), file=file)

    usual = task_for(*[3] * 200, 200)
    assert usual.max_answer_pieces == DEFAULT_ANSWER_PIECES
    assert not file.counts.notices
    long = task_for(*range(1, 101))
    assert long.max_answer_pieces == 99
    assert file.counts.notices == ["answers are limited to 99 pieces, covering 99% of the training answers"]
    example = encode(row_of(" ".join(["word"] * 99), " ".join(["word"] * 99)))
    output = np.zeros((example.num_pieces, 2), np.float32)
    ((first, last),) = example.spans
    output[first, 0] = output[last, 1] = 5
    assert decode(long, example, output)["answer"].count("word") == 99
    assert decode(TASK, example, output)["answer"].count("word") <= DEFAULT_ANSWER_PIECES


def test_the_shortest_answer_of_a_question_counts_for_the_length_limit() -> None:
    row = QuestionRow("f:1", (QUESTION, "word " * 80), ((0, 5 * 70 - 1), (0, 5 * 50 - 1)))  # 70 words and 50
    assert from_rows(row).max_answer_pieces == 50


@pytest.mark.parametrize(
    "metadata", [{"null_threshold": "low"}, {"max_answer_pieces": 0}, {"max_answer_pieces": "many"}]
)
def test_invalid_metadata_is_rejected(metadata: dict[str, Any]) -> None:
    config = BertConfig.of_size("tiny").with_settings(architectures=["BertForQuestionAnswering"])
    with pytest.raises(IntegrityError, match="null_threshold or max_answer_pieces is not a valid number"):
        AnswerQuestions.from_folder(config, metadata)
    recorded = {"null_threshold": 1.5, "max_answer_pieces": 107}
    assert AnswerQuestions.from_folder(config, recorded) == AnswerQuestions(1.5, 107)
    assert AnswerQuestions(1.5, 107).folder_entries().metadata == recorded


def test_questions_about_a_passage_stay_together() -> None:
    assert TASK.split_key(row_of(PASSAGE)) == SplitKey(PASSAGE)


# Encoding


def test_a_long_question_is_truncated_and_counted() -> None:
    windows = Windows(TOKENIZER, 384, 128)
    assert TASK.encode(row_of(PASSAGE, question="why " * 100), windows).offset == 64 + 2
    assert windows.remark == "questions that are too long (truncated): 1"


def test_answers_that_cannot_be_found_are_counted() -> None:
    long_answer = " ".join(["word"] * DEFAULT_ANSWER_PIECES)
    for answer, max_length, is_lost in (
        (long_answer, 384, False),
        (long_answer + " word", 384, True),
        (long_answer, 32, True),
        (None, 384, False),
    ):
        windows = Windows(TOKENIZER, max_length, 16)
        TASK.encode(row_of(f"{long_answer} word.", answer), windows)
        assert ("answers that cannot be found (too long, or cut off" in (windows.remark or "")) == is_lost


def test_a_passage_of_ten_thousand_words_is_read_completely() -> None:
    example = encode(row_of("It is so. " * 2_500 + "Paris", "Paris"))
    output = logits_for(example)
    last = max(number for number, span in enumerate(example.spans) if span != (0, 0))
    begin = sum(len(window.ids) for window in example.sequences[0][:last])
    output[begin + example.spans[last][0]] = 50
    assert decode(TASK, example, output)["start"] == 25_000


def test_short_windows_overlap_by_more_than_an_answer() -> None:
    windows = make_windows(WindowSettings(), TOKENIZER, 128, *TASK.Options.window)
    example = TASK.encode(row_of(" ".join(["word"] * 400)), windows)
    assert all(next_start < end - DEFAULT_ANSWER_PIECES for (_, end), (next_start, _) in pairwise(example.ranges))


def test_truncation_is_rejected() -> None:
    with pytest.raises(UsageError, match="this task reads every piece: inputs cannot be truncated"):
        TASK.encode(row_of(PASSAGE), Windows(TOKENIZER, 32, truncate=True))


# Requests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"passage": PASSAGE}, "the field 'question' is missing"),
        ({"question": "q"}, "the field 'passage' is missing"),
        ({"question": "q", "passage": " "}, "the field 'passage' is empty"),
        ({"question": ["q"], "passage": "p"}, "the field 'question' must be a string, not list"),
        ({"question": "q", "passage": "p", "pair": "x"}, "the task answer does not take the field 'pair'"),
    ],
)
def test_a_request_needs_a_question_and_a_passage(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        TASK.request(fields)


def test_the_passage_of_a_request_may_have_one_of_three_names() -> None:
    for name in ("passage", "context", "text"):
        assert TASK.request({"question": "q", name: "p"}) == QuestionRow("request", ("q", "p"))


@pytest.mark.parametrize("top_k", [0, 21, "3"])
def test_the_number_of_answers_is_limited(top_k: Any) -> None:
    with pytest.raises(UsageError, match="top_k must be between 1 and 20"):
        AnswerQuestions(top_k=top_k)


def test_the_baseline_is_no_answer() -> None:
    examples = [encode(row_of(PASSAGE, "Paris")), encode(QuestionRow("f:1", (QUESTION, PASSAGE), ()))]
    answer, scores = TASK.baseline(examples, "f1")
    assert (answer, TASK.metrics(scores)["f1"]) == ("no answer", 0.5)
    assert AnswerQuestions(null_threshold=0.0).metrics(scores)["f1"] == 0.5


def test_the_confidence_of_an_answer_is_its_score() -> None:
    example = encode(row_of(PASSAGE, "Paris"))
    ((first, last),) = example.spans
    output = np.zeros((example.num_pieces, 2), np.float32)
    output[first, 0] = output[last, 1] = 9
    assert list(TASK.confidences(example, output)) == [(decode(TASK, example, output)["score"], True)]
    wrong = np.roll(output, -1, axis=0)
    assert [is_right for _, is_right in TASK.confidences(example, wrong)] == [False]
