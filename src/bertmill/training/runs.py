"""What pre-training and fine-tuning share around the loop: a run that is opened, begun or resumed, and finished."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from bertmill.checkpoint.names import METADATA_FILE, METADATA_FORMAT
from bertmill.config.commands import TrainingSettings
from bertmill.config.fields import Precision, heldout_share
from bertmill.config.reading import read_settings, resumed_settings, settings_toml
from bertmill.errors import BertmillError, IntegrityError, UsageError
from bertmill.machine import bf16_speedup, choose_device, keep_freed_memory, set_threads
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.storage import locked_folder, new_folder, read_json, write_file
from bertmill.text.files import STANDARD_INPUT
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks, joined_ranks
from bertmill.training.loop import Trainer, computing_in
from bertmill.training.progress import Journal, Listener
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder

SettingsT = TypeVar("SettingsT", bound=TrainingSettings)


@dataclass(frozen=True)
class OpenRun(Generic[SettingsT]):
    """A run folder that this process, or these ranks together, train in."""

    folder: RunFolder
    settings: SettingsT  # of a run that is not new: those that it began with
    is_new: bool
    is_finished: bool
    ranks: Ranks
    journal: Journal

    @property
    def model(self) -> Path | None:
        """The folder of the result, to the first of several ranks only."""
        return self.folder.model if self.ranks.is_first else None

    def begin(self, model: BertPreTrainedModel, settings: TrainingSettings, sources: dict[str, str]) -> None:
        """Make `model` ready to be trained, and the folder a run on the data of `sources`, if it is none yet."""
        model.to(self.ranks.device)
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        if settings.compile:
            with computing_in(settings.precision, self.ranks.device):
                model.compile_layers()
        if self.ranks.is_first:  # last: a start that is refused must not make the folder a run
            record_beginning(self.folder, settings, sources)

    def trainer(
        self,
        model: BertPreTrainedModel,
        schedule: Schedule,
        settings: TrainingSettings,
        *,
        eval_every: int,
        patience: int | None = None,
    ) -> Trainer:
        """At the beginning, or where the run was stopped."""
        trainer = Trainer(
            model,
            schedule,
            settings,
            self.folder,
            self.ranks,
            self.journal,
            eval_every=eval_every,
            patience=patience,
        )
        trainer.resume()
        return trainer

    def finish(self, model: BertPreTrainedModel, tokenizer: BertTokenizer, metadata: dict[str, Any]) -> Path | None:
        """Write the result: a model folder with its metadata."""
        if self.ranks.is_first:
            with new_folder(self.folder.model) as temporary:
                model.save_pretrained(temporary)
                tokenizer.save_pretrained(temporary)
                write_file(
                    temporary / METADATA_FILE,
                    json.dumps({"format": METADATA_FORMAT, **metadata}, indent=1, ensure_ascii=False) + "\n",
                )
        self.ranks.wait()
        return self.model


@contextmanager
def opened_run(settings: SettingsT, listener: Listener) -> Iterator[OpenRun[SettingsT]]:
    """The run in `settings.out`, locked while the block runs, on as many ranks as there are."""
    folder = RunFolder(settings.out)
    is_new = not folder.config.exists()
    if is_new:
        settings.require_all()
        folder.refuse_other_things()
    else:
        settings = settings_of_run(settings, folder)
    device = choose_device(settings.device)
    set_threads(settings.threads)
    keep_freed_memory()
    # The first rank holds the folder for all.
    with joined_ranks(device) as ranks, locked_folder(folder.path) if ranks.is_first else nullcontext():
        if is_new and ranks.is_first:
            folder.refuse_other_things()  # somebody else may just have begun there
        journal = Journal(folder.log, listener) if ranks.is_first else Journal(None, Listener())
        if sum(ranks.largest([is_new, not is_new])) > 1:
            raise UsageError("is not there for all processes", where=folder.path, remedy="let all machines share it")
        is_finished = folder.model.exists()
        if is_finished:
            journal.remark(f"{folder.path} is finished already")
        ranks.wait()  # all have seen whether the run is new
        try:
            if not is_finished:  # of a resumed run too: it may be on another machine now
                settings = settings.model_copy(update={"precision": _precision_here(settings.precision, ranks, is_new)})
            yield OpenRun(folder, settings, is_new, is_finished, ranks, journal)
        except BertmillError:
            if ranks.is_first and not folder.config.exists():  # refused before it began
                folder.forget_start()
            raise


def settings_of_run(given: SettingsT, run: RunFolder) -> SettingsT:
    """The settings that the run began with. The same command may be given again: what it left open is decided."""
    if not given.resume:
        raise UsageError("holds a run already", where=run.path, remedy="go on with --resume or choose another folder")
    whole = with_whole_paths(given)
    again = {name: getattr(whole, name) for name in given.model_fields_set}
    if given.precision == "auto":
        del again["precision"]
    is_finished = run.model.exists()
    settings = resumed_settings(type(given)(**again), run.config, is_finished=is_finished)
    for name in () if is_finished else sorted(settings.MAY_MOVE):
        path = Path(getattr(settings, name) or "")
        if path.is_absolute() and not path.exists():
            raise UsageError("is not there", where=path, remedy=f"say with --{name} where it is now")
    return settings


def record_beginning(run: RunFolder, settings: TrainingSettings, sources: dict[str, str]) -> None:
    """Make the folder a run with these settings; of one that is resumed, note where its data and model are now."""
    if run.config.exists():
        require_same_data(run, sources)
        before = read_settings(type(settings), {"out": settings.out}, toml_path=run.config)
        settings = before.model_copy(update={name: getattr(settings, name) for name in settings.MAY_MOVE})
    write_file(run.config, settings_toml(with_whole_paths(settings)))
    require_same_data(run, sources)


def require_same_data(run: RunFolder, sources: dict[str, str]) -> None:
    """IntegrityError unless the data is what the run began with; a run that has no record of it yet makes one."""
    if not run.data.exists():
        write_file(run.data, json.dumps(sources) + "\n")
    before = read_json(run.data)
    for name, now in sources.items():
        if before.get(name, now) != now:  # runs of earlier versions do not know all of them
            what = name.partition("_")[0]
            raise IntegrityError(
                f"the {what} data is not what this run began with",
                where=run.path,
                remedy="give what it began with, or start anew",
            )


def with_whole_paths(settings: SettingsT) -> SettingsT:
    """The same files and folders, found from any directory that the run is resumed in; names and shares stay."""
    whole = {}
    for name in (*type(settings).PATHS, *type(settings).MAY_BE_PATHS):
        value = getattr(settings, name)  # a path or text, or nothing
        is_share = isinstance(value, str) and heldout_share(value) is not None
        if value is None or is_share or str(value) == STANDARD_INPUT:
            continue
        if name in type(settings).PATHS or Path(value).exists():
            whole[name] = type(value)(Path(value).resolve())
    return settings.model_copy(update=whole)


def _precision_here(asked: Precision, ranks: Ranks, is_new: bool) -> Precision:
    """What `--precision` means on the machines of all ranks."""
    if asked == "fp32":
        return asked
    smallest_speedup = -ranks.largest([-(bf16_speedup(ranks.device) or 0.0)])[0]
    if asked == "bf16" and not smallest_speedup:
        what = "bf16 cannot be used: a product of such numbers ends the program on this machine"
        remedy = "use --precision fp32" if is_new else "resume it on another machine, or begin a new run in fp32"
        raise UsageError(what, remedy=remedy)
    return "bf16" if asked == "bf16" or smallest_speedup > 1 else "fp32"
