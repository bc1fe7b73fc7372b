"""The demo folder: its places, how much of everything a demo does, and the settings it was started with.

    OUT/demo.json        the settings
    OUT/documentation/   train.txt, heldout.txt, facts.json, and rows/ with a train and a test file for each task
    OUT/vocabulary/      the vocabulary folder
    OUT/corpus/          the corpus folder
    OUT/pretrain/        the run of the pre-training
    OUT/random/          the same encoder with random weights: a model folder
    OUT/TASK-START/      the run of each fine-tuning
    OUT/measured/        the figures of each model, on held-out text or test rows
    OUT/seconds.json     how long each stage took
    OUT/results.json     all figures and answers
    OUT/report.html      the report of all runs
A folder or file that exists is complete, and its stage is skipped; a run that is not finished is resumed.
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
from bertmill.storage import locked_folder, read_json, require_format, write_file

RECORD = "demo.json"
FORMAT = 1
# What a fine-tuning starts from.
PRETRAINED, RANDOM, MINILM = "pretrained", "random", "minilm"
FILLED, MASKED_WORDS = "filled", "masked-words"  # figures that are not of a fine-tuning


@dataclass(frozen=True)
class Tuning:
    """One fine-tuning."""

    task: str
    start: str
    epochs: float
    learning_rate: float
    batch_size: int = 16

    @property
    def name(self) -> str:
        return f"{self.task}-{self.start}"


@dataclass(frozen=True)
class Plan:
    """How much of everything a demo does."""

    documentation_share: float  # of the modules
    heldout_characters: int  # of the text to measure masked words on
    vocabulary_size: int
    encoder: SizeName
    steps: int | None  # of the pre-training; None: by the clock
    budget_s: int | None  # of the pre-training; None: by steps
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
        Tuning("classify", MINILM, 2, 1e-4),
        Tuning("answer", MINILM, 1, 1e-4),
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
        Tuning("classify", MINILM, 1, 1e-4),
        Tuning("answer", MINILM, 1, 1e-4),
    ),
)
GAIN = ("classify-pretrained", "classify-random")  # what pre-training adds is the difference of these


class Demo:
    """A demo and the places in its folder."""

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

    def run_of(self, tuning: Tuning) -> Path:
        return self.path / tuning.name

    def start_of(self, tuning: Tuning) -> str:
        """The model that a fine-tuning starts from: a folder, or the name of an installed model."""
        folders = {PRETRAINED: self.pretraining / MODEL_OF_RUN, RANDOM: self.random}
        return str(folders.get(tuning.start, tuning.start))

    def rows_of(self, task: str, part: str) -> Path:
        """The file with the train or test rows of a task."""
        return next(self.rows.glob(f"{task}-{part}.*"))

    def figures_of(self, name: str) -> Path:
        """The file with the figures of a fine-tuning, or of FILLED or MASKED_WORDS."""
        return self.measured / f"{name}.json"

    def add_seconds(self, stage: str, seconds: float) -> None:
        """Record that a stage has taken so much time, in addition to what it took before it was interrupted."""
        times = self.read_seconds()
        write_file(self.seconds, json.dumps({**times, stage: round(times.get(stage, 0.0) + seconds, 1)}) + "\n")

    def read_seconds(self) -> dict[str, float]:
        return read_json(self.seconds) if self.seconds.exists() else {}


@contextmanager
def open_demo(settings: DemoSettings) -> Iterator[Demo]:
    """The demo in `settings.out`, new or to be continued, locked while the block runs.

    UsageError if the folder holds something else, or a demo with other settings.
    """
    demo = Demo(settings)
    _require_usable(demo)
    with locked_folder(demo.path):
        if not demo.record.exists():
            write_file(demo.record, json.dumps({"format": FORMAT, **_decisive(settings)}) + "\n")
        yield demo


def _decisive(settings: DemoSettings) -> dict[str, object]:
    """The settings that decide what a demo computes."""
    return settings.model_dump(include={"quick", "steps"})


def _require_usable(demo: Demo) -> None:
    if demo.path.exists() and not demo.path.is_dir():
        raise UsageError("is a file, not a folder", where=demo.path, remedy="choose another --out")
    if not demo.record.exists():
        if any(path.name[0] != "." for path in demo.path.glob("*")):
            raise UsageError("is neither a demo nor empty", where=demo.path, remedy="choose another --out")
        return
    recorded = read_json(demo.record)
    require_format(recorded.pop("format", None), FORMAT, demo.record)
    if recorded != _decisive(demo.settings):
        what = "holds a demo with other settings (--quick, --steps)"
        raise UsageError(what, where=demo.path, remedy="repeat them, or choose another --out")
