"""Tests for tasks over whole sequences: the texts of a row, and the mean over windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bertmill.batching.windows import Windows
from bertmill.model.bert import BertForSequenceClassification
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.tasks.classify import Classify, ClassRow
from bertmill.tasks.sequence import read_texts
from bertmill.text.tokenizer import BertTokenizer

TOKENIZER = BertTokenizer.from_pretrained("minilm")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the field 'text' is missing"),
        ({"text": None}, "the field 'text' is missing"),
        ({"text": " "}, "the field 'text' is empty"),
        ({"text": 7}, "the field 'text' must be a string, not int"),
        ({"text": "a", "pair": None}, "the field 'pair' is missing"),
        ({"text": "a", "pair": ""}, "the field 'pair' is empty"),
        ({"text": "a", "pair": ["b"]}, "the field 'pair' must be a string, not list"),
    ],
)
def test_a_field_that_is_not_a_non_empty_string_is_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        read_texts(fields)


def test_a_row_has_one_text_or_a_pair() -> None:
    assert read_texts({"text": "a", "label": "x"}) == ("a",)
    assert read_texts({"pair": "b", "text": "a"}) == ("a", "b")
    assert ClassRow("f:1", ("a",)).fields() == {"text": "a"}
    assert ClassRow("f:1", ("a", "b")).fields() == {"text": "a", "pair": "b"}


def test_the_output_of_a_long_text_is_the_weighted_mean_over_its_windows() -> None:
    task = Classify(("a", "b"))
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny").with_settings(vocab_size=len(TOKENIZER), **task.folder_entries().config)
    model = BertForSequenceClassification(config).eval()
    windows = Windows(TOKENIZER, 16)
    long, short = (task.encode(ClassRow("f:1", (text,)), windows) for text in ("one two three " * 20, "four"))
    with torch.inference_mode():
        ours = task.outputs(model, [long, short], torch.device("cpu"))
        each = [
            model(torch.from_numpy(window.ids.astype(np.int64))[None]).logits[0].numpy() for window in long.sequences[0]
        ]
    weights = [window.weight for window in long.sequences[0]]
    assert len(each) > 2
    assert ours[0].numpy() == pytest.approx(np.average(each, 0, weights), abs=1e-5)
    assert len(ours) == 2
