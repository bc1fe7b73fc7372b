"""Tests for masking a word of a sentence, and for the gain from pre-training."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from bertmill.config.commands import DemoSettings
from bertmill.demo.folder import GAIN, Demo
from bertmill.demo.measurement import mask_a_word, measure_gain
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS

WORDS = ("number", "nodes", "graph", "returned")


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer({piece: number for number, piece in enumerate([*SPECIAL_TOKENS, *WORDS])})


def test_a_word_that_is_a_single_piece_is_masked(tokenizer: BertTokenizer) -> None:
    sentence = "The number of nodes in the graph is returned."
    masked = mask_a_word(sentence, tokenizer)
    assert masked is not None
    text, word = masked
    assert word in WORDS
    assert text.replace("[MASK]", word) == sentence
    assert mask_a_word(sentence, tokenizer) == masked


@pytest.mark.parametrize(
    "sentence",
    [
        "The nodes are returned.",  # too short
        "The number of nodes in the graph is returned",  # no period
        "the number of nodes in the graph is returned.",
        "The number of n_nodes in the graph is returned.",
        "There is nothing here that could be masked.",
    ],
)
def test_unsuitable_sentences_are_rejected(sentence: str, tokenizer: BertTokenizer) -> None:
    assert mask_a_word(sentence, tokenizer) is None


def test_the_gain_is_computed_from_paired_predictions(tmp_path: Path) -> None:
    demo = Demo(DemoSettings(out=tmp_path))
    demo.measured.mkdir()
    draw = random.Random(0)
    expected = [draw.randrange(7) for _ in range(400)]
    # Both models are right on the first half, only the pre-trained one on the second.
    for name, num_right in zip(GAIN, (400, 200), strict=True):
        scores = [[label if place < num_right else 7, label] for place, label in enumerate(expected)]
        demo.figures_of(name).write_text(json.dumps({"scores": scores}))
    gain = measure_gain(demo)
    assert gain["value"] == 0.5
    assert 0.42 < gain["low"] < 0.5 < gain["high"] < 0.58
    assert gain["rows"] == 400
