"""`bertmill pretrain`: trains on a corpus, shows progress, and writes the report."""

from __future__ import annotations

from bertmill.cli.training import PretrainingDisplay
from bertmill.config.commands import PretrainSettings
from bertmill.report.page import write_run_report
from bertmill.training.pretrain import pretrain


def run(settings: PretrainSettings) -> None:
    """Pre-train, write the report, and print the model folder."""
    with PretrainingDisplay(quiet=settings.quiet) as display:
        folder = pretrain(settings, display)
    if folder is not None:
        write_run_report(settings.out)
        print(folder)
