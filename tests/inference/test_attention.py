"""Tests for the attention in a sequence, as pages of bytes."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertmill.inference import attention
from bertmill.inference.attention import attention_pages
from bertmill.model.bert import BertModel
from bertmill.text.tokenizer import BertTokenizer


def weights_of(page: dict[str, Any], num_heads: int) -> np.ndarray:
    size = page["stop"] - page["start"]
    levels = np.frombuffer(zlib.decompress(base64.b64decode(page["weights"])), np.uint8)
    return (levels.reshape(-1, num_heads, size, size) / 255) ** 2


@pytest.fixture(scope="module")
def model(tiny: Path) -> BertModel:
    return BertModel.from_pretrained(tiny).eval()


@pytest.fixture(scope="module")
def tokenizer(tiny: Path) -> BertTokenizer:
    return BertTokenizer.from_pretrained(tiny)


def test_a_page_has_the_weights_of_the_model(model: BertModel, tokenizer: BertTokenizer) -> None:
    inputs = tokenizer("good film", "bad plot", return_tensors="pt")
    ids = inputs["input_ids"][0].tolist()
    num_first = int((inputs["token_type_ids"] == 0).sum())
    (described,) = attention_pages(model, tokenizer, [(ids, num_first)])
    assert described["pieces"] == ["[CLS]", "good", "film", "[SEP]", "bad", "plot", "[SEP]"]
    assert (described["ids"], described["num_first"], described["num_heads"]) == (ids, 4, 2)
    (page,) = described["pages"]
    with torch.no_grad():
        expected = torch.cat(model(**inputs, output_attentions=True).attentions).numpy()
    np.testing.assert_allclose(weights_of(page, 2), expected, atol=5e-3)


def test_a_long_sequence_has_several_pages_and_its_whole_attention(model: BertModel, tokenizer: BertTokenizer) -> None:
    ids = tokenizer(" ".join(["good", "bad", "cold"] * 60))["input_ids"]
    (described,) = attention_pages(model, tokenizer, [(ids, len(ids))])
    assert [(page["start"], page["stop"]) for page in described["pages"]] == [(0, 128), (128, 182)]
    with torch.no_grad():
        expected = torch.cat(model(torch.tensor([ids]), output_attentions=True).attentions).numpy()
    np.testing.assert_allclose(weights_of(described["pages"][1], 2), expected[:, :, 128:, 128:], atol=5e-3)
    assert weights_of(described["pages"][0], 2).sum(-1).max() < 0.99  # the rest went to the other page


def test_pages_beyond_the_limit_are_left_out(
    model: BertModel, tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tokenizer("good film")["input_ids"]
    monkeypatch.setattr(attention, "MAX_BYTES", 4 * 3**2)  # two layers of two heads, three pieces a page
    (described,) = attention_pages(model, tokenizer, [(ids, len(ids)), (ids, len(ids))])
    (page,) = described["pages"]
    assert (page["start"], page["stop"]) == (0, 3)
