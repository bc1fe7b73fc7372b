"""`bertmill finetune`: trains on labeled rows, shows progress, and writes the report."""

from __future__ import annotations

from bertmill.cli.run_folder import train_in_folder
from bertmill.cli.training import TrainingDisplay
from bertmill.config.commands import FinetuneSettings
from bertmill.training.trials import finetune_once_or_more


def run(settings: FinetuneSettings) -> None:
    """Fine-tune, write the report, and print the model folder."""
    train_in_folder(finetune_once_or_more, settings, TrainingDisplay(quiet=settings.quiet))
