"""Tests for spans: the search finds the best of all spans, and unfindable answers are detected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.batching.windows import widest_context
from bertmill.tasks.answer.rows import QuestionRow
from bertmill.tasks.answer.spans import best_spans, texts_of
from bertmill.tasks.answer.task import DEFAULT_ANSWER_PIECES
from tests.tasks.answer.questions import QUESTION, TOKENIZER, encode, logits_for, row_of

PASSAGES = st.lists(st.sampled_from(["a", "bb", "ccc", ".", "unbelievable", "北京", "  ", "é"]), min_size=1).map(
    " ".join
)


@given(PASSAGES, st.integers(9, 40), st.integers(0, 40), st.integers(1, 40), st.integers(0, 5))
def test_the_best_spans_match_an_exhaustive_search(
    passage: str, max_length: int, stride: int, max_pieces: int, seed: int
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
    for text, start, end in texts_of(example, best, 20):
        assert passage[start:end] == text


@given(st.lists(st.tuples(PASSAGES, st.integers(0, 5)), min_size=1, max_size=5))
def test_a_batch_of_passages_gives_the_same_spans_as_each_passage_alone(given: list[tuple[str, int]]) -> None:
    examples = [encode(row_of(passage, question="q ?"), 20, 7) for passage, _ in given]
    outputs = [logits_for(example, seed) for example, (_, seed) in zip(examples, given, strict=True)]
    together = best_spans(examples, outputs, DEFAULT_ANSWER_PIECES)
    for example, output, found in zip(examples, outputs, together, strict=True):
        (alone,) = best_spans([example], [output], DEFAULT_ANSWER_PIECES)
        assert texts_of(example, found, 20) == texts_of(example, alone, 20)
        assert (found.scores.tolist(), found.null) == (alone.scores.tolist(), alone.null)


def test_the_target_is_cls_in_windows_without_the_answer() -> None:
    example = encode(row_of(" ".join(f"w{number}" for number in range(60)), "w30"), 48, 20)
    assert len(example.ranges) > 2
    assert (0, 0) in example.spans
    inside = [
        (window, span) for window, span in zip(example.sequences[0], example.spans, strict=True) if span != (0, 0)
    ]
    assert inside
    for window, (first, last) in inside:
        assert TOKENIZER.decode(window.ids[first : last + 1].tolist()) == "w30"


def test_answers_are_lost_only_if_none_of_them_can_be_found() -> None:
    passage = "word " * (DEFAULT_ANSWER_PIECES + 1) + "Paris"
    long_answer, short = (0, 5 * (DEFAULT_ANSWER_PIECES + 1) - 1), (len(passage) - 5, len(passage))
    row = QuestionRow("f:1", (QUESTION, passage), (long_answer, short))
    assert not encode(row).loses_answer(DEFAULT_ANSWER_PIECES)
    assert encode(replace(row, answers=(long_answer,))).loses_answer(DEFAULT_ANSWER_PIECES)


def test_an_answer_cut_off_by_the_window_it_starts_in_is_lost() -> None:
    """The second window shows the whole answer, but its first piece has a wider context in the first window."""
    passage = "a " * 26 + "b " * 15 + "c " * 19
    example = encode(row_of(passage, ("b " * 15).strip(), question="why " * 7), max_length=48, stride=16)
    assert any(map(any, example.spans))
    assert example.loses_answer(DEFAULT_ANSWER_PIECES)
    output = np.zeros((example.num_pieces, 2), np.float32)
    (found,) = best_spans([example], [output], DEFAULT_ANSWER_PIECES, 10_000)
    assert (26, 40) not in set(zip(found.firsts.tolist(), found.lasts.tolist(), strict=True))
