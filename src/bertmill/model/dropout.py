"""Dropout that is fast on a CPU, unbiased, and repeatable inside a training loop.

`F.dropout` calls torch's serial generator once per element. Here, one draw of 64 bits gives four 16-bit numbers, one
for each of four elements. The `p · 65536` lowest of all 16-bit numbers drop their element; other elements are scaled by
1 / (1 - p) for exactly this rounded p. Arithmetic alone turns numbers into factors, because torch's loops over booleans
are slow.

Outside `keyed_dropout`, the bits come from torch's global generator. Inside, they come from a generator with the key
(seed, step, rank, micro-batch, layer, purpose), so a resumed or repeated step drops the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertmill.randomness import keyed_seed

_LEVELS = 1 << 16
_LOWEST = -(1 << 63)  # the lowest 64-bit integer; draws cover the whole range
_HALF = 0.5

# Seed, step, rank, micro-batch.
_current_key: ContextVar[tuple[int, int, int, int] | None] = ContextVar("dropout_key", default=None)


@contextmanager
def keyed_dropout(seed: int, step: int, rank: int = 0, micro_batch: int = 0) -> Iterator[None]:
    """Make dropout inside this block depend only on these numbers (and on layer and purpose).

    Run one forward pass per block: a second one drops the same elements again.
    """
    token = _current_key.set((seed, step, rank, micro_batch))
    try:
        yield
    finally:
        _current_key.reset(token)


class Dropout(nn.Dropout):
    """Drops elements with probability `p` in training mode. `layer` and `purpose` identify this dropout in the key."""

    def __init__(self, p: float, layer: int, purpose: str) -> None:
        super().__init__(p)
        self.layer = layer
        self.purpose = purpose

    @property
    def active(self) -> bool:
        """Whether elements are dropped."""
        return self.training and self._threshold > 0

    @property
    def scale(self) -> float:
        """Factor of the kept elements, which preserves the expected value."""
        return _LEVELS / (_LEVELS - self._threshold)

    @property
    def shift(self) -> float:
        """Number to add to drawn numbers so that the result is positive if the element is kept."""
        return _LEVELS // 2 - self._threshold + _HALF

    def draw(self, shape: tuple[int, ...], device: torch.device, salt: int = 0) -> Tensor:
        """Draw one random 16-bit number per element. `salt` distinguishes several draws in one forward pass."""
        count = math.prod(shape)
        key = _current_key.get()
        seed = None if key is None else keyed_seed(*key, self.layer, self.purpose, salt)
        words = _random_words(max(1, (count + 3) // 4), device, seed)
        return words.view(torch.int16)[:count].view(shape)

    def forward(self, states: Tensor, salt: int = 0) -> Tensor:
        if not self.active:
            return states
        numbers = self.draw(tuple(states.shape), states.device, salt)
        dropped: Tensor = _Drop.apply(states, numbers, self.shift, self.scale)  # type: ignore[no-untyped-call]
        return dropped

    @property
    def _threshold(self) -> int:
        # With p = 1, `scale` would divide by zero (BertConfig rejects it).
        return min(round(self.p * _LEVELS), _LEVELS - 1)


@cache
def draw_outside_compiled_code() -> None:
    """Exclude `draw` from torch.compile, because it depends on the step, which must not become part of the code.

    A decorator would import torch's compiler in every process, which takes two seconds.
    """
    Dropout.draw = torch.compiler.disable(Dropout.draw)  # type: ignore[method-assign]


def _random_words(count: int, device: torch.device, seed: int | None) -> Tensor:
    """Draw `count` random 64-bit numbers from `seed`, or from torch's global generator if it is None."""
    if device.type == "cpu":
        # numpy's SFC64 is twice as fast as torch's generator, which provides only the seed here.
        seed = int(torch.empty((), dtype=torch.int64).random_()) if seed is None else seed
        return torch.from_numpy(np.random.SFC64(seed).random_raw(count).view(np.int64))
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    return torch.empty(count, dtype=torch.int64, device=device).random_(_LOWEST, None, generator=generator)


def shifted(numbers: Tensor, shift: float, dtype: torch.dtype) -> Tensor:
    """Convert drawn numbers: ½ or more where an element is kept, -½ or less where it is dropped."""
    return numbers.to(torch.float32).add_(shift).to(dtype)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, numbers: Tensor, shift: float, scale: float) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.shift, ctx.scale = shift, scale
        return _drop(states, numbers, shift, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (numbers,) = ctx.saved_tensors
        return _drop(gradients[0], numbers, ctx.shift, ctx.scale), None, None, None


def _drop(states: Tensor, numbers: Tensor, shift: float, scale: float) -> Tensor:
    """Return `states · scale` where an element is kept, else 0."""
    half_or_nothing = shifted(numbers, shift, states.dtype).clamp_(0, _HALF)
    return half_or_nothing.mul_(states).mul_(scale / _HALF)
