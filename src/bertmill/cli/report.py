"""`bertmill report`: writes the report of one or more runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

from bertmill.config.commands import ReportSettings
from bertmill.report.page import write_report
from bertmill.training.state import RunFolder


def run(settings: ReportSettings) -> None:
    """Write the report and print its path."""
    out = settings.out
    if out is None:
        out = RunFolder(settings.runs[0]).report if len(settings.runs) == 1 else Path("report.html")
    write_report(settings.runs, out)
    print(out)
