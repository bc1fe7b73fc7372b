"""The report as one HTML file: a page frame, a style sheet, a script, and the data of the runs as JSON.

The script inserts user texts as text nodes, so they are never parsed as HTML. A content security policy
prevents the page from loading anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from bertmill.config.reading import RUN_FILE
from bertmill.report.run_data import MAX_POINTS, read_run_data
from bertmill.storage import write_file
from bertmill.training.clipping import clipped
from bertmill.training.state import RunFolder
from bertmill.version import __version__

# Totals over all runs of a page, which keep it below 5 MB:
MAX_ATTENTION_BYTES = 2_500_000
MAX_TOTAL_POINTS = 8000
MIN_POINTS = 100  # per run


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write the report of one run, or of several side by side, to the file `out`. The trials of a run count as runs."""
    expanded = [each for run in runs for each in _trials(run) or [run]]
    data = [_page_data(run, len(expanded)) for run in expanded]
    for run, name in zip(data, _distinct_names(expanded), strict=True):
        run["name"] = name
    write_file(out, render({"version": __version__, "runs": data}))


def write_run_report(run: Path) -> None:
    """Write RUN/report.html."""
    write_report([run], RunFolder(run).report)


def _trials(run: Path) -> list[Path]:
    found = (path for path in RunFolder(run).trials.glob("*") if (path / RUN_FILE).is_file())
    return sorted(found, key=lambda path: (len(path.name), path.name))  # seed-2 before seed-10


def _page_data(path: Path, num_runs: int) -> dict[str, Any]:
    """The data of a run, within its share of the page's limits."""
    run = read_run_data(path, max(MIN_POINTS, min(MAX_POINTS, MAX_TOTAL_POINTS // num_runs)))
    attention = run["evaluation"].pop("attention", [])
    data: dict[str, Any] = clipped(run)
    room = MAX_ATTENTION_BYTES // num_runs
    kept = []
    for text in attention:
        room -= sum(len(page["weights"]) for page in text["pages"])
        if room >= 0:
            kept.append(text)
    data["evaluation"]["attention"] = kept
    return data


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """The shortest suffixes that tell the paths apart."""
    parts = [path.resolve().parts for path in paths]
    names = ["/".join(each[-1:]) for each in parts]
    depth = 1
    while len(set(names)) < len(set(parts)):
        depth += 1
        names = ["/".join(each[-depth:]) for each in parts]
    return names


def render(data: object) -> str:
    """The HTML page that shows this data."""
    assets = files("bertmill.report") / "assets"
    frame, style, script = (
        (assets / name).read_text(encoding="utf-8") for name in ("report.html", "report.css", "report.js")
    )
    # Only `<` can end a script element; ASCII escapes cover the line separators U+2028 and U+2029.
    content = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    frame = frame.replace("SCRIPT-HASH", f"sha256-{digest}", 1)  # no other script can run
    page = frame.replace("/*STYLE*/", style, 1).replace("/*SCRIPT*/", script, 1)
    return page.replace("/*DATA*/", content, 1)
