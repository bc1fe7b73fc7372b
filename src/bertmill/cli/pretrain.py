"""`bertmill pretrain`: train, and show how it goes."""

from __future__ import annotations

from bertmill.cli.training import PretrainingDisplay
from bertmill.config.commands import PretrainSettings
from bertmill.training.pretrain import pretrain


def run(settings: PretrainSettings) -> None:
    with PretrainingDisplay(quiet=settings.quiet) as display:
        folder = pretrain(settings, display)
    if folder is not None:
        print(folder)
