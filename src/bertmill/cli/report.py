"""`bertmill report`: writes the report of one or more runs as one HTML file."""

from __future__ import annotations

from pathlib import Path

from bertmill.cli.streams import say
from bertmill.config.commands import ReportSettings
from bertmill.errors import BertmillError, UsageError
from bertmill.report.page import write_report, write_run_report
from bertmill.text.printable import escaped
from bertmill.training.state import RunFolder


def run(settings: ReportSettings) -> None:
    """Write the report and print its path."""
    out = settings.out
    if out is None and len(settings.runs) == 1:
        out = RunFolder(settings.runs[0]).report
    elif out is None:
        out = Path("report.html")
        if out.exists():  # it may be the report of other runs
            raise UsageError("already exists", where=out, remedy="name the file to write with --out")
    write_report(settings.runs, out)
    print(escaped(str(out)))


def try_to_report(run: Path) -> None:
    """Write the report of a finished run. A problem with it is reported, but the run succeeded."""
    try:
        write_run_report(run)
    except BertmillError as error:
        say(f"could not write the report: {error}")
