"""The machine's cores, threads, device, memory and usable precisions."""

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

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h
RATE_SIZES = (256, 512, 1024, 2048, 2048, 2048)
_RATE_PATIENCE_S = 0.5  # skip products that should take longer; some CPUs are very slow in half precision
_PROBE_SIZE = 512  # some CPUs need seconds for twice this size in half precision
_PROBE_ROUNDS = 3


def available_cores() -> int:
    """The cores this process may run on, which can be fewer than the machine has; CPU time quotas are ignored."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(num_threads: int | None) -> int:
    """Set the number of torch threads (default: this rank's share of the cores) and return it."""
    import torch

    threads = num_threads or max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    torch.set_num_threads(threads)
    return threads


def keep_freed_memory() -> None:
    """Make the C library keep the memory of freed tensors for new ones, instead of returning it to the system.

    Each training step frees and allocates the same hundreds of megabytes, and every page that was returned costs a page
    fault when it is used again: 4 to 6% of a step's CPU time. Only glibc supports this; elsewhere this function does
    nothing. Blocks of more than 32 MB are always returned.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the maximum of glibc
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def give_back_freed_memory() -> None:
    """Make the C library return free memory to the system, including gaps between objects that are still in use.

    Without this, a stream of 60,000 rows left 130 MB of free memory between the words in the tokenizer's cache, and 700
    steps of question answering, all of different sizes, left 5 GB.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(0)


def choose_device(name: str = "auto") -> torch.device:
    """The device `name`; `auto` is a GPU if there is one. Each `torchrun` rank gets its own GPU."""
    import torch

    has_cuda = torch.cuda.is_available()
    if name == "auto":
        name = "cuda" if has_cuda else "cpu"
    try:
        if name.startswith("cuda") and not has_cuda:
            is_built = torch.version.cuda is not None
            raise RuntimeError("there is no CUDA device" if is_built else "PyTorch is installed without CUDA")
        device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" else name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError("this type of device is not supported")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition("Expected one of")[0] or "no such device"
        remedy = "use cpu, cuda or auto" if has_cuda else "use cpu or auto"
        raise UsageError(f"device {name} cannot be used: {reason}", remedy=remedy) from None
    return device


@cache
def bf16_speedup(device: torch.device) -> float | None:
    """How many times faster matrix products in bfloat16 are than in float32; on many CPUs they are many times slower.

    None if they crash: some virtual machines advertise instructions (AMX) that they do not support, and a process that
    uses one is killed. A CPU is therefore tested in a separate process. The result is cached, so that all runs of a
    program make the same choice.
    """
    import torch

    if device.type != "cpu":
        return measured_bf16_speedup(device)
    program = f"import torch; from bertmill import machine; torch.set_num_threads({torch.get_num_threads()}); "
    program += "print(machine.measured_bf16_speedup(torch.device('cpu')))"
    tried = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if tried.returncode < 0:  # killed by a signal
        return None
    if tried.returncode > 0:
        reason = (tried.stderr.strip() or "no error message").splitlines()[-1]
        raise ResourceError(f"the test of bfloat16 failed: {reason}", remedy="set precision to fp32")
    return float(tried.stdout.split()[-1])


def measured_bf16_speedup(device: torch.device) -> float:
    """Measure `bf16_speedup` in this process."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        return min(matrix_product_seconds(_PROBE_SIZE, dtype, device) for _ in range(_PROBE_ROUNDS))

    return seconds(torch.float32) / seconds(torch.bfloat16)


def matrix_product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second of a large matrix product: an upper bound for training in one process."""
    matrix_product_seconds(RATE_SIZES[0], dtype, device)  # warms up libraries and threads
    best = seconds = 0.0
    before = RATE_SIZES[0]
    for size in RATE_SIZES:
        if seconds * (size / before) ** 3 > _RATE_PATIENCE_S:
            break
        before, seconds = size, matrix_product_seconds(size, dtype, device)
        best = max(best, 2 * size**3 / seconds)
    return best


def matrix_product_seconds(size: int, dtype: torch.dtype, device: torch.device) -> float:
    """The time of one product of two square matrices of this size."""
    import torch

    matrix = torch.ones(size, size, dtype=dtype, device=device)
    started = time.perf_counter()
    float((matrix @ matrix)[0, 0])  # reading a value waits for the GPU
    return time.perf_counter() - started
