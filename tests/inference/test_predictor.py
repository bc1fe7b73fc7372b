"""`bertmill.load`: guesses for masked words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertmill.errors import UsageError
from bertmill.inference.predictor import Predictor, load
from bertmill.model.bert import BertForMaskedLM, BertForSequenceClassification
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


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        ("a dog",),
        ("a", "dog", "sees"),
        ["a", "dog"],
        {"pair": "a dog"},
        {"text": None},
        {"text": "a dog", "pair": None},
        {"text": ("a", "dog"), "pair": "sees"},
        {"text": "a dog", "choices": "ab"},
        {"text": "a dog", "choices": None},
        {"text": "a dog", "choices": ["a", 2]},
        {"text": "a dog", "label": "x"},
    ],
    ids=str,
)
def test_what_is_no_text_is_refused_with_its_number(wrong: object, classes: Predictor) -> None:
    with pytest.raises(UsageError, match="input 1: should be a text"):
        classes.predict(["the cat", wrong])  # type: ignore[list-item]


def test_a_pair_is_a_tuple_or_a_dict(classes: Predictor) -> None:
    one, other = classes.predict([("a dog", "the cat"), {"text": "a dog", "pair": "the cat"}])
    assert one == other != classes.predict(["a dog"])[0]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("classes")
    small_model(folder / "words", causal=False)
    model = BertForSequenceClassification.from_pretrained(folder / "words", num_labels=2)
    model.save_pretrained(folder / "model")
    BertTokenizer.from_pretrained(folder / "words").save_pretrained(folder / "model")
    return load(folder / "model", "cpu")
