"""Dropout that is fast on CPU, unbiased, and inside a training loop a function of its place.

`F.dropout` asks torch's serial generator once per element. Here one draw of 64 bits decides four elements: read as
four 16-bit numbers, the lowest `p · 65536` of all such numbers drop their element, and the rest are scaled by the exact
1 / (1 - p) of that rounded p. Numbers become factors by arithmetic alone: for that torch has fast loops, and slow ones
for what reads booleans. Outside `keyed_dropout` the bits come from torch's global generator. Inside, from a generator
of (seed, step, rank, micro-batch, layer, purpose), so that a resumed or re-run step drops the same elements.
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
_LOWEST = -(1 << 63)  # the lowest of the 64-bit numbers, all of which may be drawn
_HALF = 0.5

# Seed, step, rank, micro-batch.
_current_key: ContextVar[tuple[int, int, int, int] | None] = ContextVar("dropout_key", default=None)


@contextmanager
def keyed_dropout(seed: int, step: int, rank: int = 0, micro_batch: int = 0) -> Iterator[None]:
    """Within this block, what a forward pass drops depends on these numbers alone (and on layer and purpose).

    One forward pass per key: a second one inside the same block drops the same elements again.
    """
    token = _current_key.set((seed, step, rank, micro_batch))
    try:
        yield
    finally:
        _current_key.reset(token)


class Dropout(nn.Dropout):
    """Drops elements with probability `p` while training; `layer` and `purpose` say which dropout this is."""

    def __init__(self, p: float, layer: int, purpose: str) -> None:
        super().__init__(p)
        self.layer = layer
        self.purpose = purpose

    @property
    def active(self) -> bool:
        return self.training and self._threshold > 0

    @property
    def scale(self) -> float:
        """What the kept elements are multiplied with, so that the expectation stays."""
        return _LEVELS / (_LEVELS - self._threshold)

    @property
    def shift(self) -> float:
        """What is added to drawn numbers so that their sign says whether an element is kept."""
        return _LEVELS // 2 - self._threshold + _HALF

    def draw(self, shape: tuple[int, ...], device: torch.device, salt: int = 0) -> Tensor:
        """Random numbers of 16 bits, one for each element. `salt` tells several draws of one pass apart."""
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
        # p = 1 would leave nothing to scale (BertConfig refuses it).
        return min(round(self.p * _LEVELS), _LEVELS - 1)


@cache
def draw_outside_compiled_code() -> None:
    """Keep torch.compile out of `draw`: what is dropped depends on the step, which must not become part of the code.

    No decorator, since that would import torch's compiler for everybody, which takes two seconds.
    """
    Dropout.draw = torch.compiler.disable(Dropout.draw)  # type: ignore[method-assign]


def _random_words(count: int, device: torch.device, seed: int | None) -> Tensor:
    """`count` numbers of 64 random bits: of `seed`, or of torch's global generator."""
    if device.type == "cpu":
        # numpy's SFC64 is twice as fast as torch's generator, from which only the seed comes here.
        seed = int(torch.empty((), dtype=torch.int64).random_()) if seed is None else seed
        return torch.from_numpy(np.random.SFC64(seed).random_raw(count).view(np.int64))
    generator = None if seed is None else torch.Generator(device).manual_seed(seed)
    return torch.empty(count, dtype=torch.int64, device=device).random_(_LOWEST, None, generator=generator)


def shifted(numbers: Tensor, shift: float, dtype: torch.dtype) -> Tensor:
    """Drawn numbers as ½ and more where an element is kept, as -½ and less where it is dropped."""
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
    """`states · scale` where an element is kept, else 0."""
    half_or_nothing = shifted(numbers, shift, states.dtype).clamp_(0, _HALF)
    return half_or_nothing.mul_(states).mul_(scale / _HALF)
