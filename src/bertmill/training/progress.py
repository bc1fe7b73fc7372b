"""Progress of a training run: lines in log.jsonl, and calls to a listener such as the command line.

A line is a JSON object with `step`. A resumed run removes the lines after its checkpoint and writes them again,
so the log of an interrupted run matches that of an uninterrupted one, except for times.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertmill.errors import BertmillError
from bertmill.storage import append_to_file, write_file

if TYPE_CHECKING:
    from bertmill.training.tensorboard import EventFile

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Beginning:
    """What a listener receives before the first step."""

    steps: float  # infinite for a time budget
    sums: Mapping[str, float]  # since the last log line, before the run was interrupted


class Listener:
    """Receives the progress of a training run; this base class ignores it."""

    def preparing(self, what: str, share: float) -> None:
        """Called during long work before the first step; the fraction `share` of it is done."""

    def begin(self, beginning: Beginning) -> None:
        """Called before the first step."""

    def step(self, line: Line) -> None:
        """Called after each step; metrics cover the steps since the last log line."""

    def line(self, line: Line) -> None:
        """Called after a line is written to the log."""

    def remark(self, text: str) -> None:
        """Called with a message for the user."""

    def warning(self, text: str) -> None:
        """Called with a message that the user must not miss."""


class Journal:
    """Writes the log and passes everything on to a listener."""

    def __init__(self, path: Path | None, listener: Listener) -> None:
        """Write to `path`; None, as on all ranks after the first, writes nothing."""
        self._path = path
        self.listener = listener
        self._draws = path is not None and importlib.util.find_spec("tensorboard") is not None
        self._events: EventFile | None = None
        self.preparing = listener.preparing
        self.begin = listener.begin
        self.step = listener.step
        self.remark = listener.remark
        self.warning = listener.warning

    def cut(self, after_step: int) -> None:
        """Remove the lines after a step, which are written again, and everything from a damaged line on."""
        self._events = None  # the next file of events replaces them
        if self._path is None or not self._path.exists():
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                if json.loads(line)["step"] > after_step:
                    break
            except (ValueError, TypeError, KeyError):
                break
            kept.append(line + "\n")
        write_file(self._path, "".join(kept))

    def write(self, line: Line) -> None:
        """Append a line to the log, and to TensorBoard if it is installed."""
        if self._path is not None:
            append_to_file(self._path, json.dumps(line) + "\n")
            if self._draws:
                self._draw(self._path.parent / "tensorboard", line)
        self.listener.line(line)

    def _draw(self, folder: Path, line: Line) -> None:
        """Write the metrics of a line for TensorBoard. After an error, training continues without it."""
        from bertmill.training.tensorboard import EventFile

        try:
            if self._events is None:
                self._events = EventFile(folder, line["step"])
            self._events.write(line["step"], {name: value for name, value in line.items() if name != "step"})
        except BertmillError as error:
            self._draws = False
            self.remark(f"{error.where}: {error.what}; TensorBoard logging is disabled")
