"""SIGINT and SIGTERM as a wish: the step is finished and saved, then the program ends with 130 or 143."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self

from bertmill.errors import INTERRUPTED, TERMINATED

_EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class StopWish:
    """While the block runs, the two signals are only noted; `exit_code` is 0 until one comes."""

    exit_code = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _EXIT_CODES}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.exit_code = _EXIT_CODES[signal.Signals(number)]
