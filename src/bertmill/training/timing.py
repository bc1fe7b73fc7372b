"""How long training will take, estimated from one forward pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bertmill.inference.runner import stream_outputs
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.tasks.base import AnyTask, Example

TIMED_EXAMPLES = 32
ROUNDS = 2
STEP_FACTOR = 3.3  # time of a training step, in forward passes
SECONDS_PER_WEIGHT = 6e-10  # to update a weight


def seconds_per_step(
    model: BertPreTrainedModel, task: AnyTask, examples: Sequence[Example], batch_size: float
) -> float:
    """The expected time of a training step, measured on a sample of the examples."""
    sample = examples[:: max(1, len(examples) // TIMED_EXAMPLES)][:TIMED_EXAMPLES]
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        list(stream_outputs(task, model, sample, model.device))
        times.append(time.perf_counter() - begun)
    return STEP_FACTOR * min(times) / len(sample) * batch_size + SECONDS_PER_WEIGHT * model.num_parameters()


def shown_seconds(seconds: float) -> str:
    """A duration for display."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
