"""Run `bertmill` from a test, in this process or as the installed program.

Both ways give the same result. A new process takes seconds to import torch, so tests use this process by default. Tests
of signals, pipes, closed streams and imports need a separate process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import IO
from unittest import mock

from bertmill.cli.main import main

Result = subprocess.CompletedProcess[str]

PROGRAM = Path(sys.executable).with_name("bertmill")
TIMEOUT_S = 120


def run_process(words: Sequence[str], folder: Path, stdin: bytes = b"") -> Result:
    """Run the installed program with the arguments `words` in the working directory `folder`."""
    done = subprocess.run([PROGRAM, *words], cwd=folder, input=stdin, capture_output=True, timeout=TIMEOUT_S)
    return Result(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_here(
    words: Sequence[str], folder: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Result:
    """Run the program with the arguments `words` in this process."""
    with mock.patch.object(sys, "argv", ["bertmill", *words]):
        return capture(lambda: main(words), folder, stdin, environment)


def capture(
    function: Callable[[], int | None], folder: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Result:
    """Call `function` like a program: it returns the exit code, its output is captured, and process state is restored.

    Unexpected errors, which would end a program with a traceback, are raised.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        with (
            _process_state(),
            chdir(folder),
            mock.patch.dict(os.environ, environment or {}),
            _standard_streams(given, output, errors),
        ):
            try:
                code = function()
            except SystemExit as exit_:
                code = exit_.code if isinstance(exit_.code, int | None) else 1
        return Result([], code or 0, _content(output), _content(errors))


@contextmanager
def _process_state() -> Iterator[None]:
    """Restore the signal handlers and the number of threads on exit."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    torch = sys.modules.get("torch")
    num_threads = torch.get_num_threads() if torch else None
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if torch:
            torch.set_num_threads(num_threads)


@contextmanager
def _standard_streams(*files: IO[bytes]) -> Iterator[None]:
    """Redirect stdin, stdout and stderr to `files`: both the file descriptors 0 to 2 and Python's streams."""
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        for number, file in enumerate(files):
            stack.callback(_restore, os.dup(number), number)
            os.dup2(file.fileno(), number)
        streams = {
            "stdin": open(0, encoding="utf-8", closefd=False),  # noqa: SIM115 (the stack closes it)
            "stdout": open(1, "w", encoding="utf-8", closefd=False),  # noqa: SIM115 (the stack closes it)
            "stderr": open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False),  # noqa: SIM115 (the stack closes it)
        }
        for name, stream in streams.items():
            stack.enter_context(stream)
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield


def _restore(saved: int, number: int) -> None:
    os.dup2(saved, number)
    os.close(saved)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
