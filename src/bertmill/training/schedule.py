"""Progress of a training run and its learning rate: linear warm-up, then linear decay to zero.

A run lasts a number of steps or a number of seconds. Warm-up takes a fraction of it (6% by default), and at most
10,000 steps if the duration is given in steps. With a time budget, the rate reaches zero when the time is up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WARMUP_SHARE = 0.06
MAX_WARMUP_STEPS = 10_000


@dataclass(frozen=True)
class Schedule:
    """A run of `steps` or `seconds`, whichever is finite; its first step starts at `start_seconds`."""

    peak_rate: float
    steps: float = math.inf
    seconds: float = math.inf
    warmup_share: float = WARMUP_SHARE
    start_seconds: float = 0.0

    def progress(self, step: int, seconds: float) -> float:
        """The progress after `step` steps and `seconds` in total: 0 before the first step, 1 at the end."""
        span = max(1e-9, self.seconds - self.start_seconds)  # the time may be up before the first step
        return min(1.0, max(step / self.steps, (seconds - self.start_seconds) / span))

    def rate(self, step: int, seconds: float) -> float:
        """The learning rate for the next step, after `step` completed steps."""
        if math.isfinite(self.steps):
            warmup = max(1, min(MAX_WARMUP_STEPS, round(self.warmup_share * self.steps)))
            up = (step + 1) / warmup  # the rate of the first step is not zero
            down = (self.steps - step) / max(1, self.steps - warmup)
        else:
            progress = self.progress(step, seconds)
            up, down = progress / self.warmup_share, (1 - progress) / (1 - self.warmup_share)
        return self.peak_rate * min(1.0, up, down)

    def is_over(self, step: int, seconds: float, seconds_of_step: float = 0.0) -> bool:
        """Whether the run is over; with a time budget, a step that would end too late does not start."""
        return step >= self.steps or seconds + seconds_of_step > self.seconds


def steps_of_epochs(epochs: float, steps_per_epoch: Sequence[float], fractions: Sequence[float]) -> int:
    """The number of steps in which all phases together make `epochs` passes over the data."""
    epochs_per_step = sum(fraction / steps for fraction, steps in zip(fractions, steps_per_epoch, strict=True))
    return max(1, math.ceil(round(epochs / epochs_per_step, 6)))
