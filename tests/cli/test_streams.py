"""Notes on standard error never end the program."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from bertmill.cli.streams import is_pipe, say


def test_work_continues_if_standard_error_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(OSError, match="No space left"):
            print("one", file=full, flush=True)  # the stream is really full
        say("two")
        assert Path(f"/proc/self/fd/{full.fileno()}").resolve() == Path("/dev/null")  # later text is dropped
        say("three")


def test_a_pipe_is_told_from_a_file_and_from_a_stream_without_a_descriptor(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe, (tmp_path / "file").open("w") as file:
        assert is_pipe(pipe)
        assert not is_pipe(file)
    assert not is_pipe(io.StringIO())
