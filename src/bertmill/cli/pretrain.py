"""`bertmill pretrain`: trains on a corpus, shows progress, and writes the report."""

from __future__ import annotations

from bertmill.cli.report import try_to_report
from bertmill.cli.run_folder import resume_hint, say_size
from bertmill.cli.training import PretrainingDisplay
from bertmill.config.commands import PretrainSettings
from bertmill.training.pretrain import pretrain


def run(settings: PretrainSettings) -> None:
    """Pre-train, write the report, and print the model folder."""
    with resume_hint(settings.out), PretrainingDisplay(quiet=settings.quiet) as display:
        folder = pretrain(settings, display)
    if folder is not None:
        print(folder, flush=True)
        try_to_report(settings.out)
        if not settings.quiet:
            say_size(settings.out)
