"""What the machine offers: cores, threads, device, memory and usable precisions."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

from bertmill.errors import ResourceError, UsageError

if TYPE_CHECKING:
    import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
RATE_SIZES = (256, 512, 1024, 2048, 2048, 2048)
_RATE_PATIENCE_S = 0.5  # for a product that is expected to take as long; some CPUs are very slow in half precision
_PROBE_SIZE = 512  # some CPUs need seconds for twice that in half precision
_PROBE_ROUNDS = 3


def available_cores() -> int:
    """Cores this process may be scheduled on, which can be fewer than the machine has; quotas of time are not seen."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(num_threads: int | None) -> int:
    """Let torch compute with `num_threads` (default: this rank's share of the cores); return the number."""
    import torch

    threads = num_threads or max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    torch.set_num_threads(threads)
    return threads


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors for the next ones, instead of handing it back.

    A training step frees and allocates the same hundreds of megabytes each time, and every page that was handed back
    costs a fault when it is touched again: 4 to 6 % of a step's CPU time was the system's. Only glibc can be
    told; elsewhere nothing happens. Blocks of more than 32 MB are handed back all the same.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # glibc takes no more
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def give_back_freed_memory() -> None:
    """Let the C library hand back what is free now. Small things that stay keep it from doing so by itself.

    A stream of 60,000 rows left 130 MB of free memory behind, in pieces between words that the tokenizer remembers;
    700 steps of question answering, no two of one size, 5 GB.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(0)


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` is a GPU where there is one. Each rank of `torchrun` has its own GPU."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("it is of a kind that is not known here")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition("Expected one of")[0] or "there is no such device"
        raise UsageError(f"--device {name} cannot be used: {reason}", remedy="use cpu, cuda or auto") from None
    return device


@cache
def bf16_speedup(device: torch.device) -> float | None:
    """How many times faster products of bfloat16 are here than of float32: on many CPUs, many times slower.

    None where nobody survives them. Some virtual machines announce instructions (AMX) that they do not run, and who
    uses one is killed; so a CPU is tried in a process of its own. Once: all trainings of a program decide alike.
    """
    import torch

    if device.type != "cpu":
        return measured_bf16_speedup(device)
    program = f"import torch; from bertmill import machine; torch.set_num_threads({torch.get_num_threads()}); "
    program += "print(machine.measured_bf16_speedup(torch.device('cpu')))"
    tried = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if tried.returncode < 0:  # by a signal
        return None
    if tried.returncode > 0:
        reason = (tried.stderr.strip() or "it gave no reason").splitlines()[-1]
        raise ResourceError(f"bfloat16 could not be tried: {reason}", remedy="use --precision fp32")
    return float(tried.stdout.split()[-1])


def measured_bf16_speedup(device: torch.device) -> float:
    """The same, tried in this process."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        return min(matrix_product_seconds(_PROBE_SIZE, dtype, device) for _ in range(_PROBE_ROUNDS))

    return seconds(torch.float32) / seconds(torch.bfloat16)


def matrix_product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product: what no training of one process exceeds."""
    matrix_product_seconds(RATE_SIZES[0], dtype, device)  # the first of all wakes libraries and threads up
    best = seconds = 0.0
    before = RATE_SIZES[0]
    for size in RATE_SIZES:
        if seconds * (size / before) ** 3 > _RATE_PATIENCE_S:
            break
        before, seconds = size, matrix_product_seconds(size, dtype, device)
        best = max(best, 2 * size**3 / seconds)
    return best


def matrix_product_seconds(size: int, dtype: torch.dtype, device: torch.device) -> float:
    import torch

    matrix = torch.ones(size, size, dtype=dtype, device=device)
    started = time.perf_counter()
    float((matrix @ matrix)[0, 0])  # reading a number waits for a GPU
    return time.perf_counter() - started
