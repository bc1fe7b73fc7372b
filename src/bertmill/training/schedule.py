"""How far a training is, and the learning rate there: up in a straight line, then down to zero in another.

A training lasts a number of steps or a number of seconds. Warm-up takes a share of it (6 % unless said otherwise), and
at most 10,000 steps where steps are what is counted. By the clock, the rate is zero when the time is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WARMUP_SHARE = 0.06
MAX_WARMUP_STEPS = 10_000


@dataclass(frozen=True)
class Schedule:
    """The training lasts for `steps` or for `seconds`, whichever is finite; the first step is at `start_seconds`."""

    peak_rate: float
    steps: float = math.inf
    seconds: float = math.inf
    warmup_share: float = WARMUP_SHARE
    start_seconds: float = 0.0

    def progress(self, step: int, seconds: float) -> float:
        """0 at the first step, 1 at the end, after `step` steps and `seconds` in all."""
        span = max(1e-9, self.seconds - self.start_seconds)  # all of the time may be over before the first step
        return min(1.0, max(step / self.steps, (seconds - self.start_seconds) / span))

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate of the step that follows `step` steps."""
        if math.isfinite(self.steps):
            warmup = max(1, min(MAX_WARMUP_STEPS, round(self.warmup_share * self.steps)))
            up = (step + 1) / warmup  # the first step is not one of rate zero
            down = (self.steps - step) / max(1, self.steps - warmup)
        else:
            progress = self.progress(step, seconds)
            up, down = progress / self.warmup_share, (1 - progress) / (1 - self.warmup_share)
        return self.peak_rate * min(1.0, up, down)

    def is_over(self, step: int, seconds: float, seconds_of_step: float = 0.0) -> bool:
        """Whether there is no room for another step; by the clock, one that would end too late does not begin."""
        return step >= self.steps or seconds + seconds_of_step > self.seconds


def steps_of_epochs(epochs: float, steps_per_epoch: Sequence[float], shares: Sequence[float]) -> int:
    """The steps after which all phases together have gone `epochs` times through the corpus."""
    epochs_per_step = sum(share / steps for share, steps in zip(shares, steps_per_epoch, strict=True))
    return max(1, math.ceil(round(epochs / epochs_per_step, 6)))
