"""Initial weights computed from corpus statistics."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from bertmill.corpus.parts import DocumentPart
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.training.initial_weights import (
    COPY_GAIN,
    MAX_CONTEXTS,
    MAX_PIECES,
    MIN_CONTEXTS,
    Effort,
    PieceStatistics,
    compute_statistics,
    factorize,
    layer_offsets,
    num_position_dimensions,
    set_corpus_weights,
)
from tests.corpus.factory import write_corpus

VOCABULARY = 60


def statistics_of_pieces() -> PieceStatistics:
    """Statistics of an imaginary corpus in which the first five pieces do not occur."""
    random = np.random.default_rng(7)
    counts = np.append(np.zeros(5, np.int64), random.integers(1, 100, VOCABULARY - 5))
    vectors = torch.from_numpy(random.standard_normal((VOCABULARY, 48)).astype(np.float32))
    vectors[:5] = 0
    return PieceStatistics(counts, vectors)


def random_model(size: str = "mini", *, causal: bool = False) -> BertForMaskedLM:
    """A model of a size, with at most four layers."""
    torch.manual_seed(0)
    config = BertConfig.of_size(size, vocab_size=VOCABULARY, causal=causal)
    return BertForMaskedLM(config.with_settings(num_hidden_layers=min(4, config.num_hidden_layers)))


def corpus_model(size: str = "mini", *, causal: bool = False, seed: int = 0) -> BertForMaskedLM:
    model = random_model(size, causal=causal)
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


def test_the_signs_of_factors_do_not_depend_on_rounding_and_rows_of_zeros_stay_zero() -> None:
    matrix = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    matrix[[0, 3, 40]] = 0
    shares: list[float] = []
    factors = factorize(matrix, 8, torch.Generator().manual_seed(3), on_progress=shares.append)
    assert (factors.amax(0) >= -factors.amin(0)).all()
    assert factors.any(dim=1).logical_not().nonzero().flatten().tolist() == [0, 3, 40]
    assert shares == [0.25, 0.5, 0.75, 1.0]


def test_pieces_in_similar_contexts_have_similar_vectors(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    # 10 and 11 occur between 20 and 21, 12 and 13 between 22 and 23.
    groups = [
        (20, random.choice([10, 11]), 21) if random.random() < 0.5 else (22, random.choice([12, 13]), 23)
        for _ in range(2000)
    ]
    pieces = np.array(groups).reshape(-1)
    corpus = write_corpus(tmp_path / "corpus", [[len(pieces)]], pieces=pieces, vocabulary_size=VOCABULARY)
    part = DocumentPart(corpus, "train", 0.0)
    config = BertConfig.of_size("tiny", vocab_size=VOCABULARY)
    shares: list[float] = []
    counts, vectors = compute_statistics(config, part, 0, budget_s=1e9, on_progress=shares.append)
    unit = torch.nn.functional.normalize(vectors[:, :8], dim=1)
    assert unit[10] @ unit[11] > 0.95
    assert unit[10] @ unit[12] < 0.5
    assert counts[20] + counts[22] == 2000
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_a_budget_limits_the_effort() -> None:
    assert Effort.within_budget(float("inf"), 30_000, 256) == Effort(MAX_PIECES, MAX_CONTEXTS)
    assert Effort.within_budget(1800, 8192, 192) == Effort(MAX_PIECES, MAX_CONTEXTS)
    assert Effort.within_budget(60, 8192, 192) == Effort(3_000_000, 2200)
    assert Effort.within_budget(1, 8192, 192) == Effort(50_000, MIN_CONTEXTS)


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


@pytest.mark.parametrize(
    ("size", "causal"),
    [
        *product(["tiny", "mini", "small"], [False, True]),
        ("base", False),  # 12 heads
    ],
)
def test_every_head_of_the_first_layers_attends_mostly_to_its_offset(size: str, causal: bool) -> None:
    model = corpus_model(size, causal=causal)
    ids = torch.randint(5, VOCABULARY, (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        attentions = model(input_ids=ids, output_attentions=True).attentions
    for layer in range(1 if size == "tiny" else 2):
        for head, offset in enumerate(layer_offsets(layer, model.config.num_attention_heads, causal=causal)):
            seen = attentions[layer][:, head].mean(0)
            by_offset = {other: float(seen.diagonal(other)[10:79].mean()) for other in range(-20, 21)}
            assert max(by_offset, key=by_offset.__getitem__) == offset, (layer, head)


def test_scores_of_an_offset_are_the_same_at_all_positions() -> None:
    model = corpus_model()
    weight = model.bert.embeddings.position_embeddings.weight
    near, far = weight[10] @ weight[13], weight[410] @ weight[413]
    torch.testing.assert_close(near, far)
    assert not weight[:, num_position_dimensions(model.config) :].any()


def test_the_decoder_bias_is_the_log_frequency() -> None:
    bias = corpus_model().cls.predictions.bias.detach()
    smoothed = statistics_of_pieces().counts + 0.5
    np.testing.assert_allclose(bias.exp().numpy(), smoothed / smoothed.sum(), rtol=1e-4)


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


def test_weights_with_the_same_seed_are_bit_identical() -> None:
    first, again, other = corpus_model(), corpus_model(), corpus_model(seed=1)
    weights = [dict(model.named_parameters()) for model in (first, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert any(not torch.equal(weights[0][name], weights[2][name]) for name in weights[0])


def test_pieces_without_a_vector_stay_random() -> None:
    expected, model = random_model(), random_model()
    set_corpus_weights(model, PieceStatistics(np.full(VOCABULARY, 3), torch.zeros(VOCABULARY, 48)), 0)
    reserved = num_position_dimensions(model.config)
    weights = [each.bert.embeddings.word_embeddings.weight[:, reserved:] for each in (model, expected)]
    assert torch.equal(*weights)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_a_corpus_of_one_distinct_piece_gives_finite_weights(tmp_path: Path) -> None:
    pieces = np.full(300, 7)
    corpus = write_corpus(tmp_path / "corpus", [[len(pieces)]], pieces=pieces, vocabulary_size=VOCABULARY)
    model = random_model("tiny")
    part = DocumentPart(corpus, "train", 0.0)
    statistics = compute_statistics(model.config, part, 0, budget_s=1e9, on_progress=lambda _: None)
    set_corpus_weights(model, statistics, 0)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_the_model_may_be_on_another_device() -> None:
    """The meta device stands in for a GPU: it, too, refuses to compute with CPU tensors, except for copying them."""
    with torch.device("meta"):
        model = random_model("tiny")
    set_corpus_weights(model, statistics_of_pieces(), 0)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_the_transform_of_the_head_copies_its_input() -> None:
    model = corpus_model()
    reserved = num_position_dimensions(model.config)
    states = torch.randn(50, model.config.hidden_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        outputs = model.cls.predictions.transform(states)
    pairs = torch.stack([states[:, reserved:].flatten(), outputs[:, reserved:].flatten()])
    assert torch.corrcoef(pairs)[0, 1] > 0.99


def test_value_and_output_of_a_head_copy_a_slice_of_the_piece() -> None:
    """Their product is a projection onto as many dimensions as the head has, none of them reserved for positions."""
    model = corpus_model()
    reserved = num_position_dimensions(model.config)
    head_size = model.config.hidden_size // model.config.num_attention_heads
    attention = model.bert.encoder.layer[0].attention
    for start in range(0, model.config.hidden_size, head_size):
        rows = slice(start, start + head_size)
        value, output = attention.self.value.weight[rows], attention.output.dense.weight[:, rows]
        copied = (output @ value).detach() / COPY_GAIN**2
        assert not copied[:reserved].any()
        assert not copied[:, :reserved].any()
        torch.testing.assert_close(copied @ copied, copied, atol=1e-5, rtol=0)
        assert float(copied.trace()) == pytest.approx(head_size, rel=1e-4)
