"""The settings that pre-training and fine-tuning share."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from bertmill.config.fields import COMMON, MAY_CHANGE, OnNonFinite, Precision, Threads
from bertmill.config.settings import Settings


class TrainingFields(Settings):
    """Fields shared by the settings and the resolved settings of a training run; none is optional."""

    out: Annotated[Path, MAY_CHANGE, COMMON] = Field(
        Path("runs/TASK-DATE-TIME"), description="run folder for settings, log, checkpoints and the model"
    )
    resume: Annotated[bool, MAY_CHANGE, COMMON] = Field(
        False, description="resume the run in --out, or start one if there is none"
    )
    batch_size: Annotated[int, COMMON] = Field(
        32, ge=1, le=1_000_000, description="instances or examples per step, across all processes"
    )
    seed: Annotated[int, COMMON] = Field(0, description="random seed for initial weights, order, masks and dropout")
    micro_batch_pieces: int = Field(8192, ge=1, description="maximum number of pieces per micro-batch")
    weight_decay: float = Field(0.01, ge=0, description="weight decay for matrices, not for biases and LayerNorm")
    max_gradient_norm: float = Field(1.0, gt=0, description="clip gradients to this norm")
    save_every: Annotated[int, MAY_CHANGE] = Field(
        1000, ge=1, description="steps between checkpoints; a new best checkpoint is always saved"
    )
    keep: Annotated[int, MAY_CHANGE] = Field(
        2, ge=1, description="recent checkpoints to keep while training, in addition to the best"
    )
    on_nonfinite: Annotated[OnNonFinite, MAY_CHANGE] = Field(
        "stop", description="what to do if a loss or gradient is not finite"
    )
    precision: Precision = Field("fp32", description="floating-point precision; auto times both and uses the faster")
    gradient_checkpointing: Annotated[bool, MAY_CHANGE] = Field(
        False, description="recompute activations instead of keeping them, to save memory"
    )
    compile: Annotated[bool, MAY_CHANGE] = Field(
        False, description="compile the layers, except attention, with torch.compile; needs a C++ compiler"
    )
    device: Annotated[str, MAY_CHANGE] = Field("auto", description="device: cpu, cuda or auto")


class TrainingSettings(TrainingFields):
    """Settings shared by pre-training and fine-tuning. config.toml must have one of each group in `recorded`."""

    recorded: ClassVar[tuple[tuple[str, ...], ...]] = ()
    durations: ClassVar[tuple[str, ...]] = ()  # settings that say how long to train
    keep_checkpoints: Annotated[bool, MAY_CHANGE] = Field(
        False, description="keep the last and the best checkpoint of a finished run, so that it can be extended"
    )
    threads: Annotated[Threads | None, MAY_CHANGE] = Field(None, description="threads to use (default: one per core)")

    @model_validator(mode="before")
    @classmethod
    def _name_run(cls, given: Any) -> Any:
        """Without `out`, name the run folder after the task and the time."""
        if not isinstance(given, dict) or "out" in given:
            return given
        if given.get("resume"):
            raise ValueError("`out` is required to resume a run: its folder")
        return {**given, "out": _new_run(str(cls.model_fields["out"].default), str(given.get("task")))}


def _new_run(pattern: str, task: str) -> Path:
    """The path of a run folder that does not exist yet; `pattern` is the default of `out`."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ValueError("`out` is required with several processes: all must use the same folder")
    name = pattern.replace("TASK", task).replace("DATE-TIME", time.strftime("%Y-%m-%d-%H%M%S"))
    paths = (Path(name if number == 1 else f"{name}-{number}") for number in count(1))
    return next(path for path in paths if not path.exists())
