"""The data of a fine-tuning: files read, the part to measure on chosen, the task made, and a first look in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from bertmill.config.commands import FinetuneSettings, RowSettings
from bertmill.config.fields import heldout_share
from bertmill.errors import DataError
from bertmill.tasks.base import Example, Task
from bertmill.tasks.first_look import FirstLook
from bertmill.tasks.kinds import choose_metric, make_task
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import BadRowError
from bertmill.tasks.reading import RowCounts, read_labelled
from bertmill.tasks.split import split_rows
from bertmill.text.tokenizer import BertTokenizer

SPLIT_SEED = 0  # the same rows are measured on whatever the seed of the training is


@dataclass(frozen=True)
class Dataset:
    task: Task
    metric: str  # by which the best checkpoint is chosen
    train: list[Example]
    dev: list[Example]
    remarks: list[str]  # what a person should know about the data before it is used


def read_dataset(settings: FinetuneSettings, tokenizer: BertTokenizer) -> Dataset:
    """Everything `settings` name, in memory."""
    share = heldout_share(settings.dev)
    train_file = str(settings.train)
    dev_file = settings.dev if share is None else train_file
    train_counts = RowCounts()
    dev_counts = RowCounts() if share is None else train_counts

    def rows_of(file: str, counts: RowCounts) -> list[LabelledRow]:
        return list(read_labelled(file, settings, counts, task=settings.task, may_have_no_label=settings.multi_label))

    train = rows_of(train_file, train_counts)
    # With all labels of the file, also where its only row will be measured on.
    task = make_task(settings, train, tokenizer)
    metric = choose_metric(settings, task)
    if share is None:
        dev = rows_of(dev_file, dev_counts)
    else:
        stratify = task.keeps_proportions
        train, dev = split_rows(train, share, SPLIT_SEED, subject=task.subject, stratify=stratify, file=train_file)
    of_train = list(examples_of(task, train, settings, train_counts, train_file))
    of_dev = list(examples_of(task, dev, settings, dev_counts, dev_file))
    if not of_train or not of_dev:
        raise DataError("no good row is left to train with or to measure on", where=dev_file)
    look = FirstLook.at(
        [example.row for example in of_train],
        [example.row for example in of_dev],
        cache(lambda text: len(tokenizer.wordpiece.ids(text, split_special=True))),  # passages have many questions
        task.labels_of,
    )
    remarks = [*look.lines(), *task.remarks()]
    remarks += train_counts.remarks(f" in {train_file}")
    if share is None:
        remarks += dev_counts.remarks(f" in {dev_file}")
    elif len(dev) < share * (len(train) + len(dev)) / 2:
        why = "rows about one text stay together"
        if task.keeps_proportions:
            why += ", and the only text of a label is trained on"
        remarks.append(f"fewer rows than asked for could be kept back, {len(dev):,}: {why}")
    return Dataset(task, metric, of_train, of_dev, remarks)


def examples_of(
    task: Task, rows: Iterable[LabelledRow], settings: RowSettings, counts: RowCounts, file: str
) -> Iterator[Example]:
    """What `task` makes of the rows; one whose label it does not know is a bad row."""
    for row in rows:
        try:
            example = task.example(row)
        except BadRowError as problem:
            counts.skip_or_stop(problem, row.place, settings, file)
            continue
        yield example
    counts.refuse_many(file)
