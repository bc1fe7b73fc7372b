"""Training batches: which instances each step and rank gets, prepared in advance.

The epochs, each in its own keyed order, form one endless sequence of instances. Step s takes `batch_size` instances
starting at s · batch_size, across the end of an epoch if necessary. A rank takes its part of them, starting at
batch_size · rank / world_size.

A step is computed from its number alone, so any step can be the first, and threads can prepare the next steps in any
order. Threads are sufficient: preparing a batch takes about a hundredth of the time of a step of the smallest model,
most of it in numpy.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from itertools import count

from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.errors import UsageError

STEPS_AHEAD = 2  # per worker


def require_share_for_each(batch_size: int, world_size: int) -> None:
    """Raise UsageError if a rank would get an empty batch: it would skip the sums that the other ranks wait for."""
    if batch_size < world_size:
        raise UsageError(f"batch_size {batch_size} is smaller than the number of ranks ({world_size})")


@dataclass
class Loader:
    """The batches of one rank."""

    instances: Instances
    _: KW_ONLY
    batch_size: int  # of all ranks together
    rank: int = 0
    world_size: int = 1
    workers: int = 1  # threads; 0: prepare batches only when they are requested

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank must be from 0 to {self.world_size - 1}, not {self.rank}")
        require_share_for_each(self.batch_size, self.world_size)
        if self.workers < 0:
            raise UsageError(f"workers must be 0 or more, not {self.workers}")
        self._epoch_starts = [0]  # in the endless sequence; the last entry is the end of the last known epoch
        self._counting = threading.Lock()

    def batches(self, start_step: int = 0) -> Iterator[InstanceBatch]:
        """Yield this rank's batches from `start_step` on, without end."""
        steps = count(start_step)
        if not self.workers:
            yield from map(self.load, steps)
        pool = ThreadPoolExecutor(self.workers, "bertmill-loader")
        coming: deque[Future[InstanceBatch]] = deque()
        try:
            while True:
                while len(coming) < STEPS_AHEAD * self.workers:
                    coming.append(pool.submit(self.load, next(steps)))
                yield coming.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def load(self, step: int) -> InstanceBatch:
        """Return this rank's batch of a step. Plans the epochs up to that step if necessary."""
        start = step * self.batch_size + self.batch_size * self.rank // self.world_size
        stop = step * self.batch_size + self.batch_size * (self.rank + 1) // self.world_size
        parts = []
        while start < stop:
            epoch, epoch_start, epoch_stop = self._plan_epoch_around(start)
            part_stop = min(stop, epoch_stop)
            parts.append(self.instances.make_in_order(epoch, start - epoch_start, part_stop - epoch_start))
            start = part_stop
        return parts[0] if len(parts) == 1 else InstanceBatch.joined(parts)

    @property
    def steps_per_epoch(self) -> float:
        """Number of steps in the first epoch, which must have been planned. Other epochs hardly differ."""
        return self.instances.count(0) / self.batch_size

    def _plan_epoch_around(self, place: int) -> tuple[int, int, int]:
        """Return the epoch of the instance at index `place` of the endless sequence, and its start and stop."""
        with self._counting:
            while self._epoch_starts[-1] <= place:
                epoch = len(self._epoch_starts) - 1
                num_instances = self.instances.plan_epoch(epoch).num_instances
                self._epoch_starts.append(self._epoch_starts[-1] + num_instances)
        epoch = bisect_right(self._epoch_starts, place) - 1
        return epoch, self._epoch_starts[epoch], self._epoch_starts[epoch + 1]
