"""Initial weights computed from corpus statistics.

They are ordinary BERT weights that replace the random ones before training:
- The decoder's bias is the log frequency of each piece.
- Piece embeddings are the factors U √S of the positive pointwise mutual information of neighbors (truncated singular
  value decomposition), rotated at random. They fill all dimensions except the first few, which hold positions.
- Position embeddings are sines and cosines of geometric frequencies in the reserved dimensions.
- The heads of the first layers attend to fixed offsets. The key is the position, the query is the position rotated by
  the offset, and each head copies a random slice of the other dimensions.
- The transform of the MLM head copies its input, so that a piece is predicted from the vectors around it.
All other weights stay random, as do embeddings of pieces without neighbors in the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertmill.corpus.cooccurrence import count_pairs, most_frequent, piece_counts, positive_mutual_information
from bertmill.corpus.parts import DocumentPart
from bertmill.model.config import BertConfig
from bertmill.model.heads import BertWithMaskedLM
from bertmill.model.layers import BertAttention
from bertmill.randomness import keyed_seed

NEIGHBORS = {1: 4, 2: 3, 3: 2, 4: 1, 5: 1}  # weights of pairs by their distance
MAX_DIMENSIONS = 256  # of piece vectors; more dimensions barely help and take longer
MAX_PIECES = 1 << 25  # counted at most; larger corpora are sampled
MAX_CONTEXTS = 1 << 13
MIN_CONTEXTS = 1 << 8
POWER_ITERATIONS = 3
EXTRA_DIMENSIONS = 16  # of the random projection; they make the smallest factors more accurate
BUDGET_FRACTION = 0.1  # of a time budget, for initial weights
COUNTING_FRACTION = 0.6  # of the progress; the rest is the decomposition
# Assumed speeds of one core, to fit the computation into its part of a budget:
PIECES_PER_SECOND = 1e6
OPERATIONS_PER_SECOND = 2e10

MAX_LAYERS = 2  # with heads that attend to fixed offsets
HIGHEST_FREQUENCY, LOWEST_FREQUENCY = 1.5, 0.03  # radians per position
SHARPNESS = 8.0  # the attention score at a head's offset, before noise
COPY_GAIN = 0.5  # of the value and the output projection each
NOISE = 0.02  # of queries and keys
LINEAR_FROM = 3.0  # where GELU is nearly the identity


class PieceStatistics(NamedTuple):
    """Counts and vectors of the pieces of a corpus."""

    counts: NDArray[np.int64]
    vectors: Tensor  # [V, at most MAX_DIMENSIONS]


class Effort(NamedTuple):
    """How much of a corpus is counted, and how many contexts."""

    max_pieces: int
    max_contexts: int

    @classmethod
    def within_budget(cls, budget_s: float, vocabulary_size: int, dimensions: int) -> Effort:
        """The largest sample that fits in a tenth of the budget at nominal speeds.

        With measured speeds, the sample would not be reproducible.
        """
        half = budget_s * BUDGET_FRACTION / 2  # for counting, and for the decomposition
        products = 2 * POWER_ITERATIONS + 2
        operations = 2 * products * vocabulary_size * (dimensions + EXTRA_DIMENSIONS)  # per context
        max_contexts = min(MAX_CONTEXTS, max(MIN_CONTEXTS, half * OPERATIONS_PER_SECOND / operations))
        return cls(int(min(MAX_PIECES, half * PIECES_PER_SECOND)), int(max_contexts))


def compute_statistics(
    config: BertConfig, part: DocumentPart, seed: int, *, budget_s: float, on_progress: Callable[[float], None]
) -> PieceStatistics:
    """Count pieces and compute their vectors, in about a tenth of `budget_s`."""
    dimensions = min(MAX_DIMENSIONS, config.hidden_size - num_position_dimensions(config))
    effort = Effort.within_budget(budget_s, part.corpus.vocabulary_size, dimensions)
    counts = piece_counts(part, effort.max_pieces)
    weights = {sign * distance: weight for distance, weight in NEIGHBORS.items() for sign in (-1, 1)}
    table = count_pairs(
        part,
        most_frequent(counts, effort.max_contexts),
        weights,
        max_pieces=effort.max_pieces,
        on_progress=lambda done: on_progress(COUNTING_FRACTION * done),
    )
    information = torch.from_numpy(positive_mutual_information(table))
    generator = torch.Generator().manual_seed(keyed_seed(seed, "random projection"))
    vectors = factorize(
        information,
        dimensions,
        generator,
        on_progress=lambda done: on_progress(COUNTING_FRACTION + (1 - COUNTING_FRACTION) * done),
    )
    return PieceStatistics(counts, vectors)


def factorize(
    matrix: Tensor, rank: int, generator: torch.Generator, *, on_progress: Callable[[float], None] = lambda _: None
) -> Tensor:
    """U √S for the `rank` largest singular values, in descending order (Halko, Martinsson and Tropp, 2011).

    Rows of zeros stay exactly zero. The signs of the factors are arbitrary; they are chosen so that the component
    of largest magnitude is positive.
    """
    width = min(rank + EXTRA_DIMENSIONS, *matrix.shape)
    basis = torch.linalg.qr(matrix @ torch.randn(matrix.shape[1], width, generator=generator))[0]
    for number in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(matrix.T @ basis)[0]
        basis = torch.linalg.qr(matrix @ basis)[0]
        on_progress((number + 1) / (POWER_ITERATIONS + 1))
    left, values, _ = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    factors: Tensor = basis @ left[:, :rank] * values[:rank].sqrt()
    factors[~matrix.any(dim=1)] = 0  # remove rounding errors
    on_progress(1.0)
    signs = factors.gather(0, factors.abs().argmax(0, keepdim=True)).sign()
    return factors * signs


def num_position_dimensions(config: BertConfig) -> int:
    """The dimensions reserved for positions: an even number that fits into a head."""
    head_size = config.hidden_size // config.num_attention_heads
    return min(head_size, config.hidden_size // 4) // 2 * 2


@torch.no_grad()
def set_corpus_weights(model: BertWithMaskedLM, statistics: PieceStatistics, seed: int) -> None:
    """Replace weights of a model, on any device, with weights computed from corpus statistics.

    They are computed on the CPU and copied, so they are the same on every device.
    """
    config, body, head = model.config, model.base_model, model.cls.predictions
    generator = torch.Generator().manual_seed(keyed_seed(seed, "weights from the corpus"))
    num_reserved = num_position_dimensions(config)
    frequencies = HIGHEST_FREQUENCY * (LOWEST_FREQUENCY / HIGHEST_FREQUENCY) ** torch.linspace(0, 1, num_reserved // 2)
    smoothed = torch.from_numpy(statistics.counts + 0.5)
    head.bias.copy_((smoothed / smoothed.sum()).log())
    _set_pieces(body.embeddings.word_embeddings.weight, statistics, num_reserved, config, generator)
    body.embeddings.token_type_embeddings.weight.zero_()
    _set_positions(body.embeddings.position_embeddings.weight, frequencies, config)
    for number in range(min(MAX_LAYERS, -(-config.num_hidden_layers // 2))):
        offsets = layer_offsets(number, config.num_attention_heads, causal=config.causal)
        _look_at_offsets(body.encoder.layer[number].attention, offsets, frequencies, generator)
    _copy_input(head.transform.dense, num_reserved)


def layer_offsets(layer: int, num_heads: int, *, causal: bool) -> list[int]:
    """The offsets that the heads of a layer attend to: −1, 1, −2, 2, … in the first, −1, 1, −3, 3, … in the second."""
    num_distances = num_heads if causal else -(-num_heads // 2)
    distances = [1, *range(2 + layer, 2 + layer + num_distances)][:num_distances]
    if causal:
        return [-distance for distance in distances]
    return [sign * distance for distance in distances for sign in (-1, 1)][:num_heads]


def _set_pieces(
    weight: Tensor, statistics: PieceStatistics, num_reserved: int, config: BertConfig, generator: torch.Generator
) -> None:
    """Rotate the vectors into the free dimensions and scale them to the standard deviation of random weights."""
    weight[:, :num_reserved] = 0
    has_vector = statistics.vectors.any(dim=1)  # other pieces keep their random weights
    if not has_vector.any():
        return
    vectors = statistics.vectors[has_vector]
    rotated = vectors @ _orthonormal(vectors.shape[1], config.hidden_size - num_reserved, generator)
    scaled = rotated * (config.initializer_range / rotated.std())
    weight[has_vector.to(weight.device), num_reserved:] = scaled.to(weight.device)


def _set_positions(weight: Tensor, frequencies: Tensor, config: BertConfig) -> None:
    """Set alternating sines and cosines, with the standard deviation of random weights."""
    angles = torch.arange(len(weight))[:, None] * frequencies
    weight.zero_()
    waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
    weight[:, : waves.shape[1]] = waves * (config.initializer_range * math.sqrt(2))


def _look_at_offsets(
    attention: BertAttention, offsets: Sequence[int], frequencies: Tensor, generator: torch.Generator
) -> None:
    """Set query, key, value and output of each head so that it copies from its offset."""
    size = len(attention.self.query.weight)
    query, key = (torch.randn(size, size, generator=generator) * NOISE for _ in range(2))
    value, output = torch.zeros(size, size), torch.zeros(size, size)
    head_size, num_reserved = size // len(offsets), 2 * len(frequencies)
    # The score of identical positions is gain² · num_reserved / √head_size, since LayerNorm scales dimensions to 1.
    gain = math.sqrt(SHARPNESS * math.sqrt(head_size) / num_reserved)
    for head, offset in enumerate(offsets):
        rows = slice(head * head_size, head * head_size + num_reserved)
        query[rows, :num_reserved] += gain * _rotation(frequencies * offset)
        key[rows, :num_reserved] += gain * torch.eye(num_reserved)
        rows = slice(head * head_size, (head + 1) * head_size)
        basis = _orthonormal(size - num_reserved, head_size, generator)
        value[rows, num_reserved:] = COPY_GAIN * basis.T
        output[num_reserved:, rows] = COPY_GAIN * basis
    targets = (attention.self.query, attention.self.key, attention.self.value, attention.output.dense)
    for layer, weight in zip(targets, (query, key, value, output), strict=True):
        layer.weight.copy_(weight)


def _rotation(angles: Tensor) -> Tensor:
    """A matrix that rotates each pair of dimensions by its angle."""
    cos, sin = angles.cos(), angles.sin()
    rotation: Tensor = torch.block_diag(*torch.stack([cos, sin, -sin, cos], 1).view(-1, 2, 2))
    return rotation


def _copy_input(dense: nn.Linear, num_reserved: int) -> None:
    """Set the identity, shifted to where the activation is nearly linear; the next LayerNorm removes the shift."""
    dense.weight.copy_(torch.eye(len(dense.weight)))
    dense.weight[:num_reserved] = 0
    dense.bias.fill_(LINEAR_FROM)


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A random matrix with orthonormal columns, or with orthonormal rows if it has fewer rows than columns."""
    matrix = torch.randn(max(rows, columns), min(rows, columns), generator=generator)
    orthonormal: Tensor = torch.linalg.qr(matrix)[0]
    return orthonormal if rows >= columns else orthonormal.T
