"""Several processes that train one model: the rank of this process, and sums over all ranks.

`torchrun` starts the processes and sets environment variables; without it, there is one process. Every rank computes
its part of the global batch and divides losses by the *global* counts; the gradients are then summed. torch's
DistributedDataParallel would average them, which is wrong here: ranks may have different numbers of selected pieces
and of micro-batches.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.parallel.pool import cut_into_units

_BUCKET_ELEMENTS = 1 << 22
_TIMEOUT = timedelta(minutes=30)  # how long ranks wait while one works alone, for example on a checkpoint


@dataclass(frozen=True)
class Ranks:
    """This process among all ranks. With a single process, sums and maxima return their input."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the only one that writes files."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum of each of `values` over all ranks."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: Sequence[float]) -> list[float]:
        """The maximum of each of `values` over all ranks."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        if self.count == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, operation)
        return numbers.tolist()

    def add_gradients(self, model: nn.Module) -> None:
        """Replace every gradient with its sum over all ranks."""
        if self.count == 1:
            return
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        # A few million numbers at once: fewer messages than parameters, without a copy of all gradients.
        for bucket in cut_into_units(trained, _BUCKET_ELEMENTS, torch.numel):
            gradients = [_gradient(parameter) for parameter in bucket]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def share_weights(self, model: nn.Module) -> None:
        """Copy the weights of the first rank's model to all ranks."""
        if self.count > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    def wait(self) -> None:
        """Wait until all ranks have called this method."""
        if self.count > 1:
            dist.barrier()


def is_one_of_several() -> bool:
    """Whether `torchrun` started this process as one of several."""
    return _num_processes() > 1


def _num_processes() -> int:
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal():
        raise UsageError(f"the environment variable WORLD_SIZE is {given!r}, not a number", remedy="unset it")
    return int(given)


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """Connect the ranks that `torchrun` started while the block runs; without torchrun, this process alone."""
    count = _num_processes()
    if count == 1:
        yield Ranks(device)
        return
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    except ValueError:
        what = f"the environment variable WORLD_SIZE is {count}, but other variables of torchrun are missing"
        raise UsageError(what, remedy="start with torchrun, or unset WORLD_SIZE") from None
    try:
        yield Ranks(device, dist.get_rank(), count)
    finally:
        dist.destroy_process_group()


def _gradient(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter; zeros on a rank without data."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
