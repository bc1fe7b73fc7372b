"""The state of a training run besides its tensors, and the layout of a run folder.

    RUN/config.toml           settings, including decisions of the run, and hashes of the data it started with
    RUN/log.jsonl             one line per `log_every` steps and per evaluation
    RUN/checkpoints/          see checkpoint/store.py
    RUN/plans/                the instances of each epoch (corpus/plan.py)
    RUN/plans/heldout-text/   the held-out text as a corpus
    RUN/rows/                 train.jsonl and dev.jsonl, if rows were given in Python (from_python.py)
    RUN/features/             the features of the rows for the probe (features.py)
    RUN/method.json           whether to train all weights (methods.py)
    RUN/folds/                outputs of models that were trained on a part of the rows (methods.py)
    RUN/trials/               for several fine-tuning runs: one folder each (trials.py)
    RUN/trials.json           for several fine-tuning runs: their metrics
    RUN/tensorboard/          the log for TensorBoard, if it is installed
    RUN/model/                the result: a model folder
    RUN/evaluation.json       what the report shows about the result (final_evaluation.py)
    RUN/report.html           the report (report/page.py)
The folder is locked while a process trains in it (storage.py).
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, PlainValidator, TypeAdapter, ValidationError

from bertmill.checkpoint.names import MODEL_OF_RUN
from bertmill.config.reading import RUN_FILE, read_run
from bertmill.errors import IntegrityError, UsageError

PLANS_OF_RANK = "rank-"
ROWS_FILES = ("train.jsonl", "dev.jsonl")


def _sums(value: Any) -> Counter[str]:
    """A Counter whose values may be floats, which pydantic's own type does not allow."""
    return Counter(TypeAdapter(dict[str, float]).validate_python(value, strict=True))


Sums = Annotated[Counter[str], PlainValidator(_sums)]


@dataclass
class State:
    """The position of a training run, as saved in state.json of a checkpoint."""

    __pydantic_config__: ClassVar = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    step: int = 0
    seconds: float = 0.0
    start_seconds: float = 0.0  # the part of `seconds` before the first step
    seconds_of_step: float = 0.0  # of the last step
    phase: int = 0
    phase_start: int = 0  # the step at which the phase began
    sums: Sums = field(default_factory=Counter)  # since the last log line
    left_out: list[int] = field(default_factory=list)  # skipped steps, whose loss or gradient was not finite
    heldout: dict[str, float] = field(default_factory=dict)  # metrics of the last evaluation
    best_step: int | None = None
    best_score: list[float] | None = None
    best_figures: dict[str, float] = field(default_factory=dict)
    evaluations_since_best: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, for `from_json`."""
        return {**vars(self), "sums": dict(self.sums)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: Path) -> Self:
        """The state that `to_json` returned; IntegrityError, naming the file `where`, for anything else."""
        try:
            # From JSON, because strict validation of a Python value accepts only instances of the class.
            return TypeAdapter(cls).validate_json(json.dumps(dict(content)))
        except ValidationError as error:
            names = ", ".join(".".join(map(str, detail["loc"])) for detail in error.errors())
            raise IntegrityError(f"is not the state of a training run: {names} is wrong", where=where) from None


class RunFolder:
    """The paths in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / RUN_FILE
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.plans = path / "plans"
        self.heldout = self.plans / "heldout-text"
        self.rows = path / "rows"
        self.features = path / "features"
        self.folds = path / "folds"
        self.method = path / "method.json"
        self.trials = path / "trials"
        self.trial_metrics = path / "trials.json"
        self.model = path / MODEL_OF_RUN
        self.evaluation = path / "evaluation.json"
        self.report = path / "report.html"

    def is_finished(self) -> bool:
        """Whether the model has been trained as config.toml says; a run that is being extended still has its model."""
        return self.model.exists() and not read_run(self.path).is_extended

    def require_free(self) -> None:
        """Raise UsageError unless a new run can start here; leftovers of a killed start are allowed."""
        if self.path.exists() and not self.path.is_dir():
            raise UsageError("is a file, not a run folder", where=self.path, remedy="choose another name")
        if self.config.exists():
            raise UsageError("another process has just started a run here", where=self.path, remedy="resume that run")
        there = [path for path in self.path.glob("*") if path.name[0] != "."]
        if not all(self._is_left_by_start(path) for path in there):
            raise UsageError("is neither empty nor a run folder", where=self.path, remedy="choose another folder")

    def _is_left_by_start(self, path: Path) -> bool:
        names = {inner.name for inner in path.glob("*") if inner != self.heldout}
        if path == self.rows:
            return all(name in ROWS_FILES or name.startswith(".") for name in names)
        return path == self.plans and all(name.startswith((PLANS_OF_RANK, ".")) for name in names)

    def remove_comparison(self) -> None:
        """Remove the results that fine-tuning compared its methods by, and what it planned."""
        shutil.rmtree(self.folds, ignore_errors=True)
        self.method.unlink(missing_ok=True)

    def remove_plans(self) -> None:
        """Remove plans left by a failed start, which may have used different settings."""
        shutil.rmtree(self.plans, ignore_errors=True)
