"""Tests for tagging schemes: spans and metrics match seqeval for random sequences."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2

from bertmill.tasks.tag.rows import WordsRow
from bertmill.tasks.tag.schemes import Entity, entities, iob2, scheme_of, strict_entities
from bertmill.tasks.tag.task import Tag, TagExample

IOB_TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
ALL_TAGS = (*IOB_TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC", "B", "I", "E", "S")
NUM_SENTENCES = 10_000


def sentences(tags: Sequence[str], seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [draw.choices(tags, k=draw.randint(1, 12)) for _ in range(NUM_SENTENCES)]


def test_entities_of_ten_thousand_sequences_match_seqeval() -> None:
    for tags in sentences(ALL_TAGS, 1):
        assert [(kind, first, end - 1) for kind, first, end in entities(tags)] == get_entities(tags)


def test_f1_of_ten_thousand_sequences_match_seqeval() -> None:
    pairs = [
        (predicted[: len(expected)] + ["O"] * (len(expected) - len(predicted)), expected)
        for predicted, expected in zip(sentences(IOB_TAGS, 2), sentences(IOB_TAGS, 3), strict=True)
    ]
    task = Tag(IOB_TAGS, has_spans=True)
    numbers = {tag: number for number, tag in enumerate(IOB_TAGS)}
    scores = []
    for predicted, expected in pairs:
        target = tuple(numbers[tag] for tag in expected)
        example = TagExample(WordsRow("f:1", ("",), ()), (), target, np.zeros(0, np.int64))
        scores.append(task.score(example, np.eye(len(numbers), dtype=np.float32)[[numbers[tag] for tag in predicted]]))
    figures = task.metrics(np.stack(scores))
    all_predicted, all_expected = map(list, zip(*pairs, strict=True))
    for name, theirs in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert figures[name] == pytest.approx(theirs(all_expected, all_predicted), abs=1e-12)
        strict = theirs(all_expected, all_predicted, mode="strict", scheme=IOB2)
        assert figures[f"strict_{name}"] == pytest.approx(strict, abs=1e-12)


@given(st.lists(st.sampled_from(IOB_TAGS)))
def test_valid_iob2_tags_have_the_same_spans_in_strict_reading(tags: list[str]) -> None:
    spans = entities(tags)
    written = iob2(spans, len(tags))
    assert entities(written) == strict_entities(written) == spans


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("I-X I-X O I-X B-X", "IOB1"),
        ("B-X I-X O B-X B-X", "IOB2"),
        ("B-X I-X O I-Y", "IOB2"),
        ("B-X E-X O S-X S-X", "BIOES"),
        ("B-X M-X E-X O S-X", "BMES"),
        ("B M E S", "BMES"),
        ("B I O", "IOB2"),
        ("NOUN VERB O", None),
        ("O O", None),
    ],
)
def test_schemes_are_recognized(tags: str, scheme: str | None) -> None:
    assert scheme_of([tags.split()]) == scheme


def test_every_scheme_gives_the_same_spans() -> None:
    spans = [Entity("X", 0, 3), Entity("X", 4, 5), Entity("X", 5, 6)]
    for tags in ("I-X I-X I-X O I-X B-X", "B-X I-X I-X O B-X B-X", "B-X I-X E-X O S-X S-X", "B-X M-X E-X O S-X S-X"):
        assert entities(tags.split()) == spans
