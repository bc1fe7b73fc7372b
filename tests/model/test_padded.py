"""The plain padded forward matches the packed models and Hugging Face's, and can be exported."""

from __future__ import annotations

import pytest
import torch
import transformers
from equality import CLASSES, SMALL, padded_inputs, their_settings, twins

import bertmill
from bertmill import BertConfig
from bertmill.model.padded import PaddedBert

NAMES = ("input_ids", "attention_mask", "token_type_ids")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_the_padded_forward_matches_the_packed_model_and_hugging_face(name: str, causal: bool) -> None:
    ours, theirs = twins(name, BertConfig(**SMALL, causal=causal))
    theirs.config.use_cache = False  # otherwise, their causal models return keys and values too
    inputs = padded_inputs(SMALL["vocab_size"])
    mask = inputs["attention_mask"].bool()
    outputs = PaddedBert(ours.train())(*(inputs[key] for key in NAMES))  # without dropout in any mode
    ours.eval()
    if name == "BertForMultipleChoice":
        inputs = {key: value[:, None] for key, value in inputs.items()}
    for model in (ours, theirs):
        for mine, other in zip(outputs, model(**inputs).to_tuple(), strict=True):
            assert mine.shape == other.shape
            is_per_piece = mine.shape[:2] == mask.shape
            if is_per_piece:
                mine, other = mine[mask], other[mask]
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["BertModel", "BertForSequenceClassification"])
def test_the_padded_forward_can_be_exported_for_any_batch_size_and_length(name: str) -> None:
    torch.manual_seed(0)
    model = getattr(bertmill, name)(BertConfig(**SMALL)).eval()
    padded = PaddedBert(model)
    example = padded_inputs(SMALL["vocab_size"], lengths=(9, 4, 7))
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=SMALL["max_position_embeddings"])}
    program = torch.export.export(padded, tuple(example[key] for key in NAMES), dynamic_shapes=(sizes,) * 3)
    for lengths in ((5,), (31, 40), (1, 2, 3, 4, 5)):
        inputs = padded_inputs(SMALL["vocab_size"], lengths=lengths)
        given = tuple(inputs[key] for key in NAMES)
        for mine, other in zip(program.module()(*given), padded(*given), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)


def test_a_model_without_a_pooler_returns_only_vectors() -> None:
    config = BertConfig(**SMALL)
    model = bertmill.BertModel(config, add_pooling_layer=False).eval()
    theirs = transformers.BertModel(transformers.BertConfig(**their_settings(config)), add_pooling_layer=False).eval()
    theirs.load_state_dict(model.state_dict())
    inputs = padded_inputs(SMALL["vocab_size"], side="left")
    (vectors,) = PaddedBert(model)(*(inputs[key] for key in NAMES))
    torch.testing.assert_close(vectors, theirs(**inputs).last_hidden_state, atol=1e-5, rtol=0)
