"""What all tests share: the network guard, the real data, the command line started as a user starts it."""

from __future__ import annotations

import lzma
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

GUARD = Path(__file__).parent / "network_guard"
sys.path.insert(0, str(GUARD))
sys.modules.pop("sitecustomize", None)
import sitecustomize  # noqa: E402 (the guard, now in this process)

os.environ["PYTHONPATH"] = str(GUARD)  # and in every child
os.environ["HF_HUB_OFFLINE"] = "1"
# A shell's background jobs ignore Ctrl-C, and so would every child that a test sends it to.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")

pytest_plugins = ["tests.finetuned"]

RunCommand = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    yield
    attempts, sitecustomize.ATTEMPTS[:] = list(sitecustomize.ATTEMPTS), []
    assert not attempts


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data; tests that need it are skipped, visibly, where it is absent."""
    folder = Path(os.environ.get("BERTMILL_DATA", Path(__file__).parent.parent.parent / "shared/data"))
    if not folder.is_dir():
        pytest.skip(f"real data is not at {folder} (set BERTMILL_DATA)")
    return folder


@pytest.fixture(scope="session")
def compiler() -> None:
    """Tests of `--compile` are skipped where there is no C++ compiler, or no headers of Python."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if shutil.which(os.environ.get("CXX", "g++")) is None or not headers.exists():
        pytest.skip("torch.compile needs a C++ compiler and the headers of Python")


@pytest.fixture(scope="session")
def bf16() -> None:
    """Tests that compute in bfloat16 are skipped where that would end them all."""
    import torch

    from bertmill.machine import bf16_speedup

    if bf16_speedup(torch.device("cpu")) is None:
        pytest.skip("this machine does not survive products of bfloat16")


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.compile finds no C++ compiler, and nothing that was compiled before."""
    from torch import _dynamo, _inductor

    _dynamo.reset()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "nothing compiled yet"))
    with _inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        yield


@pytest.fixture(scope="session")
def read_lines(data: Path) -> Callable[[str, int], list[str]]:
    """The non-empty lines of the first so many bytes of a text file under the data folder."""

    def read(name: str, num_bytes: int = -1) -> list[str]:
        path = data / name
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            text = file.read(num_bytes).decode(errors="ignore")
        return [line for line in text.split("\n") if line]

    return read


@pytest.fixture
def bertmill(tmp_path: Path) -> RunCommand:
    """Run the installed program in an empty folder; returns exit code, stdout and stderr."""

    def run(*words: str | Path, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("bertmill")
        content = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [program, *map(str, words)], cwd=tmp_path, input=content, capture_output=True, timeout=120
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
