"""Keyed randomness: generators, seeds and permutations that depend only on (seed, *key).

Keys consist of numbers and purposes (words). The same key gives the same numbers on any machine, regardless of what was
drawn before.

`Permutation` shuffles without storing a list. A Feistel network permutes all numbers of a given bit length: the two
halves take turns, each changed by a hash of the other and a round key. A result outside 0 … n − 1 is permuted again
until it is inside (cycle walking), which takes fewer than two passes on average.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers64 = NDArray[np.uint64]

ROUNDS = 8  # even, so that halves of unequal size end up where they started


class Permutation:
    """A bijection of 0 … size − 1 that depends only on the seed and the key."""

    def __init__(self, size: int, seed: int, *key: int | str) -> None:
        num_bits = max(2, (size - 1).bit_length())
        self.size = size
        self._low_bits = np.uint64(num_bits // 2)
        self._high_bits = np.uint64(num_bits - num_bits // 2)
        self._round_keys = keyed_generator(seed, *key).integers(0, 1 << 64, ROUNDS, np.uint64, endpoint=False)

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers at `places`, each from 0 to size − 1."""
        return self._walked(places, self._permuted)

    def places_of(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The inverse: the places of `numbers`, each from 0 to size − 1."""
        return self._walked(numbers, self._unpermuted)

    def _walked(self, numbers: NDArray[np.int64], step: Callable[[Numbers64], Numbers64]) -> NDArray[np.int64]:
        found = step(numbers.astype(np.uint64))
        while (is_outside := found >= self.size).any():
            found[is_outside] = step(found[is_outside])
        return found.astype(np.int64)

    def _permuted(self, numbers: Numbers64) -> Numbers64:
        low, high = self._halves(numbers)
        low_bits, high_bits = self._low_bits, self._high_bits
        for key in self._round_keys:
            low, high = high, low ^ (_mixed(high ^ key) >> (np.uint64(64) - low_bits))
            low_bits, high_bits = high_bits, low_bits
        return (high << low_bits) | low

    def _unpermuted(self, numbers: Numbers64) -> Numbers64:
        low, high = self._halves(numbers)
        low_bits, high_bits = self._low_bits, self._high_bits
        for key in self._round_keys[::-1]:
            low_bits, high_bits = high_bits, low_bits
            low, high = high ^ (_mixed(low ^ key) >> (np.uint64(64) - low_bits)), low
        return (high << low_bits) | low

    def _halves(self, numbers: Numbers64) -> tuple[Numbers64, Numbers64]:
        one = np.uint64(1)
        return numbers & ((one << self._low_bits) - one), numbers >> self._low_bits


def _mixed(numbers: Numbers64) -> Numbers64:
    """Mix numbers so that every output bit depends on every input bit (the finalizer of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def keyed_generator(seed: int, *key: int | str) -> np.random.Generator:
    """A generator that depends only on `seed` and `key` (counter-based: numpy's Philox)."""
    return np.random.Generator(np.random.Philox(key=_hash_of_key(seed, *key, num_bytes=16)))


def keyed_seed(seed: int, *key: int | str) -> int:
    """A 64-bit seed for another library's generator that depends only on `seed` and `key`."""
    return _hash_of_key(seed, *key, num_bytes=8)


def _hash_of_key(*key: int | str, num_bytes: int) -> int:
    # Hashing gives every key its own stream; repr distinguishes 1 from "1" and (1, 23) from (12, 3).
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=num_bytes).digest(), "little")
