"""`bertmill.load`: guesses for masked words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertmill.inference.predictor import Predictor, load
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS


def small_model(folder: Path, *, causal: bool) -> Predictor:
    """A model that has learnt nothing, and whose guesses are therefore as particular as its weights."""
    pieces = [*SPECIAL_TOKENS, "the", "dog", "cat", "sees", "a", "bird", "##s"]
    tokenizer = BertTokenizer({piece: number for number, piece in enumerate(pieces)})
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny").with_settings(vocab_size=len(pieces), causal=causal, initializer_range=0.5)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load(folder, "cpu")


@pytest.mark.parametrize("causal", [False, True])
def test_what_follows_matters_unless_the_model_reads_from_left_to_right(causal: bool, tmp_path: Path) -> None:
    model = small_model(tmp_path / "model", causal=causal)
    one, other = (model.fill(f"the dog [MASK] {rest}", top_k=12) for rest in ("a bird", "the cats"))
    assert ([guess["score"] for guess in one] == [guess["score"] for guess in other]) == causal


def test_a_left_to_right_model_guesses_with_what_it_says_after_the_piece_before(tmp_path: Path) -> None:
    model = small_model(tmp_path / "model", causal=True)
    ids = model.tokenizer("the dog")["input_ids"][:-1]  # [CLS] the dog
    expected = BertForMaskedLM.from_pretrained(tmp_path / "model")(input_ids=torch.tensor([ids])).logits[0, -1].detach()
    (best,) = model.fill("the dog [MASK] a bird", top_k=1)
    assert best["token"] == int(expected.argmax())
    assert best["score"] == pytest.approx(float(expected.softmax(0).max()), abs=1e-5)
