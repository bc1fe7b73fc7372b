from __future__ import annotations

import numpy as np
import pytest
import torch

from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.training.initial_weights import layer_offsets, num_position_dimensions, set_corpus_weights

VOCABULARY = 60


def corpus_model(size: str = "mini", *, causal: bool = False, seed: int = 0) -> BertForMaskedLM:
    """A model with weights from the counts and vectors of an imaginary corpus; the first five pieces do not occur."""
    random = np.random.default_rng(7)
    counts = np.append(np.zeros(5, np.int64), random.integers(1, 100, VOCABULARY - 5))
    vectors = random.standard_normal((VOCABULARY, 48)).astype(np.float32)
    torch.manual_seed(0)
    config = BertConfig.of_size(size, vocab_size=VOCABULARY, causal=causal)
    model = BertForMaskedLM(config)
    set_corpus_weights(model, counts, vectors, torch.Generator().manual_seed(seed))
    return model.eval()


@pytest.mark.parametrize(
    ("layer", "heads", "causal", "offsets"),
    [
        (0, 2, False, [-1, 1]),
        (0, 4, False, [-1, 1, -2, 2]),
        (1, 4, False, [-1, 1, -3, 3]),
        (1, 5, False, [-1, 1, -3, 3, -4]),
        (0, 8, False, [-1, 1, -2, 2, -3, 3, -4, 4]),
        (0, 4, True, [-1, -2, -3, -4]),
        (1, 4, True, [-1, -3, -4, -5]),
    ],
)
def test_offsets_of_a_layer(layer: int, heads: int, causal: bool, offsets: list[int]) -> None:
    assert layer_offsets(layer, heads, causal=causal) == offsets


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", ["tiny", "mini", "small"])
def test_every_head_of_the_first_layers_looks_mostly_at_its_offset(size: str, causal: bool) -> None:
    model = corpus_model(size, causal=causal)
    ids = torch.randint(5, VOCABULARY, (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        attentions = model(input_ids=ids, output_attentions=True).attentions
    for layer in range(1 if size == "tiny" else 2):
        for head, offset in enumerate(layer_offsets(layer, model.config.num_attention_heads, causal=causal)):
            seen = attentions[layer][:, head].mean(0)
            by_offset = {other: float(seen.diagonal(other)[10:79].mean()) for other in range(-10, 11)}
            assert max(by_offset, key=by_offset.__getitem__) == offset, (layer, head)


def test_positions_beyond_those_trained_on_behave_alike() -> None:
    model = corpus_model()
    weight = model.bert.embeddings.position_embeddings.weight
    near, far = weight[10] @ weight[13], weight[410] @ weight[413]
    torch.testing.assert_close(near, far)
    assert not weight[:, num_position_dimensions(model.config) :].any()


def test_without_context_the_model_knows_frequencies() -> None:
    bias = corpus_model().cls.predictions.bias.detach()
    assert bias.exp().sum() == pytest.approx(1.0, abs=1e-4)
    assert bias[:5].max() < bias[5:].min()


def test_pieces_keep_their_geometry_and_unseen_ones_stay_random() -> None:
    random = np.random.default_rng(7)
    random.integers(1, 100, VOCABULARY - 5)
    vectors = torch.from_numpy(random.standard_normal((VOCABULARY, 48)).astype(np.float32))[5:]
    model = corpus_model()
    reserved = num_position_dimensions(model.config)
    weight = model.bert.embeddings.word_embeddings.weight.detach()
    assert not weight[:, :reserved].any()
    assert weight[5:, reserved:].std() == pytest.approx(0.02, rel=1e-3)
    torch.testing.assert_close(
        torch.corrcoef(torch.stack([(weight[5:] @ weight[5:].T).flatten(), (vectors @ vectors.T).flatten()]))[0, 1],
        torch.tensor(1.0),
        atol=1e-4,
        rtol=0,
    )
    assert weight[1:5, reserved:].std() == pytest.approx(0.02, rel=0.1)
    assert not weight[0].any()  # padding


def test_the_same_generator_gives_the_same_bits() -> None:
    first, again, other = corpus_model(), corpus_model(), corpus_model(seed=1)
    weights = [dict(model.named_parameters()) for model in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
