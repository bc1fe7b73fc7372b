"""The report as one HTML file: a page frame, a style sheet, a script, and the data of the runs as JSON.

The script inserts user texts as text nodes, so they are never parsed as HTML. A content security policy forbids the
page to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from bertmill.config.reading import RUN_FILE
from bertmill.report.run_data import clipped, read_run_data
from bertmill.storage import write_file
from bertmill.training.state import RunFolder
from bertmill.version import __version__


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write the report of one run, or of several side by side, to the file `out`."""
    data = {"version": __version__, "runs": clipped_runs(runs)}
    write_file(out, render(data))


def write_run_report(run: Path) -> None:
    """Write RUN/report.html: the report of the run or, if it has trials, of all its trials."""
    folder = RunFolder(run)
    trials = sorted(path for path in folder.trials.glob("*") if (path / RUN_FILE).is_file())
    write_report(trials or [run], folder.report)


def clipped_runs(runs: Sequence[Path]) -> list[object]:
    """The data of each run, with long texts clipped; attention is left as it is, since it is already compressed."""
    content = []
    for path in runs:
        run = read_run_data(path)
        attention = run["evaluation"].pop("attention", [])
        run = clipped(run)
        run["evaluation"]["attention"] = attention
        content.append(run)
    return content


def render(data: object) -> str:
    """The HTML page that shows this data."""
    assets = files("bertmill.report") / "assets"
    frame, style, script = (
        (assets / name).read_text(encoding="utf-8") for name in ("report.html", "report.css", "report.js")
    )
    # Only `<` can end a script element; ASCII escapes cover the line separators U+2028 and U+2029.
    content = json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    page = frame.replace("/*STYLE*/", style, 1).replace("/*SCRIPT*/", script, 1)
    return page.replace("/*DATA*/", content, 1)
