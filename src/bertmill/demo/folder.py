"""The demo folder: its layout, the settings it was started with, and the plan of a full or quick demo.

    OUT/demo.json        the settings
    OUT/documentation/   train.txt, heldout.txt, facts.json, and rows/ with a train and a test file for each task
    OUT/vocabulary/      the vocabulary folder
    OUT/corpus/          the corpus folder
    OUT/pretrain/        the pre-training run
    OUT/random/          the same encoder with random weights: a model folder
    OUT/TASK-START/      the run folder of each fine-tuning run
    OUT/measured/        the results of each model on held-out text or test rows
    OUT/seconds.json     how long each stage took
    OUT/results.json     all results and the predictions shown
    OUT/report.html      the report that compares all runs

A file or folder that exists is complete, so its stage is skipped. An unfinished run is resumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bertmill.checkpoint.names import MODEL_OF_RUN
from bertmill.config.commands import DemoSettings
from bertmill.config.fields import SizeName
from bertmill.demo.rows import Sizes
from bertmill.errors import UsageError
from bertmill.locks import locked_folder
from bertmill.storage import read_json, require_format, write_file

RECORD = "demo.json"
FORMAT = 1
PRETRAINED, RANDOM, MINILM = "pretrained", "random", "minilm"  # the initial weights of a fine-tuning run
FILLED = "filled"  # the predictions of the encoder itself


@dataclass(frozen=True)
class Tuning:
    """A fine-tuning run of the demo."""

    task: str
    start: str
    epochs: float
    learning_rate: float
    batch_size: int = 16

    @property
    def name(self) -> str:
        """The name of its run folder and of its results."""
        return f"{self.task}-{self.start}"


@dataclass(frozen=True)
class Plan:
    """The amounts of text, rows and training in a demo."""

    documentation_share: float  # the fraction of modules to read
    heldout_characters: int  # of the text on which MLM accuracy is measured
    vocabulary_size: int
    encoder: SizeName
    steps: int | None  # of pre-training; None: budget_s applies
    budget_s: int | None  # of pre-training; None: steps applies
    rows: Sizes
    tunings: tuple[Tuning, ...]


FULL = Plan(
    documentation_share=1.0,
    heldout_characters=300_000,
    vocabulary_size=8192,
    encoder="mini",
    steps=None,
    budget_s=150,
    rows=Sizes(classify=(504, 700), tag=(1500, 500), pair=(800, 200), answer=(600, 300)),
    tunings=(
        Tuning("classify", PRETRAINED, 6, 5e-4),
        Tuning("classify", RANDOM, 6, 5e-4),
        Tuning("tag", PRETRAINED, 2, 5e-4),
        Tuning("tag", RANDOM, 2, 5e-4),
        Tuning("classify", MINILM, 6, 1e-4),
        Tuning("answer", MINILM, 3, 1e-4),
    ),
)
QUICK = Plan(
    documentation_share=0.25,
    heldout_characters=60_000,
    vocabulary_size=4096,
    encoder="tiny",
    steps=150,
    budget_s=None,
    rows=Sizes(classify=(210, 210), tag=(300, 150), pair=(80, 20), answer=(120, 60)),
    tunings=(
        Tuning("classify", PRETRAINED, 4, 1e-3),
        Tuning("classify", RANDOM, 4, 1e-3),
        Tuning("tag", PRETRAINED, 2, 1e-3),
        Tuning("tag", RANDOM, 2, 1e-3),
        Tuning("classify", MINILM, 3, 1e-4),
        Tuning("answer", MINILM, 2, 1e-4),
    ),
)
GAIN = ("classify-pretrained", "classify-random")  # their difference is the gain from pre-training


class Demo:
    """A demo: its settings, its plan and the paths in its folder."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.plan = QUICK if settings.quick else FULL
        if settings.steps is not None:
            self.plan = replace(self.plan, steps=settings.steps, budget_s=None)
        self.path = settings.out
        self.record = self.path / RECORD
        self.documentation = self.path / "documentation"
        self.train_text = self.documentation / "train.txt"
        self.heldout_text = self.documentation / "heldout.txt"
        self.facts = self.documentation / "facts.json"
        self.rows = self.documentation / "rows"
        self.vocabulary = self.path / "vocabulary"
        self.corpus = self.path / "corpus"
        self.pretraining = self.path / "pretrain"
        self.random = self.path / "random"
        self.measured = self.path / "measured"
        self.seconds = self.path / "seconds.json"
        self.results = self.path / "results.json"
        self.report = self.path / "report.html"

    @property
    def recorded_settings(self) -> dict[str, object]:
        """The settings that determine the results; a demo is only continued with the same ones."""
        return self.settings.model_dump(include={"quick", "steps"})

    def run_of(self, tuning: Tuning) -> Path:
        """The run folder of a fine-tuning run."""
        return self.path / tuning.name

    def start_of(self, tuning: Tuning) -> str:
        """The model to fine-tune: a folder, or the name of an installed model."""
        folders = {PRETRAINED: self.pretraining / MODEL_OF_RUN, RANDOM: self.random}
        return str(folders.get(tuning.start, tuning.start))

    def rows_of(self, task: str, part: str) -> Path:
        """The file with the rows of a task; `part` is train or test."""
        return next(self.rows.glob(f"{task}-{part}.*"))

    def figures_of(self, name: str) -> Path:
        """The file with the results of a fine-tuning run (by name), or FILLED."""
        return self.measured / f"{name}.json"

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Add to the recorded time of a stage, which may have been interrupted before."""
        times = self.read_seconds()
        write_file(self.seconds, json.dumps({**times, stage: round(times.get(stage, 0.0) + seconds, 1)}) + "\n")

    def read_seconds(self) -> dict[str, float]:
        """The recorded time of each stage."""
        return read_json(self.seconds) if self.seconds.exists() else {}


@contextmanager
def open_demo(settings: DemoSettings) -> Iterator[Demo]:
    """Open or create the demo in `settings.out`, and lock its folder while the block runs.

    UsageError if the folder contains anything else, or a demo with different settings.
    """
    demo = Demo(settings)
    _require_usable(demo)
    with locked_folder(demo.path):
        if not demo.record.exists():
            write_file(demo.record, json.dumps({"format": FORMAT, **demo.recorded_settings}) + "\n")
        yield demo


def _require_usable(demo: Demo) -> None:
    if demo.path.exists() and not demo.path.is_dir():
        raise UsageError("is a file, not a folder", where=demo.path, remedy="choose another folder")
    if not demo.record.exists():
        if any(path.name[0] != "." for path in demo.path.glob("*")):
            raise UsageError("is neither empty nor a demo folder", where=demo.path, remedy="choose another folder")
        return
    recorded = read_json(demo.record)
    require_format(recorded.pop("format", None), FORMAT, demo.record)
    if recorded != demo.recorded_settings:
        values = ", ".join(f"{name}={value}" for name, value in recorded.items())
        what = f"contains a demo with different settings ({values})"
        raise UsageError(what, where=demo.path, remedy="use the same settings, or choose another folder")
