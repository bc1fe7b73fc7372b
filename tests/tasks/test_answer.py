"""Answers out of passages: the best of all spans, in the passage as it was given, and none where there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.spans import EncodedQuestion, best_spans
from bertmill.tasks.windows import WindowMaker, widest_context, window_maker
from hypothesis import given
from hypothesis import strategies as st

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.model.config import BertConfig
from bertmill.tasks.answer import USUAL_ANSWER_PIECES, AnswerQuestions
from bertmill.tasks.metrics import intervals
from bertmill.text.tokenizer import BertTokenizer

TOKENIZER = BertTokenizer.from_pretrained("minilm")
TASK = AnswerQuestions()
ALL = AnswerQuestions(num_answers=20)
PASSAGE = "The capital of France is Paris."
QUESTION = "What is the capital of France?"


def row_of(passage: str, answer: str | None = None, question: str = QUESTION) -> LabelledRow:
    if answer is None:
        return LabelledRow("f:1", (question, passage))
    start = passage.index(answer)
    return LabelledRow("f:1", (question, passage), (answer,), spans=((start, start + len(answer)),))


def encode(row: LabelledRow, max_length: int = 384, stride: int | None = 128) -> EncodedQuestion:
    return TASK.encode(TASK.example(row), WindowMaker(TOKENIZER, max_length, stride))


def logits_for(example: EncodedQuestion, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(example.num_pieces, 2)).astype(np.float32)


def test_the_papers_example() -> None:
    example = encode(row_of(PASSAGE, "Paris"))
    ((first, last),) = example.spans
    (window,) = example.sequences[0]
    assert TOKENIZER.convert_ids_to_tokens(window.ids[first : last + 1].tolist()) == ["paris"]
    output = np.zeros((example.num_pieces, 2), np.float32)
    output[first, 0] = output[last, 1] = 5
    answer = TASK.decode(example, output)
    assert (answer["answer"], answer["start"], answer["end"]) == ("Paris", 25, 30)
    several = ALL.decode(example, output)
    assert len(several["answers"]) == 20
    assert several["answers"][0] == answer
    assert sum(each["score"] for each in several["answers"]) == pytest.approx(1)


PASSAGES = st.lists(st.sampled_from(["a", "bb", "ccc", ".", "unbelievable", "北京", "  ", "é"]), min_size=1).map(
    " ".join
)


@given(PASSAGES, st.integers(9, 40), st.none() | st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_the_best_span_is_the_best_of_all(
    passage: str, max_length: int, stride: int | None, max_pieces: int, seed: int
) -> None:
    example = encode(row_of(passage, question="q ?"), max_length, stride)
    output = logits_for(example, seed)
    num_pieces = len(example.passage.ids)
    assert set(range(num_pieces)) == {piece for start, end in example.ranges for piece in range(start, end)}
    widest = widest_context(example.ranges, num_pieces)
    begin, expected = 0, {}
    for number, (start, end) in enumerate(example.ranges):
        rows = output[begin + example.offset : begin + example.offset + end - start]
        for first in range(end - start):
            for last in range(first, min(end - start, first + max_pieces)):
                if widest[start + first] == number:
                    expected[start + first, start + last] = rows[first, 0] + rows[last, 1]
        begin += len(example.sequences[0][number].ids)
    (best,) = best_spans([example], [output], max_pieces)
    assert best.scores.tolist() == pytest.approx(sorted(expected.values(), reverse=True)[:20])
    found = zip(best.firsts.tolist(), best.lasts.tolist(), strict=True)
    assert [expected[span] for span in found] == pytest.approx(best.scores.tolist())
    for each in ALL.decode(example, output)["answers"]:
        assert passage[each["start"] : each["end"]] == each["answer"]


@given(st.lists(st.tuples(PASSAGES, st.integers(0, 5)), min_size=1, max_size=5))
def test_many_passages_at_once_give_what_each_gives_alone(given: list[tuple[str, int]]) -> None:
    examples = [encode(row_of(passage, question="q ?"), 20, 7) for passage, _ in given]
    outputs = [logits_for(example, seed) for example, (_, seed) in zip(examples, given, strict=True)]
    together = ALL.decode_all(examples, outputs)
    assert together == [ALL.decode(example, output) for example, output in zip(examples, outputs, strict=True)]


@given(st.integers(0, 2000), st.integers(1, 510), st.integers(1, 600))
def test_every_piece_is_read_in_a_window_that_shows_it_widest(num_pieces: int, room: int, stride: int) -> None:
    ranges = WindowMaker(TOKENIZER, 512, stride).slide(num_pieces, room)
    starts, ends = np.array(ranges).T
    for piece, number in enumerate(widest_context(ranges, num_pieces).tolist()):
        contexts = np.minimum(piece - starts, ends - 1 - piece)
        assert contexts[number] == contexts.max() >= 0


def test_an_answer_that_is_not_in_a_window_is_learnt_as_none() -> None:
    passage = " ".join(f"w{number}" for number in range(60))
    example = encode(row_of(passage, "w30"), 48, 20)
    assert len(example.ranges) > 2
    spans = example.spans
    assert (0, 0) in spans
    inside = [(window, span) for window, span in zip(example.sequences[0], spans, strict=True) if span != (0, 0)]
    assert inside
    for window, (first, last) in inside:
        assert TOKENIZER.decode(window.ids[first : last + 1].tolist()) == "w30"
    assert TASK.weight(example) == len(spans)
    outputs = [torch.from_numpy(logits_for(example))]
    begin, expected = 0, 0.0
    for window, span in zip(example.sequences[0], spans, strict=True):
        of_window = outputs[0][begin : begin + len(window.ids)]
        begin += len(window.ids)
        for column, place in enumerate(span):
            expected += float(-of_window[:, column].log_softmax(0)[place]) / 2
    assert float(TASK.loss(outputs, [example])) == pytest.approx(expected, rel=1e-5)


def test_questions_without_an_answer_and_the_threshold() -> None:
    # Margins 3, 1, -1, -3; the first and the third have an answer that is found.
    judgements = np.array([[1, 1, 1, 3.0], [0, 0, 0, 1.0], [1, 1, 1, -1.0], [0, 0, 0, -3.0]])
    task = AnswerQuestions(0.0)
    assert task.metrics(judgements)["f1"] == 0.5
    tuned = task.tuned(judgements)
    assert tuned.null_threshold == 2.0  # as good as -2, and answers less
    assert tuned.metrics(judgements)["f1"] == tuned.metrics(judgements)["exact"] == 0.75
    assert tuned.metrics(judgements)["f1_at_zero"] == 0.5
    ties = np.array([[0, 0, 0, 2.0], [1, 1, 1, 1.0], [1, 1, 1, 1.0], [0, 0, 0, 1.0]])
    assert task.tuned(ties).metrics(ties)["f1"] == 0.5  # equal margins are answered together or not at all
    never = task.tuned(np.array([[0, 0, 0, 3.0], [0, 0, 0, 1.0]]))
    assert never.null_threshold is not None
    assert never.null_threshold > 3
    always = task.tuned(np.array([[1, 1, 1, 3.0], [1, 1, 1, -1e9]]))
    assert always.null_threshold is not None
    assert always.null_threshold < -1e8


def test_a_null_answer_is_empty_with_its_probability() -> None:
    example = encode(row_of(PASSAGE, "Paris"))
    output = np.zeros((example.num_pieces, 2), np.float32)
    output[0] = 5
    assert TASK.decode(example, output)["answer"]  # a model for questions that all have answers
    answer = AnswerQuestions(0.0).decode(example, output)
    assert (answer["answer"], answer["start"], answer["end"]) == ("", 0, 0)
    assert answer["score"] > 0.99
    several = AnswerQuestions(-20.0, num_answers=3).decode(example, output)["answers"]
    assert [bool(each["answer"]) for each in several] == [True, False, True]
    task = AnswerQuestions(0.0)
    assert task.error(example, output, task.judge(example, output)) > 0
    assert AnswerQuestions(-20.0).decode(example, output)["answer"]


def test_a_passage_without_a_piece_has_no_answer() -> None:
    example = encode(row_of("\u200b"))
    output = logits_for(example)
    for task in (TASK, AnswerQuestions(0.0)):
        assert task.decode(example, output) == {"answer": "", "start": 0, "end": 0, "score": 1.0}


def test_long_questions_are_cut_and_that_is_said() -> None:
    make_windows = WindowMaker(TOKENIZER, 384, 128)
    example = TASK.encode(TASK.example(row_of(PASSAGE, question="why " * 100)), make_windows)
    assert example.offset == 64 + 2
    assert make_windows.remark == "1 questions are too long: cut"


def test_answers_that_cannot_be_found_are_counted() -> None:
    long_answer = " ".join(["word"] * USUAL_ANSWER_PIECES)
    for answer, max_length, is_lost in (
        (long_answer, 384, False),
        (long_answer + " word", 384, True),
        (long_answer, 32, True),
        (None, 384, False),
    ):
        make_windows = WindowMaker(TOKENIZER, max_length, 16)
        TASK.encode(TASK.example(row_of(f"{long_answer} word.", answer)), make_windows)
        assert ("1 answers are too long, or cut by the window" in (make_windows.remark or "")) == is_lost


def test_answers_may_be_as_long_as_nearly_all_that_are_learnt_from() -> None:
    def task_for(*lengths: int) -> AnswerQuestions:
        passage = " ".join(["word"] * max(lengths))
        rows = [row_of(passage, " ".join(["word"] * length)) for length in lengths]
        return AnswerQuestions.for_rows(rows, TOKENIZER)

    usual = task_for(*[3] * 200, 200)
    assert usual.max_answer_pieces == USUAL_ANSWER_PIECES
    assert not usual.remarks()
    long = task_for(*range(1, 101))
    assert long.max_answer_pieces == 99
    assert long.remarks() == ["answers have at most 99 pieces, as 99% of the given ones"]
    example = encode(row_of(" ".join(["word"] * 99), " ".join(["word"] * 99)))
    output = np.zeros((example.num_pieces, 2), np.float32)
    ((first, last),) = example.spans
    output[first, 0] = output[last, 1] = 5
    assert long.decode(example, output)["answer"].count("word") == 99
    assert TASK.decode(example, output)["answer"].count("word") <= USUAL_ANSWER_PIECES


def test_the_shortest_answer_of_a_question_decides_how_long_answers_may_be() -> None:
    passage = "word " * 80
    spans = ((0, 5 * 70 - 1), (0, 5 * 50 - 1))  # 70 words and 50
    row = LabelledRow("file:1", (QUESTION, passage), tuple(passage[a:b] for a, b in spans), spans=spans)
    assert AnswerQuestions.for_rows([row], TOKENIZER).max_answer_pieces == 50


def test_answers_are_lost_only_where_none_of_them_can_be_found() -> None:
    passage = "word " * (USUAL_ANSWER_PIECES + 1) + "Paris"
    long_answer, short = (0, 5 * (USUAL_ANSWER_PIECES + 1) - 1), (len(passage) - 5, len(passage))
    answers = tuple(passage[start:end] for start, end in (long_answer, short))
    row = LabelledRow("file:1", (QUESTION, passage), answers, spans=(long_answer, short))
    assert not encode(row).loses_answer(USUAL_ANSWER_PIECES)
    assert encode(replace(row, label=answers[:1], spans=(long_answer,))).loses_answer(USUAL_ANSWER_PIECES)


def test_an_answer_that_no_window_may_start_with_is_lost() -> None:
    """Whole in the second window, but its first piece has more around it in the first one."""
    passage = "a " * 26 + "b " * 15 + "c " * 19
    example = encode(row_of(passage, ("b " * 15).strip(), question="why " * 7), max_length=48, stride=16)
    assert any(map(any, example.spans))
    assert example.loses_answer(USUAL_ANSWER_PIECES)
    output = np.zeros((sum(len(window.ids) for window in example.sequences[0]), 2), np.float32)
    (found,) = best_spans([example], [output], USUAL_ANSWER_PIECES, 10_000)
    assert (26, 40) not in set(zip(found.firsts.tolist(), found.lasts.tolist(), strict=True))


def test_a_kind_of_question_that_is_not_there_has_no_figure() -> None:
    judgements = np.array([[1, 1, 1, 3.0], [0, 0, 0, 1.0]])
    task = AnswerQuestions(0.0)
    assert "unanswerable_right" not in task.metrics(judgements[:1])
    assert "answerable_f1" not in task.metrics(judgements[1:])
    assert intervals(task.metrics, judgements)["answerable_f1"] == (1.0, 1.0)  # not 0 where none was drawn


def test_a_passage_of_ten_thousand_words_works() -> None:
    example = encode(row_of("It is so. " * 2_500 + "Paris", "Paris"))
    output = logits_for(example)
    last = max(number for number, span in enumerate(example.spans) if span != (0, 0))
    begin = sum(len(window.ids) for window in example.sequences[0][:last])
    output[begin + example.spans[last][0]] = 50
    assert TASK.decode(example, output)["start"] == 25_000


def test_short_windows_share_pieces_by_default() -> None:
    config = BertConfig.of_size("tiny").with_settings(max_position_embeddings=128)
    make_windows = window_maker(RowSettings(), TOKENIZER, config, TASK.max_length, TASK.stride)
    example = TASK.encode(TASK.example(row_of(" ".join(["word"] * 400))), make_windows)
    assert all(next_start < end - USUAL_ANSWER_PIECES for (_, end), (next_start, _) in pairwise(example.ranges))


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(DataError, match="has no question"):
        TASK.example(LabelledRow("f:1", (PASSAGE,)))
    with pytest.raises(UsageError, match="--truncate"):
        TASK.encode(TASK.example(row_of(PASSAGE)), WindowMaker(TOKENIZER, 32, truncate=True))
