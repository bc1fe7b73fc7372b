"""Batches for training: which instances come at which step, on which rank, prepared ahead.

Epoch after epoch, each in its own keyed order, the instances form one endless row. Step s takes the batch_size
instances from s · batch_size on, across the end of an epoch if need be; a rank takes its share of them, from
batch_size · rank / world_size on. Every step is computed from its number alone, so any step can be the first, and
threads can prepare the next ones in any order. Threads are enough: a batch takes about a hundredth of the time that
a step of the smallest model takes, and most of that in numpy.
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
    """A rank without a part of the batch would not take part in the sums that the others wait for."""
    if batch_size < world_size:
        raise UsageError(f"a batch of {batch_size} cannot be shared by {world_size} ranks")


@dataclass
class Loader:
    """The batches of one rank."""

    instances: Instances
    _: KW_ONLY
    batch_size: int  # of all ranks together
    rank: int = 0
    world_size: int = 1
    workers: int = 1  # threads; with 0, batches are prepared when they are requested

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank {self.rank} is not one of {self.world_size}")
        require_share_for_each(self.batch_size, self.world_size)
        if self.workers < 0:
            raise UsageError(f"workers must be 0 or more, not {self.workers}")
        self._epoch_starts = [0]  # in the endless row; one more is known than epochs were counted
        self._counting = threading.Lock()

    def batches(self, start_step: int = 0) -> Iterator[InstanceBatch]:
        """This rank's part of step `start_step` and of every step after it, without end."""
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
        """This rank's part of a step; epochs up to that step are planned if need be."""
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
        """Of the first epoch, which must have been planned; others hardly differ."""
        return self.instances.count(0) / self.batch_size

    def _plan_epoch_around(self, place: int) -> tuple[int, int, int]:
        """The epoch at a place of the endless row, and where it starts and stops."""
        with self._counting:
            while self._epoch_starts[-1] <= place:
                epoch = len(self._epoch_starts) - 1
                num_instances = self.instances.plan_epoch(epoch).num_instances
                self._epoch_starts.append(self._epoch_starts[-1] + num_instances)
        epoch = bisect_right(self._epoch_starts, place) - 1
        return epoch, self._epoch_starts[epoch], self._epoch_starts[epoch + 1]
