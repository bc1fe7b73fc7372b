"""What pre-training and fine-tuning share around the loop: settings that are decided once, and the model at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import torch

from bertmill.config import Precision, TrainingSettings, heldout_share, resumed_settings
from bertmill.errors import UsageError
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.runtime import prefers_bf16
from bertmill.storage import new_folder, write_file
from bertmill.tasks.kinds import MODEL_NOTE
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.loop import LoopSettings
from bertmill.training.state import RunFolder

SettingsT = TypeVar("SettingsT", bound=TrainingSettings)


def settings_of_run(given: SettingsT, run: RunFolder) -> SettingsT:
    """The settings that the run began with. The same command may be given again: what it left open is decided."""
    if not given.resume:
        raise UsageError("holds a run already", where=run.path, remedy="go on with --resume or choose another folder")
    whole = with_whole_paths(given)
    again = {name: getattr(whole, name) for name in given.model_fields_set}
    if given.precision == "auto":
        del again["precision"]
    return resumed_settings(type(given)(**again), run.config, type(given).MAY_CHANGE)


def with_whole_paths(settings: SettingsT) -> SettingsT:
    """The same files and folders, found from any directory that the run is resumed in; names and shares stay."""
    whole = {}
    for name in type(settings).MAY_BE_PATHS:
        value = getattr(settings, name)  # text, a path or nothing
        if value is not None and heldout_share(str(value)) is None and Path(value).exists():
            whole[name] = type(value)(Path(value).resolve())
    return settings.model_copy(update=whole)


def decide_precision(given: TrainingSettings, ranks: Ranks) -> Precision:
    """What `--precision` means here; the first rank's choice is everybody's."""
    if given.precision != "auto":
        return given.precision
    return "bf16" if ranks.largest([ranks.is_first and prefers_bf16(ranks.device)])[0] else "fp32"


def loop_settings(
    settings: TrainingSettings, *, eval_every: int, save_every: int, patience: int | None = None
) -> LoopSettings:
    return LoopSettings(
        seed=settings.seed,
        weight_decay=settings.weight_decay,
        max_gradient_norm=settings.max_gradient_norm,
        log_every=settings.log_every,
        save_every=save_every,
        eval_every=eval_every,
        keep=settings.keep,
        on_nonfinite=settings.on_nonfinite,
        precision=torch.bfloat16 if settings.precision == "bf16" else torch.float32,
        patience=patience,
    )


def write_model(run: RunFolder, model: BertPreTrainedModel, tokenizer: BertTokenizer, note: dict[str, Any]) -> None:
    """The result of a run: a model folder with a note on what it is and where it comes from."""
    with new_folder(run.model) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_file(temporary / MODEL_NOTE, json.dumps(note, indent=1, ensure_ascii=False) + "\n")
