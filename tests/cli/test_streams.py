"""Notes on standard error never end the program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bertmill.cli.streams import say


def test_work_continues_if_standard_error_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        with pytest.raises(OSError, match="No space left"):
            print("one", file=full, flush=True)  # the stream is really full
        say("two")
        assert Path(f"/proc/self/fd/{full.fileno()}").resolve() == Path("/dev/null")  # later text is dropped
        say("three")
