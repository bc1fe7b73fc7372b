"""The data of a fine-tuning run: reads, splits and encodes train and dev rows, and summarizes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bertmill.batching.windows import Windows
from bertmill.config.commands import FinetuneSettings
from bertmill.config.fields import heldout_share
from bertmill.config.reading import unknown_name
from bertmill.errors import DataError
from bertmill.rows.columns import PRESET_METRICS
from bertmill.rows.row import Row
from bertmill.rows.source import RowFile
from bertmill.rows.split import split_rows
from bertmill.rows.summary import summarize
from bertmill.rows.trained import recorded_rows
from bertmill.tasks.base import AnyTask, Example, encode_rows
from bertmill.text.printable import counted, escaped

SPLIT_SEED = 0  # the dev rows do not depend on the training seed
DEV_SHARE = 0.1  # of the rows, if there are enough of them
CROSS_VALIDATION = "cross-validation"
CROSS_VALIDATE_BELOW = 3000  # rows, since a tenth of them says little about a model
MIN_DEV_ROWS = 50  # to select a checkpoint, unless the user has set the dev rows
MAX_UNKNOWN_SHARE = 0.05  # of the pieces, without a warning

MayCrossValidate = Callable[[AnyTask, Sequence[Row]], bool]


@dataclass(frozen=True)
class Dataset:
    """Encoded rows for training and evaluation, and the task that encoded them."""

    task: AnyTask
    metric: str  # selects the best checkpoint
    train: list[Example]
    dev: list[Example]  # empty: every training row is judged by models of the other rows
    remarks: list[str]  # shown to the user before training
    rows: dict[str, Any]  # how they were read, for bertmill.json
    warnings: list[str] = field(default_factory=list)
    selects: bool = True  # whether the dev rows may select a checkpoint
    # Whether a probe that is kept is fitted to the dev rows too, since the user has not set them apart.
    refits: bool = False

    @property
    def judged_on(self) -> str:
        """The rows that models are judged by."""
        return "dev" if self.dev else CROSS_VALIDATION


def read_dataset(
    settings: FinetuneSettings,
    kind: type[AnyTask],
    windows: Windows,
    remark: Callable[[str], None],
    *,
    may_cross_validate: MayCrossValidate = lambda _task, _rows: True,
) -> Dataset:
    """Read the rows that `settings` name and encode them for a task of the class `kind`.

    If `dev` is not set, few rows are not split if `may_cross_validate` agrees. If the rows are unusable, `remark`
    receives the notices about the files before the error is raised.
    """
    train_file = RowFile(str(settings.train), settings, tags=settings.tags)
    dev_file = train_file
    if settings.dev is not None and heldout_share(settings.dev) is None:
        dev_file = RowFile(settings.dev, settings, tags=settings.dev_tags)
    try:
        return _read_files(settings, kind, windows, train_file, dev_file, may_cross_validate)
    except DataError:
        for notice in dict.fromkeys([*train_file.counts.notices, *dev_file.counts.notices]):
            remark(escaped(notice))
        raise


def _read_files(
    settings: FinetuneSettings,
    kind: type[AnyTask],
    windows: Windows,
    train_file: RowFile,
    dev_file: RowFile,
    may_cross_validate: MayCrossValidate,
) -> Dataset:
    fraction = DEV_SHARE if settings.dev is None else heldout_share(settings.dev)
    train = list(kind.read(train_file, settings, labeled=True))
    # From all rows, so that a label is known even if its only row becomes a dev row.
    task = kind.from_rows(train, settings, windows.tokenizer, train_file)
    metric = choose_metric(settings, task)
    is_small = bool(kind.probe) and len(train) < CROSS_VALIDATE_BELOW
    is_held_out = settings.dev is not None or not is_small or not may_cross_validate(task, train)
    dev: list[Any] = []
    if fraction is None:
        dev_file.trained_columns, dev_file.trained_separator = train_file.columns, train_file.separator
        dev = list(kind.read(dev_file, settings, labeled=True))
    elif is_held_out:
        train, dev = split_rows(train, fraction, SPLIT_SEED, task.split_key, where=train_file.path)
    train_examples = list(encode_rows(task, train, windows, train_file))
    dev_examples = list(encode_rows(task, dev, windows, dev_file))
    if not train_examples or (is_held_out and not dev_examples):
        raise DataError("no usable rows are left for training or for evaluation", where=dev_file.path)
    if not dev_examples and len(train_examples) == 1:
        raise DataError("there is only one row", where=train_file.path, remedy="add rows to train and evaluate on")
    summary = summarize(
        [example.row for example in train_examples],
        [example.row for example in dev_examples],
        cache(lambda text: len(windows.ids(text))),  # many questions share a passage
        task.labels,
    )
    unknown = _share_of(windows.tokenizer.unk_token_id, train_examples)
    known_facts = [*summary, f"unknown pieces ([UNK]): {unknown:.2%}"]
    remarks = [*known_facts, *train_file.counts.remarks(f" in {escaped(train_file.path)}")]
    if fraction is None:
        remarks += dev_file.counts.remarks(f" in {escaped(dev_file.path)}")
    elif is_held_out and len(dev) < fraction * (len(train) + len(dev)) / 2:
        why = "rows with the same text stay together, and every label keeps a text to train on"
        remarks.append(f"only {counted(len(dev), 'row')} could be held out for dev: {why}")
    remarks += [windows.remark] if windows.remark else []
    warnings = []
    if unknown > MAX_UNKNOWN_SHARE:
        warnings.append(
            f"{unknown:.0%} of the pieces are unknown ([UNK]), because the vocabulary of the model lacks their "
            "characters; use a model that was trained on texts in this language, or pre-train one"
        )
    if settings.dev is not None and len(dev_examples) < MIN_DEV_ROWS:
        warnings.append(
            f"only {counted(len(dev_examples), 'dev row')}: too few to choose a model by, and the result on them is "
            "optimistic"
        )
    selects = settings.dev is not None or len(dev_examples) >= MIN_DEV_ROWS
    rows = recorded_rows(train_file)
    refits = settings.dev is None and bool(dev_examples)
    return Dataset(task, metric, train_examples, dev_examples, remarks, rows, warnings, selects, refits)


def _share_of(piece_id: int, examples: list[Example]) -> float:
    """The share of a piece among the pieces of the examples."""
    windows = [window.ids for example in examples for of_sequence in example.sequences for window in of_sequence]
    return sum(int((ids == piece_id).sum()) for ids in windows) / max(1, sum(map(len, windows)))


def choose_metric(settings: FinetuneSettings, task: AnyTask) -> str:
    """The metric that selects the best checkpoint: the given one, the preset's, or the task's default."""
    if settings.metric is None:
        usual = PRESET_METRICS.get(settings.preset or "")
        return usual if usual in task.selection_metrics else task.selection_metrics[0]
    if settings.metric not in task.selection_metrics:
        raise unknown_name("metric", settings.metric, task.selection_metrics)
    return settings.metric
