"""What a training says while it runs: lines in log.jsonl, and the same to whoever listens (the command line).

A line is a JSON object with `step`. After a resume, lines beyond the checkpoint are cut off and written again, so that
the log of an interrupted training is that of an uninterrupted one but for its times.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertmill.storage import append_to_file, write_file

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Beginning:
    """What is known when a training begins, to compare later figures with."""

    steps: float  # infinite if the training ends by the clock
    sums: Mapping[str, float]  # what a resumed training had counted for the next line of the log


class Listener:
    """Hears what a training says; this one does nothing."""

    def preparing(self, what: str, share: float) -> None:
        """`share` of some long work before the first step is done."""

    def begin(self, beginning: Beginning) -> None:
        """The first step is about to be taken."""

    def step(self, line: Line) -> None:
        """A step was taken; figures are those since the last line of the log."""

    def line(self, line: Line) -> None:
        """A line was written to the log."""

    def remark(self, text: str) -> None:
        """Something that a person should know."""


class Journal:
    """Writes lines to the log and tells the listener."""

    def __init__(self, path: Path | None, listener: Listener) -> None:
        """Without a path (the ranks after the first) nothing is written."""
        self._path = path
        self._listener = listener
        self._board: SummaryWriter | None = None
        self.preparing = listener.preparing
        self.begin = listener.begin
        self.step = listener.step
        self.remark = listener.remark

    def cut(self, after_step: int) -> None:
        """Forget the lines after a step: they come again. A last line that a kill cut short is forgotten too."""
        if self._board is not None:  # the next one forgets them there
            self._board.close()
            self._board = None
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
        if self._path is not None:
            append_to_file(self._path, json.dumps(line) + "\n")
            self._draw(self._path.parent / "tensorboard", line)
        self._listener.line(line)

    def _draw(self, folder: Path, line: Line) -> None:
        """The figures of a line for TensorBoard, where that is installed."""
        if importlib.util.find_spec("tensorboard") is None:
            return
        if self._board is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._board = SummaryWriter(str(folder), purge_step=line["step"])
        for name, value in line.items():
            if name != "step":
                self._board.add_scalar(name, value, line["step"])
        self._board.flush()
