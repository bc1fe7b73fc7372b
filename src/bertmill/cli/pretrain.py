"""`bertmill pretrain`: trains on a corpus, shows progress, and writes the report."""

from __future__ import annotations

from bertmill.cli.run_folder import train_in_folder
from bertmill.cli.training import PretrainingDisplay
from bertmill.config.commands import PretrainSettings
from bertmill.training.pretrain import pretrain


def run(settings: PretrainSettings) -> None:
    """Pre-train, write the report, and print the model folder."""
    train_in_folder(pretrain, settings, PretrainingDisplay(quiet=settings.quiet))
