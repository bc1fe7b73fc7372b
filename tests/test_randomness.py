"""Keyed generators are reproducible; keyed permutations are bijections of any size and look random."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.randomness import Permutation, keyed_generator


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**64))
def test_every_number_occurs_exactly_once(size: int, seed: int) -> None:
    order = Permutation(size, seed, 0, "order")(np.arange(size))
    assert np.array_equal(np.sort(order), np.arange(size))


@given(size=st.integers(1, 3000), seed=st.integers(0, 2**64))
def test_places_of_is_the_inverse(size: int, seed: int) -> None:
    permutation = Permutation(size, seed, "order")
    assert np.array_equal(permutation.places_of(permutation(np.arange(size))), np.arange(size))


def test_a_part_of_a_permutation_can_be_computed_alone() -> None:
    permutation = Permutation(10**12, 7, "order")
    whole = permutation(np.arange(500))
    assert np.array_equal(permutation(np.arange(200, 300)), whole[200:300])
    assert len(np.unique(whole)) == 500
    assert whole.min() >= 0
    assert whole.max() < 10**12


def test_seed_and_key_determine_the_order() -> None:
    places = np.arange(1000)
    first = Permutation(1000, 1, 0, "order")(places)
    assert np.array_equal(first, Permutation(1000, 1, 0, "order")(places))
    assert not np.array_equal(first, Permutation(1000, 2, 0, "order")(places))
    assert not np.array_equal(first, Permutation(1000, 1, 1, "order")(places))


@pytest.mark.parametrize("size", [1000, 1024, 40_001])
def test_a_permutation_looks_shuffled(size: int) -> None:
    """A random permutation has correlations of about 1 / √size and about one fixed point."""
    places = np.arange(size)
    order = Permutation(size, 3, "order")(places)
    assert abs(np.corrcoef(places, order)[0, 1]) < 4 / size**0.5
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 4 / size**0.5
    assert (order == places).sum() < 8
    thirds = np.bincount(order[: size // 3] * 10 // size, minlength=10)  # where the first third comes from
    assert abs(thirds - size / 30).max() < 5 * (size / 30) ** 0.5


def test_every_number_may_come_first() -> None:
    """Over many keys, each of six numbers comes first equally often."""
    counts = np.bincount([Permutation(6, seed, "order")(np.zeros(1, np.int64))[0] for seed in range(6000)])
    assert abs(counts - 1000).max() < 150


def test_the_same_key_gives_the_same_numbers_and_other_keys_differ() -> None:
    def draw(*key: int | str) -> list[int]:
        return keyed_generator(*key).integers(0, 1 << 62, 4).tolist()  # type: ignore[arg-type]

    assert draw(1, 0, "mask") == draw(1, 0, "mask")
    keys = [(1, 0, "mask"), (1, 0, "order"), (1, 1, "mask"), (2, 0, "mask"), (1, 23), (12, 3), (1, "23")]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys)


def test_keyed_numbers_do_not_change_between_versions() -> None:
    assert keyed_generator(0, "example").integers(0, 1000, 4).tolist() == [253, 877, 921, 32]
