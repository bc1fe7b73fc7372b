"""`bertmill finetune`: trains on labeled rows, shows progress, and writes the report."""

from __future__ import annotations

from bertmill.cli.report import try_to_report
from bertmill.cli.run_folder import resume_hint, say_size
from bertmill.cli.training import TrainingDisplay
from bertmill.config.commands import FinetuneSettings
from bertmill.training.trials import finetune_once_or_more


def run(settings: FinetuneSettings) -> None:
    """Fine-tune, write the report, and print the model folder."""
    with resume_hint(settings.out), TrainingDisplay(quiet=settings.quiet) as display:
        folder = finetune_once_or_more(settings, display)
    if folder is not None:
        print(folder, flush=True)
        try_to_report(settings.out)
        if not settings.quiet:
            say_size(settings.out)
