"""Several processes that train one model: who I am, and sums over all of us.

`torchrun` starts the processes and says so in the environment; without it there is one. Every rank works on its
part of the global batch, divides by the *global* counts, and gradients are then simply added up. This is what
torch's DistributedDataParallel does, but for its averaging, which would be wrong here: ranks may have different
numbers of selected pieces and of micro-batches.
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
_TIMEOUT = timedelta(minutes=30)  # the longest that one rank may do something alone, as saving, while the others wait


@dataclass(frozen=True)
class Ranks:
    """This process and its fellows. With one process every sum is what it was."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks of each of `values`."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def largest(self, values: Sequence[float]) -> list[float]:
        """The largest over all ranks of each of `values`."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        if self.count == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(numbers, operation)
        return numbers.tolist()

    def add_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by its sum over all ranks."""
        if self.count == 1:
            return
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        # A few million numbers at once: fewer messages than parameters, and no second copy of all.
        for bucket in cut_into_units(trained, _BUCKET_ELEMENTS, torch.numel):
            gradients = [_gradient(parameter) for parameter in bucket]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def share_weights(self, model: nn.Module) -> None:
        """Give the model of every rank the weights of the first."""
        if self.count > 1:
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        if self.count > 1:
            dist.barrier()


def is_one_of_several() -> bool:
    """Whether `torchrun` started this process with others."""
    return _num_processes() > 1


def _num_processes() -> int:
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal():
        raise UsageError(f"WORLD_SIZE is {given!r} in the environment, which is no number", remedy="unset it")
    return int(given)


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """The ranks that `torchrun` started, connected while the block runs; or this process alone."""
    count = _num_processes()
    if count == 1:
        yield Ranks(device)
        return
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=_TIMEOUT)
    except ValueError:
        what = f"WORLD_SIZE is {count} in the environment, and what else torchrun says is not there"
        raise UsageError(what, remedy="start with torchrun, or unset it") from None
    try:
        yield Ranks(device, dist.get_rank(), count)
    finally:
        dist.destroy_process_group()


def _gradient(parameter: nn.Parameter) -> Tensor:
    """A rank without data has no gradients yet, and adds nothing."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
