"""Open, resume and finish training runs. A run has its own folder.

    open_run            locks the folder, finds out whether the run is new or finished, applies the rules for resuming
    Run.require_sources checks that the data is what the run started with
    Run.start           records settings, decisions and sources; from then on, the folder is a run
    Run.finish          writes the model folder, then removes what only training needs
A finished run is extended by resuming it with a longer duration from its last checkpoint; its model stays until the new
one is complete. A start that fails before `Run.start` leaves nothing behind. Only the first rank writes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from bertmill.checkpoint import store
from bertmill.checkpoint.names import METADATA_FILE, METADATA_FORMAT, read_metadata
from bertmill.config.fields import Precision
from bertmill.config.notation import setting
from bertmill.config.reading import (
    duration_of,
    movable_fields,
    read_run,
    read_run_settings,
    read_run_sources,
    resumed_settings,
    run_toml,
    with_whole_paths,
)
from bertmill.config.training_settings import TrainingSettings
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.locks import locked_folder
from bertmill.machine import bf16_speedup, choose_device, keep_freed_memory, set_threads
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.rows.source import split_key_off
from bertmill.storage import new_folder, write_file
from bertmill.text.printable import escaped
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks, joined_ranks
from bertmill.training.loop import ResolvedTraining, computing_in
from bertmill.training.progress import Journal, Listener
from bertmill.training.state import RunFolder

SettingsT = TypeVar("SettingsT", bound=TrainingSettings)


@dataclass(frozen=True)
class Run(Generic[SettingsT]):
    """An open run. A resumed run has the `settings` it started with, except for those that may change."""

    command: str
    folder: RunFolder
    settings: SettingsT
    is_new: bool
    is_finished: bool
    is_extended: bool  # it had finished with a shorter duration
    ranks: Ranks
    journal: Journal

    @property
    def model(self) -> Path | None:
        """The model folder on the first rank, None on the others."""
        return self.folder.model if self.ranks.is_first else None

    def require_sources(self, sources: Mapping[str, str]) -> None:
        """Raise IntegrityError if a resumed run started with different data; `sources` are hashes by name."""
        recorded = read_run_sources(self.folder.path)
        for name, now in sources.items():
            if recorded.get(name, now) != now:
                what = f"the {name.partition('_')[0]} data differs from what the run started with"
                raise IntegrityError(what, where=self.folder.path, remedy="restore the data, or start a new run")

    def start(self, decisions: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        """Record settings, decisions about settings left open, and sources; for a resumed run, moved data too."""
        settings = self.settings
        if self.is_extended and self.ranks.is_first and not read_run(self.folder.path).is_extended:
            self.folder.remove_comparison()  # of the shorter training
        if not self.is_new:
            before = read_run_settings(type(settings), self.folder.path, self.command)
            settings = before.model_copy(update=movable_fields(settings) | duration_of(settings))
        self._record(settings.model_copy(update=decisions), sources, is_extended=self.is_extended)
        if self.is_new and self.folder.path.parent == type(self.settings).model_fields["out"].default.parent:
            self.journal.remark(f"run folder: {escaped(str(self.folder.path))}")  # `out` may have been left open

    def _record(self, settings: SettingsT, sources: Mapping[str, str], *, is_extended: bool) -> None:
        content = run_toml(with_whole_paths(settings), self.command, sources, is_extended=is_extended)
        if self.ranks.is_first:
            write_file(self.folder.config, content)

    def finish(self, model: BertPreTrainedModel, tokenizer: BertTokenizer, metadata: Mapping[str, Any]) -> Path | None:
        """Write the model folder with its metadata. A kill at any moment leaves a run that is resumable or finished."""
        if self.ranks.is_first:
            content = {"format": METADATA_FORMAT, **metadata}
            if self.is_extended:
                store.remove_folder(self.folder.model)
            with new_folder(self.folder.model) as temporary:
                model.save_pretrained(temporary)
                tokenizer.save_pretrained(temporary)
                write_file(temporary / METADATA_FILE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
            if self.is_extended:
                settings = read_run_settings(type(self.settings), self.folder.path, self.command)
                self._record(settings, read_run_sources(self.folder.path), is_extended=False)
        self.ranks.wait()  # until no rank reads a checkpoint or a plan
        self.clean_up()
        return self.model

    def clean_up(self) -> None:
        """Remove what a finished run needs only to train longer, unless its settings say to keep it."""
        if not self.ranks.is_first:
            return
        kept: set[int | None] = set()
        if self.settings.keep_checkpoints:
            kept = {*store.saved_steps(self.folder.checkpoints)[-1:], read_metadata(self.folder.model).get("best_step")}
        else:
            self.folder.remove_plans()
        for folder in (self.folder.features, self.folder.folds):
            shutil.rmtree(folder, ignore_errors=True)
        store.remove_checkpoints(self.folder.checkpoints, kept)
        with suppress(OSError):  # it is not empty, or does not exist
            self.folder.checkpoints.rmdir()


@contextmanager
def open_run(settings: SettingsT, command: str, listener: Listener) -> Iterator[Run[SettingsT]]:
    """Open the run in `settings.out` on all ranks; its folder is locked while the block runs."""
    folder = RunFolder(settings.out)
    is_new = not folder.config.exists()
    if is_new:
        folder.require_free()
    else:
        settings = _resumed(settings, folder, command)
    device = choose_device(settings.device)
    set_threads(settings.threads)
    keep_freed_memory()
    # The first rank holds the lock for all.
    with joined_ranks(device) as ranks, locked_folder(folder.path) if ranks.is_first else nullcontext():
        if is_new and ranks.is_first:
            folder.require_free()  # another process may have started a run in the meantime
        journal = Journal(folder.log, listener) if ranks.is_first else Journal(None, Listener())
        if sum(ranks.largest([is_new, not is_new])) > 1:
            what = "not every process sees this folder"
            raise UsageError(what, where=folder.path, remedy="use a shared file system")
        is_finished = not is_new and folder.is_finished()
        is_extended = folder.model.exists() and not (is_finished and _has_same_duration(settings, folder, command))
        is_finished = is_finished and not is_extended
        if is_finished:
            journal.remark(f"{folder.path} is already finished")
        ranks.wait()  # until all have seen whether the run is finished
        try:
            if not is_finished:  # checked again on resume, which may be on another machine
                precision = _usable_precision(settings.precision, ranks, is_new)
                settings = settings.model_copy(update={"precision": precision})
            run = Run(command, folder, settings, is_new, is_finished, is_extended, ranks, journal)
            if is_finished:
                run.clean_up()  # a kill may have prevented it
            yield run
        except BertmillError:
            if ranks.is_first and not folder.config.exists():
                folder.remove_plans()
            raise


def _resumed(given: SettingsT, folder: RunFolder, command: str) -> SettingsT:
    """The settings to resume a run with; UsageError if it cannot be resumed with `given`."""
    if not given.resume:
        raise UsageError("already contains a run", where=folder.path, remedy="resume it, or choose another folder")
    before = read_run_settings(type(given), given.out, command)
    is_finished = folder.is_finished()
    settings = resumed_settings(given, before, is_finished=is_finished)
    if is_finished and duration_of(settings) == duration_of(before):
        return settings
    if is_finished and not store.saved_steps(folder.checkpoints):
        why = "is a run of several trials" if folder.trial_metrics.exists() else "kept no checkpoint"
        what = f"has finished and {why}, so it cannot be extended"
        raise UsageError(what, where=folder.path, remedy=f"start a new run from the model in {folder.model}")
    for name, value in movable_fields(settings).items():
        path = Path(split_key_off(str(value or ""))[0])
        if path.is_absolute() and not path.exists():
            raise UsageError("does not exist", where=path, remedy=f"set {setting(name)} to its new location")
    return settings


def _has_same_duration(settings: TrainingSettings, folder: RunFolder, command: str) -> bool:
    """Whether a finished run has been trained as long as `settings` say."""
    return duration_of(settings) == duration_of(read_run_settings(type(settings), folder.path, command))


def prepare_model(model: BertPreTrainedModel, settings: ResolvedTraining, ranks: Ranks) -> None:
    """Move the model to its device; enable gradient checkpointing and compile layers if the settings say so."""
    model.to(ranks.device)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    if settings.compile:
        with computing_in(settings.precision, ranks.device):
            model.compile_layers()


def _usable_precision(precision: Precision, ranks: Ranks, is_new: bool) -> Precision:
    """Resolve `auto` to a precision that all ranks support. Raises UsageError if bf16 is set but does not work."""
    if precision == "fp32":
        return precision
    smallest_speedup = -ranks.largest([-(bf16_speedup(ranks.device) or 0.0)])[0]
    if precision == "bf16" and not smallest_speedup:
        remedy = "use fp32" if is_new else "resume the run on another machine, or start a new one in fp32"
        raise UsageError("this machine cannot compute in bf16: a matrix product crashes the process", remedy=remedy)
    return "bf16" if precision == "bf16" or smallest_speedup > 1 else "fp32"
