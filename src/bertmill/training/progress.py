"""What a training says while it runs: lines in log.jsonl, and the same to whoever listens (the command line).

A line is a JSON object with `step`. After a resume, lines beyond the checkpoint are cut off and written again, so that
the log of an interrupted training is that of an uninterrupted one but for its times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertmill.storage import write_file

Line = Mapping[str, Any]


class Journal:
    """Writes lines to the log and passes them on; `remark` is for people only."""

    def __init__(
        self,
        path: Path | None,
        on_line: Callable[[Line], None],
        on_step: Callable[[Line], None],
        on_remark: Callable[[str], None],
    ) -> None:
        """Without a path (the ranks after the first) nothing is written."""
        self._path = path
        self._on_line = on_line
        self.show_step = on_step
        self.remark = on_remark

    def cut(self, after_step: int) -> None:
        """Forget the lines after a step: they come again. A last line that a kill cut short is forgotten too."""
        if self._path is None or not self._path.exists():
            return
        kept = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] > after_step:
                    break
            except ValueError:
                break
            kept.append(line + "\n")
        write_file(self._path, "".join(kept))

    def write(self, line: Line) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        self._on_line(line)
