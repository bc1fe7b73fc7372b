"""A model with a mean layer computes what mean pooling computes, in bertmill and in transformers."""

from pathlib import Path

import pytest
import torch
import transformers

from bertmill.model.bert import BertForSequenceClassification, BertForTokenClassification, BertModel
from bertmill.model.config import BertConfig
from bertmill.model.mean_layer import add_mean_layer, drop_mean_layer, has_mean_layer, num_encoder_layers, pooled_mean

IDS = torch.tensor([[101, 2023, 2003, 1037, 3231, 102], [101, 2460, 102, 0, 0, 0]])
MASK = (IDS > 0).long()


@pytest.fixture(scope="module")
def model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    model = BertForSequenceClassification.from_pretrained("minilm", num_labels=3)
    add_mean_layer(model)
    return model


def test_the_pooler_returns_the_mean_of_the_last_layer(model: BertForSequenceClassification) -> None:
    states = BertModel.from_pretrained("minilm")(IDS, MASK).last_hidden_state
    means = (states * MASK[..., None]).sum(1) / MASK.sum(1, keepdim=True)
    with torch.no_grad():
        found = model.bert(IDS, MASK).pooler_output
    # [CLS] itself contributes a thousandth.
    assert (found - pooled_mean(means)).abs().max() < 5e-3 * pooled_mean(means).abs().max()


def test_transformers_computes_the_same_logits(model: BertForSequenceClassification, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        assert (theirs(IDS, MASK).logits - model(IDS, MASK).logits).abs().max() < 1e-5
    ours = BertForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(ours(IDS, MASK).logits, model(IDS, MASK).logits)


def test_the_layer_is_added_once_marked_and_never_trained(model: BertForSequenceClassification) -> None:
    before = model.shapes()
    add_mean_layer(model)
    assert model.shapes() == before
    assert has_mean_layer(model.config)
    assert (model.config.num_hidden_layers, num_encoder_layers(model.config)) == (7, 6)
    assert not has_mean_layer(BertConfig.from_pretrained("minilm"))
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name in before if ".layer.6." in name}


def test_without_the_layer_a_model_is_what_it_was(model: BertForSequenceClassification, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    tagger = BertForTokenClassification.from_pretrained(tmp_path, new_classifier=True)
    drop_mean_layer(tagger)
    states = BertModel.from_pretrained("minilm")(IDS, MASK).last_hidden_state
    with torch.no_grad():
        found = tagger.bert(IDS, MASK).last_hidden_state
    assert torch.equal(found, states)
    assert not has_mean_layer(tagger.config)
