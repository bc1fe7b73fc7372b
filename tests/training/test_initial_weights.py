from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertmill.corpus.parts import DocumentPart
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.training.initial_weights import (
    MAX_CONTEXTS,
    MAX_PIECES,
    Effort,
    Statistics,
    compute_statistics,
    factorize,
    layer_offsets,
    num_position_dimensions,
    set_corpus_weights,
)
from tests.corpus.factory import write_corpus

VOCABULARY = 60


def statistics_of_pieces() -> Statistics:
    """Those of an imaginary corpus, in which the first five pieces do not occur."""
    random = np.random.default_rng(7)
    counts = np.append(np.zeros(5, np.int64), random.integers(1, 100, VOCABULARY - 5))
    return Statistics(counts, torch.from_numpy(random.standard_normal((VOCABULARY, 48)).astype(np.float32)))


def corpus_model(size: str = "mini", *, causal: bool = False, seed: int = 0) -> BertForMaskedLM:
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig.of_size(size, vocab_size=VOCABULARY, causal=causal))
    set_corpus_weights(model, statistics_of_pieces(), seed)
    return model.eval()


def test_the_factors_are_those_of_the_singular_value_decomposition() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = torch.diag(0.8 ** torch.arange(60))
    matrix = torch.randn(200, 60, generator=generator) @ scale @ torch.randn(60, 90, generator=generator)
    factors = factorize(matrix, 10, torch.Generator().manual_seed(3))
    left, values, _ = torch.linalg.svd(matrix)
    expected = left[:, :10] * values[:10].sqrt()
    torch.testing.assert_close(factors @ factors.T, expected @ expected.T, atol=1e-3, rtol=0)
    assert torch.equal(factorize(matrix, 10, torch.Generator().manual_seed(3)), factors)


def test_pieces_in_similar_contexts_have_similar_vectors(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    # 10 and 11 stand between 20 and 21, 12 and 13 between 22 and 23.
    groups = [
        (20, random.choice([10, 11]), 21) if random.random() < 0.5 else (22, random.choice([12, 13]), 23)
        for _ in range(2000)
    ]
    pieces = np.array(groups).reshape(-1)
    corpus = write_corpus(tmp_path / "corpus", [[len(pieces)]], pieces=pieces, vocabulary_size=VOCABULARY)
    part = DocumentPart(corpus, "train", 0.0)
    config = BertConfig.of_size("tiny", vocab_size=VOCABULARY)
    shares: list[float] = []
    counts, vectors = compute_statistics(config, part, 0, seconds=1e9, on_progress=shares.append)
    unit = torch.nn.functional.normalize(vectors[:, :8], dim=1)
    assert unit[10] @ unit[11] > 0.95
    assert unit[10] @ unit[12] < 0.5
    assert counts[20] + counts[22] == 2000
    assert shares


def test_a_budget_limits_the_effort() -> None:
    assert Effort.within(float("inf"), 30_000, 256) == Effort(MAX_PIECES, MAX_CONTEXTS)
    long, short = Effort.within(1800, 8192, 192), Effort.within(60, 8192, 192)
    assert long == Effort(MAX_PIECES, MAX_CONTEXTS)
    assert short.max_pieces <= 60 / 10 * 1e6
    assert short.max_contexts < MAX_CONTEXTS


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
    vectors = statistics_of_pieces().vectors[5:]
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


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = corpus_model(), corpus_model(), corpus_model(seed=1)
    weights = [dict(model.named_parameters()) for model in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
