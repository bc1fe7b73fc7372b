"""Probes: features against their definitions, batches against single sequences, and what transformers makes of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from bertmill.model.bert import BertModel
from bertmill.model.config import BertConfig
from bertmill.model.mean_layer import pooled_mean
from bertmill.model.packing import PackedBatch
from bertmill.model.probe import KEY, BertForSequenceProbe, BertForWordProbe
from bertmill.model.registry import class_of

FIRST, SECOND = [101, 2023, 2003, 102], [2460, 3231, 102]
SINGLE = PackedBatch(torch.tensor(FIRST), [4], torch.zeros(4, dtype=torch.int64))
PAIR = PackedBatch(torch.tensor(FIRST + SECOND), [7], torch.tensor([0] * 4 + [1] * 3))
BOTH = PackedBatch(torch.tensor(FIRST + SECOND + FIRST), [7, 4], torch.tensor([0] * 4 + [1] * 3 + [0] * 4))


def features(kind: type, names: list[str], batch: PackedBatch) -> Tensor:
    model = kind.from_pretrained("minilm", config=BertConfig.from_pretrained("minilm").with_settings(**{KEY: names}))
    model.classifier = torch.nn.Identity()
    with torch.inference_mode():
        logits: Tensor = model(batch).logits
    return logits


def states(ids: list[int], segments: list[int] | None = None) -> Tensor:
    """The vectors of the embeddings and every layer [7, pieces, 384]."""
    given: dict[str, Any] = {"token_type_ids": torch.tensor([segments or [0] * len(ids)])}
    with torch.inference_mode():
        output = BertModel.from_pretrained("minilm")(torch.tensor([ids]), **given, output_hidden_states=True)
    return torch.cat(output.hidden_states)


def test_features_of_a_sequence_follow_their_definitions() -> None:
    means = states(FIRST + SECOND, [0] * 4 + [1] * 3).mean(1)
    layers = F.normalize(means, dim=1).flatten() / 7**0.5
    u, v = (F.normalize(states(ids)[-1].mean(0), dim=0) for ids in (FIRST, [101, *SECOND]))
    apart = torch.cat([u, v, (u - v).abs(), 384**0.5 * u * v, 10 * F.cosine_similarity(u, v, dim=0)[None]])
    expected = torch.cat([pooled_mean(means[-1]), layers, apart])
    assert torch.allclose(features(BertForSequenceProbe, ["mean", "layers", "apart"], PAIR)[0], expected, atol=1e-5)
    assert layers.norm() == pytest.approx(1)


def test_features_of_a_piece_follow_their_definitions() -> None:
    layers = states(FIRST)
    found = features(BertForWordProbe, ["last", "layers"], SINGLE)
    scaled = F.normalize(layers, dim=2).transpose(0, 1).flatten(1) / 7**0.5
    assert torch.allclose(found, torch.cat([layers[-1], scaled], 1), atol=1e-5)


@pytest.mark.parametrize("names", [["mean"], ["layers"], ["apart"]])
def test_features_do_not_depend_on_the_batch(names: list[str]) -> None:
    together = features(BertForSequenceProbe, names, BOTH)
    alone = [features(BertForSequenceProbe, names, batch) for batch in (PAIR, SINGLE)]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_probe_is_saved_and_loaded_and_refused_by_transformers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = BertConfig.from_pretrained("minilm").with_settings(**{KEY: ["layers"]})
    model = BertForSequenceProbe.from_pretrained("minilm", config=config)
    model.save_pretrained(tmp_path)
    config = BertConfig.from_pretrained(tmp_path)
    assert class_of(config) is BertForSequenceProbe
    again = BertForSequenceProbe.from_pretrained(tmp_path)
    assert torch.equal(again(SINGLE).logits, model(SINGLE).logits)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
