"""Threads, devices, memory and precisions of the machine."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertmill.errors import ResourceError, UsageError
from bertmill.machine import available_cores, bf16_speedup, choose_device, set_threads


def test_threads_default_to_the_available_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        assert set_threads(1) == torch.get_num_threads() == 1
        assert set_threads(None) == torch.get_num_threads() == available_cores()
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")  # ranks on this machine share its cores
        assert set_threads(None) == 1
    finally:
        torch.set_num_threads(before)


def test_an_unavailable_device_is_a_usage_error() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda")
    with pytest.raises(UsageError, match="nonsense"):
        choose_device("nonsense")


@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
@pytest.mark.parametrize(("version", "reason"), [(None, "PyTorch is installed without CUDA"), ("12.8", "there is no")])
def test_cuda_is_not_recommended_without_cuda(
    name: str, version: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    with pytest.raises(UsageError, match=f"^device {name} cannot be used: {reason}.*; use cpu or auto$"):
        choose_device(name)
    with pytest.raises(UsageError, match=r"; use cpu or auto$"):
        choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match=r"; use cpu, cuda or auto$"):
        choose_device("gpu")


def test_bf16_is_tested_in_a_separate_process_which_may_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    speedup = bf16_speedup(torch.device("cpu"))
    assert speedup is None or speedup > 0
    deadly = tmp_path / "python"
    deadly.write_text("#!/bin/sh\nkill -ILL $$\n")
    deadly.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(deadly))
    assert bf16_speedup(torch.device("cpu")) == speedup  # cached
    bf16_speedup.cache_clear()
    assert bf16_speedup(torch.device("cpu")) is None
    bf16_speedup.cache_clear()
    deadly.write_text("#!/bin/sh\necho torch is missing >&2; exit 1\n")
    with pytest.raises(ResourceError, match="the test of bfloat16 failed: torch is missing"):
        bf16_speedup(torch.device("cpu"))


COUNT_FAULTS = """
import ctypes, resource, sys, torch
from bertmill.machine import keep_freed_memory
for setting in (-1, -3):  # the initial value; glibc changes it at run time, not always in the same way
    ctypes.CDLL(None).mallopt(setting, 128 << 10)
if sys.argv[1] == "keep":
    keep_freed_memory()
def step():
    tensors = [torch.ones(4 << 20) for _ in range(6)]  # 16 MB each
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_freed_memory_is_reused_without_page_faults() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", COUNT_FAULTS, how], capture_output=True, check=True).stdout)
        for how in ("keep", "hand back")
    }
    assert faults["keep"] < faults["hand back"] / 10


def test_freed_memory_between_small_live_objects_is_returned() -> None:
    program = """
from pathlib import Path
from bertmill.machine import give_back_freed_memory
def resident_megabytes():
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
small, large = [], []
for _ in range(2000):
    large.append(bytes(100_000))
    small.append(bytes(1000))
del large
before = resident_megabytes()
give_back_freed_memory()
print(before - resident_megabytes())
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert float(done.stdout) > 100
