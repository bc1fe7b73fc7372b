"""Tests for filling masks: what a prediction depends on, long texts, and invalid calls."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertmill.errors import DataError, UsageError
from bertmill.inference.predictor import Predictor, load
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS

PIECES = [*SPECIAL_TOKENS, "the", "dog", "cat", "sees", "a", "bird", "##s"]


def random_model(folder: Path, *, causal: bool) -> Predictor:
    """Return a model with large random weights, so that every piece of the text affects its predictions."""
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny").with_settings(
        vocab_size=len(PIECES), causal=causal, initializer_range=0.5, max_position_embeddings=16
    )
    BertForMaskedLM(config).save_pretrained(folder)
    BertTokenizer({piece: number for number, piece in enumerate(PIECES)}).save_pretrained(folder)
    return load(folder, "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return random_model(tmp_path_factory.mktemp("fill") / "model", causal=False)


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return random_model(tmp_path_factory.mktemp("fill") / "model", causal=True)


def scores(guesses: list[dict[str, object]]) -> list[object]:
    return [guess["score"] for guess in guesses]


def test_pieces_after_the_mask_matter_unless_the_model_reads_left_to_right(model: Predictor, causal: Predictor) -> None:
    for predictor in (model, causal):
        one, other = (predictor.fill(f"the dog [MASK] {rest}", top_k=12) for rest in ("a bird", "the cats"))
        assert (scores(one) == scores(other)) == (predictor is causal)


def test_a_left_to_right_model_predicts_from_the_piece_before_the_mask(causal: Predictor) -> None:
    ids = causal.tokenizer("the dog")["input_ids"][:-1]  # [CLS] the dog
    logits = BertForMaskedLM.from_pretrained(causal.folder)(input_ids=torch.tensor([ids])).logits[0, -1].detach()
    (best,) = causal.fill("the dog [MASK] a bird", top_k=1)
    assert best["token"] == int(logits.argmax())
    assert best["score"] == pytest.approx(float(logits.softmax(0).max()), abs=1e-5)


def test_a_prediction_has_the_probability_of_the_model_and_the_completed_text(model: Predictor) -> None:
    ids = model.tokenizer("the [MASK] sees")["input_ids"]
    logits = BertForMaskedLM.from_pretrained(model.folder)(input_ids=torch.tensor([ids])).logits[0, 2].detach()
    guesses = model.fill("the [MASK] sees", top_k=len(PIECES))
    assert [guess["token"] for guess in guesses] == logits.argsort(descending=True).tolist()
    for guess in guesses:
        assert guess["score"] == pytest.approx(float(logits.softmax(0)[guess["token"]]), abs=1e-5)
        assert guess["token_str"] == PIECES[guess["token"]]
        piece = guess["token_str"]
        assert guess["sequence"] == ("thes sees" if piece == "##s" else f"the {piece} sees")


def test_every_mask_of_a_text_has_its_own_guesses(model: Predictor) -> None:
    one, other = model.fill("the [MASK] sees a [MASK]", top_k=2)
    assert isinstance(one, list)
    assert isinstance(other, list)
    assert len(one) == len(other) == 2
    assert "[MASK]" in one[0]["sequence"]


def test_each_mask_of_a_long_text_is_predicted_from_the_pieces_around_it(model: Predictor) -> None:
    words = ["dog", "cat", "bird"] * 20
    words[5] = words[40] = "[MASK]"
    together = model.fill(" ".join(words), top_k=3)
    for place, guesses in zip((5, 40), together, strict=True):
        start = max(0, place - 7)  # 14 pieces fit between [CLS] and [SEP]
        alone = model.fill(" ".join(words[start : start + 14]), top_k=3)
        assert scores(guesses) == pytest.approx(scores(alone), abs=1e-5)


def test_calls_that_cannot_be_filled_are_rejected(model: Predictor, classifier: Path) -> None:
    with pytest.raises(DataError, match=r"the text has no \[MASK\]"):
        model.fill("the dog")
    with pytest.raises(UsageError, match="top_k must be at least 1, not 0"):
        model.fill("[MASK]", top_k=0)
    with pytest.raises(UsageError, match="the model has no head for masked language modeling; use a pre-trained model"):
        load(classifier).fill("[MASK]")
