"""Shared by all tests: the network guard, the real data, and fixtures that run the program."""

from __future__ import annotations

import lzma
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

GUARD = Path(__file__).parent / "network_guard"
sys.path.insert(0, str(GUARD))
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402 (activates the guard in this process)

# Activates it in child processes, which use the same source as this process.
_paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
os.environ["PYTHONPATH"] = os.pathsep.join([str(GUARD), *map(os.path.abspath, _paths)])
os.environ["HF_HUB_OFFLINE"] = "1"
# Background jobs of a shell ignore SIGINT. Child processes would inherit this, and tests send them SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)

from tests import program  # noqa: E402 (imported under the guard)

# Each pytest-xdist worker and its children get their own cores, because threads of two processes on one core wait for
# each other.
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    index, count = int(os.environ["PYTEST_XDIST_WORKER"][2:]), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[index % len(cores) :: count])

hypothesis.settings.register_profile("bertmill", deadline=None, derandomize=True)
hypothesis.settings.load_profile("bertmill")

pytest_plugins = ["tests.finetuned", "tests.hub"]

RunCommand = Callable[..., program.Result]


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Fail tests that try to connect to another host."""
    yield
    attempts, sitecustomize.ATTEMPTS[:] = list(sitecustomize.ATTEMPTS), []
    assert not attempts


@pytest.fixture(scope="session", autouse=True)
def _small_matrix_products() -> Iterator[None]:
    """Use small matrices to measure the peak rate at the start of a pre-training run; large ones take half a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertmill.machine.RATE_SIZES", (256,))
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data, from BERTMILL_DATA. Skips the test if the variable or the folder is missing."""
    name = os.environ.get("BERTMILL_DATA")
    if not name:
        pytest.skip("needs real data: BERTMILL_DATA is not set")
    if not Path(name).is_dir():
        pytest.skip(f"needs real data: BERTMILL_DATA is {name}, which is not a folder")
    return Path(name).resolve()


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skips the test if there is no C++ compiler or no Python headers, which `--compile` needs."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(os.environ.get("CXX", "g++")) is None or not headers.exists():
        pytest.skip("torch.compile needs a C++ compiler and the Python headers")


@pytest.fixture(scope="session")
def bf16() -> None:
    """Skips the test on machines where computing in bfloat16 crashes the process."""
    import torch

    from bertmill.machine import bf16_speedup

    if bf16_speedup(torch.device("cpu")) is None:
        pytest.skip("bfloat16 matrix products crash on this machine")


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile finds no C++ compiler and no cached code."""
    from torch import _dynamo, _inductor

    _dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "nothing compiled yet"))
    with _inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        yield


@pytest.fixture(scope="session")
def read_lines(data: Path) -> Callable[[str, int], list[str]]:
    """Returns the non-empty lines in the first `num_bytes` bytes of a text file in the data folder."""

    def read(name: str, num_bytes: int = -1) -> list[str]:
        path = data / name
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            text = file.read(num_bytes).decode(errors="ignore")
        return [line for line in text.split("\n") if line]

    return read


@pytest.fixture
def bertmill(tmp_path: Path) -> RunCommand:
    """Runs the program in this process, in an empty folder. Returns exit code, stdout and stderr."""

    def run(*words: str | Path, stdin: str | bytes = "") -> program.Result:
        return program.run_here(list(map(str, words)), tmp_path, _encoded(stdin))

    return run


@pytest.fixture
def bertmill_process(tmp_path: Path) -> RunCommand:
    """Runs the installed program in its own process, in an empty folder. Returns exit code, stdout and stderr."""

    def run(*words: str | Path, stdin: str | bytes = "") -> program.Result:
        return program.run_process(list(map(str, words)), tmp_path, _encoded(stdin))

    return run


def _encoded(stdin: str | bytes) -> bytes:
    return stdin.encode() if isinstance(stdin, str) else stdin
