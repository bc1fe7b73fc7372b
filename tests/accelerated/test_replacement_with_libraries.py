"""Pipelines, peft and sentence-transformers work with accelerated models as with untouched ones."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

import bertmill
from bertmill.checkpoint.names import find_model
from tests.accelerated.models import counts, inputs_for, untouched

TEXTS = ["A short one.", "This one is a little longer, and comes from Paris.", "no", "Four words in here"]
LABELS = torch.tensor([0, 1] * 3)


@pytest.fixture(scope="module")
def minilm() -> str:
    return str(find_model("minilm"))


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("text-classification", "BertForSequenceClassification"),
        ("token-classification", "BertForTokenClassification"),
        ("fill-mask", "BertForMaskedLM"),
        ("feature-extraction", "BertModel"),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_pipelines_give_the_same_answers(task: str, name: str, batch_size: int, minilm: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = untouched(name, vocab_size=len(tokenizer))
    texts = [f"{text} [MASK]" if task == "fill-mask" else text for text in TEXTS]
    answers = []
    for each in (bertmill.accelerate(copy.deepcopy(model)), model):
        pipeline = transformers.pipeline(task, model=each, tokenizer=tokenizer, device="cpu")
        answers.append(pipeline(texts, batch_size=batch_size))
        if each is not model:
            assert counts(each) == (len(TEXTS) // batch_size, {})
    assert_nearly_equal(*answers)


def assert_nearly_equal(one: Any, two: Any) -> None:
    """Compare nested lists and dicts; numbers within 1e-5."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        one, two = list(one.values()), list(two.values())
    if isinstance(one, list):
        # In a batch, feature-extraction also returns the rows of padding: these differ.
        for a, b in zip(one, two, strict=True):
            if not (isinstance(a, list) and not any(map(any_number, a))):
                assert_nearly_equal(a, b)
    elif isinstance(one, str):
        assert one == two
    else:
        assert one == pytest.approx(two, abs=1e-5)


def any_number(value: Any) -> bool:
    return value != 0


def lora_model(model: Any) -> Any:
    """Return `model` with LoRA layers that are not zero, and a classifier to train."""
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=["query", "value", "dense"], init_lora_weights=False
    )
    torch.manual_seed(7)
    return peft.get_peft_model(model, config)


@pytest.mark.parametrize("order", ["accelerate first", "peft first"])
def test_lora_before_and_after_gives_the_same_outputs_gradients_and_files(order: str, tmp_path: Path) -> None:
    first = order == "accelerate first"
    base = untouched("BertForSequenceClassification")
    theirs = lora_model(copy.deepcopy(base))
    fast = lora_model(bertmill.accelerate(base)) if first else bertmill.accelerate(lora_model(base))
    inputs = inputs_for("")
    gradients = []
    for model in (fast, theirs):
        output = model(**inputs, labels=LABELS)
        output.loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    assert gradients[0].keys() == gradients[1].keys()
    assert any("lora_A" in name for name in gradients[0])
    for name, value in gradients[0].items():
        torch.testing.assert_close(value, gradients[1][name], atol=5e-5, rtol=0)
    assert counts(fast) == (1, {})

    expected = theirs(**inputs).logits
    with fast.disable_adapter(), theirs.disable_adapter():
        torch.testing.assert_close(fast(**inputs).logits, theirs(**inputs).logits, atol=2e-5, rtol=0)
    fast.save_pretrained(tmp_path)
    loaded = peft.PeftModel.from_pretrained(
        bertmill.accelerate(untouched("BertForSequenceClassification")), tmp_path
    ).eval()
    for model in (fast, loaded, fast.merge_and_unload()):
        torch.testing.assert_close(model(**inputs).logits, expected, atol=2e-5, rtol=0)
        assert counts(model)[1] == {}
    plain = peft.PeftModel.from_pretrained(untouched("BertForSequenceClassification"), tmp_path).eval()
    torch.testing.assert_close(plain(**inputs).logits, expected, atol=2e-5, rtol=0)


def test_lora_trains_with_gradient_checkpointing() -> None:
    gradients = []
    for accelerated in (True, False):
        base = untouched("BertForSequenceClassification")
        model = lora_model(bertmill.accelerate(base) if accelerated else base).train()
        model.gradient_checkpointing_enable()
        model(**inputs_for(""), labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.requires_grad])
        if accelerated:
            assert counts(model) == (1, {})
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two, atol=5e-5, rtol=0)


def test_sentence_transformers_embed_the_same(minilm: str) -> None:
    body = Transformer(minilm)
    model = SentenceTransformer(modules=[body, Pooling(384), Normalize()], device="cpu")
    expected = model.encode(TEXTS, convert_to_tensor=True)
    assert bertmill.accelerate(model) is model
    torch.testing.assert_close(model.encode(TEXTS, convert_to_tensor=True), expected, atol=2e-5, rtol=0)
    assert counts(model) == (1, {})
    bertmill.acceleration(model).remove()
    assert torch.equal(model.encode(TEXTS, convert_to_tensor=True), expected)


def test_cross_encoders_give_the_same_scores(minilm: str) -> None:
    torch.manual_seed(0)
    model = CrossEncoder(minilm, num_labels=1, device="cpu")
    pairs = [(text, TEXTS[0]) for text in TEXTS]
    expected = model.predict(pairs, convert_to_tensor=True)
    bertmill.accelerate(model)
    torch.testing.assert_close(model.predict(pairs, convert_to_tensor=True), expected, atol=2e-5, rtol=0)
    assert counts(model) == (1, {})


@pytest.mark.parametrize(
    ("settings", "served"),
    [({"use_dora": True}, True), ({"init_lora_weights": "mica"}, False), ({"trainable_token_indices": [5]}, False)],
    ids=["DoRA", "MiCA", "trainable tokens"],
)
def test_other_adapters_than_lora_and_dora_are_left_to_the_untouched_model(
    settings: dict[str, Any], served: bool
) -> None:
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], **settings)
    models = []
    for accelerated in (True, False):
        torch.manual_seed(7)
        model = peft.get_peft_model(untouched("BertForSequenceClassification"), config).eval()
        models.append(bertmill.accelerate(model) if accelerated else model)
    fast, theirs = models
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(fast(**inputs_for("")).logits, theirs(**inputs_for("")).logits, atol=2e-5, rtol=0)
    assert counts(fast)[0] == served
