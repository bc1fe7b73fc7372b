"""A shuffle that is a function: the i-th of n things, for any i at once, without a list of n things.

A Feistel network permutes the numbers of so many bits: the halves take turns, each is changed by a hash of the other
and a key, which can be undone whatever the hash, so no two numbers meet. What lands outside of 0 … n − 1 goes through
again until it is inside (cycle walking): fewer than two rounds on average, as there are fewer than 2n numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertmill.runtime import keyed_generator

ROUNDS = 8  # even, so that halves of unequal size end where they began


class Permutation:
    """A bijection of 0 … size − 1 that depends on the seed and the key alone."""

    def __init__(self, size: int, seed: int, *key: int | str) -> None:
        num_bits = max(2, (size - 1).bit_length())
        self.size = size
        self._low_bits = np.uint64(num_bits // 2)
        self._high_bits = np.uint64(num_bits - num_bits // 2)
        self._round_keys = keyed_generator(seed, *key).integers(0, 1 << 64, ROUNDS, np.uint64, endpoint=False)

    def __call__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """What stands at `places`, each from 0 to size − 1."""
        found = self._permuted(places.astype(np.uint64))
        while (is_outside := found >= self.size).any():
            found[is_outside] = self._permuted(found[is_outside])
        return found.astype(np.int64)

    def _permuted(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        one = np.uint64(1)
        low, high = numbers & ((one << self._low_bits) - one), numbers >> self._low_bits
        low_bits, high_bits = self._low_bits, self._high_bits
        for key in self._round_keys:
            low, high = high, low ^ (_mixed(high ^ key) >> (np.uint64(64) - low_bits))
            low_bits, high_bits = high_bits, low_bits
        return (high << low_bits) | low


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers of which every bit depends on every bit of those given (the finisher of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
