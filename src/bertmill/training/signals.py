"""Stop signals: after SIGINT or SIGTERM, the run finishes the step, saves a checkpoint, and exits with 130 or 143."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self

from bertmill.errors import INTERRUPTED, TERMINATED

_EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class StopSignal:
    """Records the two signals while the `with` block runs; `exit_code` is 0 until one arrives."""

    exit_code = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._record) for number in _EXIT_CODES}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.exit_code = _EXIT_CODES[signal.Signals(number)]
