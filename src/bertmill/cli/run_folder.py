"""Messages about a run folder: the command that resumes it, and the size of a finished run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from bertmill.cli.report import try_to_report
from bertmill.cli.streams import say
from bertmill.cli.training import TrainingDisplay
from bertmill.config.reading import read_run
from bertmill.config.training_settings import TrainingSettings
from bertmill.errors import BertmillError, StoppedError
from bertmill.text.printable import escaped
from bertmill.training.state import RunFolder

SettingsT = TypeVar("SettingsT", bound=TrainingSettings)
DisplayT = TypeVar("DisplayT", bound=TrainingDisplay)


def train_in_folder(
    train: Callable[[SettingsT, DisplayT], Path | None], settings: SettingsT, display: DisplayT
) -> None:
    """Train with a display of progress, write the report, and print the model folder."""
    with resume_hint(settings.out), display:
        folder = train(settings, display)
    if folder is not None:  # on the first rank
        try_to_report(settings.out)  # first, because printing fails if the reader of standard output has exited
        print(escaped(str(folder)), flush=True)
        if not settings.quiet:
            say_size(settings.out)


@contextmanager
def resume_hint(out: Path) -> Iterator[None]:
    """If the block is stopped and leaves an unfinished run in `out`, add the command that resumes it to the error."""
    try:
        yield
    except (StoppedError, KeyboardInterrupt) as error:
        run = RunFolder(out)
        if run.config.exists() and not run.is_finished():
            error.add_note(f"resume with {resume_command(out)}")
        raise


def resume_command(run: Path) -> str:
    """The command that resumes the run in this folder, in backticks."""
    try:
        command = read_run(run).command
    except BertmillError:  # its config.toml is damaged
        command = "COMMAND"
    return escaped(f"`bertmill {command} --out {shlex.quote(str(run))} --resume`")


def say_size(run: Path) -> None:
    """Say how much space a finished run takes."""
    sizes = [path.stat().st_size for path in run.rglob("*") if path.is_file()]
    say(f"run folder: {escaped(str(run))} ({_megabytes(sum(sizes))})")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.2f} GB"
