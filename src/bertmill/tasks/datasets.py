"""The data of a fine-tuning: files read, the part to measure on chosen, the task made, and a first look in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bertmill.config import FinetuneSettings, RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.tasks.base import Example, Task
from bertmill.tasks.first_look import FirstLook
from bertmill.tasks.kinds import make_task
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import SkippedRows, read_labelled
from bertmill.tasks.split import split_rows
from bertmill.text.tokenizer import BertTokenizer

SPLIT_SEED = 0  # the same rows are measured on whatever the seed of the training is


@dataclass(frozen=True)
class Dataset:
    task: Task
    train: list[Example]
    dev: list[Example]
    remarks: list[str]  # what a person should know about the data before it is used


def read_dataset(settings: FinetuneSettings, tokenizer: BertTokenizer) -> Dataset:
    """Everything `settings` name, in memory."""
    share = share_of(settings.dev)
    of_train = SkippedRows()
    skipped = {"train": of_train, "dev": SkippedRows() if share is None else of_train}
    train = list(labelled_rows(str(settings.train), settings, skipped["train"]))
    if share is None:
        dev = list(labelled_rows(settings.dev, settings, skipped["dev"]))
    else:
        train, dev = split_rows(
            train, share, SPLIT_SEED, stratify=settings.task == "classify" and not settings.multi_label
        )
    task = make_task(settings, train)
    examples = {
        name: list(examples_of(task, rows, settings, skipped[name], file))
        for name, rows, file in (("train", train, str(settings.train)), ("dev", dev, settings.dev))
    }
    look = FirstLook.at(
        [example.row for example in examples["train"]],
        [example.row for example in examples["dev"]],
        lambda text: len(tokenizer.wordpiece.ids(text, split_special=True)),
        task.labels_of,
    )
    files = {"train": str(settings.train), **({"dev": settings.dev} if share is None else {})}
    remarks = [f"skipped in {file}: {skipped[name]}" for name, file in files.items() if skipped[name]]
    return Dataset(task, examples["train"], examples["dev"], [*look.lines(), *remarks])


def share_of(dev: str) -> float | None:
    """`--dev 0.1` is a share, anything that is not a number is a file."""
    try:
        share = float(dev)
    except ValueError:
        return None
    if not Path(dev).exists() and not 0 < share < 1:
        raise UsageError(f"--dev {dev} is no share between 0 and 1, and no file")
    return None if Path(dev).exists() else share


def labelled_rows(
    file: str, settings: RowSettings, skipped: SkippedRows, *, need_label: bool = True
) -> Iterator[LabelledRow]:
    """The rows of a file as the settings say that it is to be read."""
    return read_labelled(
        file,
        columns=settings.columns,
        preset=settings.preset,
        quotes=settings.quotes,
        on_bad_row=settings.on_bad_row,
        need_label=need_label,
        skipped=skipped,
    )


def examples_of(
    task: Task, rows: Iterable[LabelledRow], settings: RowSettings, skipped: SkippedRows, file: str
) -> Iterator[Example]:
    """What `task` makes of the rows; one whose label it does not know is a bad row."""
    for row in rows:
        try:
            example = task.example(row)
        except DataError:
            if settings.on_bad_row == "stop":
                raise
            skipped.count("unknown label", row.place)
            continue
        yield example
    skipped.refuse_many(file)
