"""The data of a fine-tuning run: labels of all rows, bad rows reported or counted, the metric, notes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bertmill.batching.windows import Windows, make_windows
from bertmill.config.reading import read_settings
from bertmill.errors import DataError, UsageError
from bertmill.tasks import load_task, settings_for
from bertmill.tasks.base import encode_rows
from bertmill.tasks.classify import Classify, ClassRow
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.dataset import Dataset, read_dataset
from tests.rows.factory import row_file, write


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer.from_pretrained("minilm")


class Reader:
    """Reads the data set of a fine-tuning run whose training rows are given as lines, below a header."""

    def __init__(self, folder: Path, tokenizer: BertTokenizer) -> None:
        self.folder = folder
        self.tokenizer = tokenizer
        self.said: list[str] = []

    def __call__(self, lines: list[str], task: str = "classify", **more: Any) -> Dataset:
        train = more.get("train") or self.write("rows.tsv", lines)
        given = {"task": task, "model": "minilm", "out": "run", **more, "train": train}
        settings = read_settings(settings_for(task), given)
        kind = load_task(task)
        windows = make_windows(settings, self.tokenizer, 512, *kind.Options.window)
        return read_dataset(settings, kind, windows, self.said.append)

    def write(self, name: str, lines: list[str]) -> str:
        return write(self.folder / name, "".join(f"{line}\n" for line in ["text\tlabel", *lines]))


@pytest.fixture
def read(tmp_path: Path, tokenizer: BertTokenizer) -> Reader:
    return Reader(tmp_path, tokenizer)


def test_a_rare_label_may_be_on_either_side_of_the_split(read: Reader) -> None:
    lines = [f"text {number}\t{'a|b' if number % 2 else ''}" for number in range(20)]
    for place in range(20):
        rare = [*lines[:place], f"text {place}\trare", *lines[place + 1 :]]
        data = read(rare, multi_label=True, dev="0.3")
        assert isinstance(data.task, Classify)
        assert data.task.class_names == ("a", "b", "rare")
        assert (0.0, 0.0, 0.0) in [example.target for example in data.train]


def test_the_split_does_not_depend_on_the_training_seed(read: Reader) -> None:
    lines = [f"text {number}\t{number % 2}" for number in range(40)]
    parts = [read(lines, seed=seed, dev="0.25") for seed in (0, 1)]
    texts = [[example.row.texts for example in data.dev] for data in parts]
    assert texts[0] == texts[1]
    assert (len(parts[0].train), len(parts[0].dev)) == (30, 10)


@pytest.mark.parametrize(
    ("task", "has_share", "bad", "reason", "what"),
    [
        (
            "regress",
            True,
            "high",
            "label is not a number",
            "the label 'high' is not a number; correct it, use class",
        ),
        ("regress", False, "high", "label is not a number", "the label 'high' is not a number; correct it, use"),
        ("classify", False, "x", "unknown label 1; unknown: 'x'", "the label 'x' is not one of 0, 1; correct it,"),
    ],
)
def test_a_label_that_the_task_cannot_use_is_a_bad_row(
    read: Reader, task: str, has_share: bool, bad: str, reason: str, what: str
) -> None:
    good = [f"text {number}\t{number % 2}" for number in range(40)]
    other = read.write("dev.tsv", [*good, f"odd\t{bad}"])
    rows, dev, file = (
        ([*good, f"odd\t{bad}"], "0.5", read.folder / "rows.tsv") if has_share else (good, other, Path(other))
    )
    with pytest.raises(DataError, match=re.escape(f"{file}:42: {what}")) as caught:
        read(rows, task, dev=dev)
    assert str(caught.value).endswith("or set `on_bad_row='skip'` to skip such rows")
    data = read(rows, task, dev=dev, on_bad_row="skip")
    assert data.remarks[-1] == f"skipped in {file}: 1 of 41 rows ({reason} 1)"


def test_identical_numbers_cannot_be_learned(read: Reader) -> None:
    with pytest.raises(DataError, match=r"rows\.tsv: all rows have the same number"):
        read([f"text {number}\t2.5" for number in range(40)], "regress")


def test_too_many_bad_rows_name_the_training_file(read: Reader) -> None:
    lines = [f"text {number}\t{number if number % 5 else 'x'}" for number in range(40)]
    with pytest.raises(DataError, match=r"rows\.tsv: more than 5% of the rows are bad: 8 of 40 rows"):
        read(lines, "regress", dev="0.5", on_bad_row="skip")


def test_repairs_are_reported(read: Reader) -> None:
    data = read(["one\tno\r", "two\x00\tyes\r", "three\tno\r", "four\tyes\r"], dev="0.5")
    assert data.remarks[-1] == f"repaired in {read.folder / 'rows.tsv'}: 1 NUL character"


def test_cells_that_look_quoted_are_reported_once_per_file(read: Reader) -> None:
    lines = [f'"text ""{number}"""\t{number % 2}' for number in range(20)]
    warning = "a cell looks CSV-quoted, but quotes are literal here; set `quotes='standard'` if quotes wrap fields"
    data = read(lines, dev="0.5")
    assert [line for line in data.remarks if "CSV" in line] == [f"{read.folder / 'rows.tsv'}:2: {warning}"]
    data = read(lines, dev=read.write("dev.tsv", lines))
    assert [line for line in data.remarks if "CSV" in line] == [
        f"{read.folder / 'rows.tsv'}:2: {warning}",
        f"{read.folder / 'dev.tsv'}:2: {warning}",
    ]


def test_a_dev_file_has_the_columns_of_the_training_rows(read: Reader, tmp_path: Path) -> None:
    lines = [f"text number {number}\t{number % 2}" for number in range(20)]
    train = write(tmp_path / "train.tsv", "".join(f"{line}\n" for line in ["comentario\tlabel", *lines]))
    wide = "".join(f"{number}\t{line}\n" for number, line in enumerate(lines))
    dev = write(tmp_path / "dev.tsv", f"row\tcomentario\tlabel\n{wide}")
    data = read([], train=train, dev=dev)
    assert [example.row.texts for example in data.dev] == [example.row.texts for example in data.train]
    assert f"{dev}: columns as in training: `columns='text=comentario,label=label'`" in data.remarks
    assert data.rows == {"suffix": ".tsv", "columns": {"text": "comentario", "label": "label"}}
    other = write(tmp_path / "other.tsv", "premise\thypothesis\tlabel\na text\tanother\t1\n")
    with pytest.raises(DataError, match=r"other\.tsv:1: the file does not have the columns of the training rows"):
        read([], train=train, dev=other)


@pytest.mark.parametrize(
    ("task", "more", "metric"),
    [
        ("classify", {}, "accuracy"),
        ("classify", {"metric": "f1"}, "f1"),
        ("classify", {"multi_label": True}, "micro_f1"),
        ("regress", {}, "pearson"),
    ],
)
def test_the_metric_is_the_given_one_or_the_first_of_the_task(
    read: Reader, task: str, more: dict[str, Any], metric: str
) -> None:
    lines = [f"text {number}\t{number % 2}" for number in range(20)]
    assert read(lines, task, dev="0.5", **more).metric == metric


def test_an_unknown_metric_gets_a_suggestion(read: Reader) -> None:
    with pytest.raises(
        UsageError, match=r"no metric called 'acuracy'; did you mean accuracy\?; known: accuracy, f1, m"
    ):
        read([f"text {number}\t{number % 2}" for number in range(20)], metric="acuracy")


@pytest.mark.parametrize(("task", "metric"), [("classify", "matthews"), ("regress", "pearson")])
def test_a_preset_selects_its_metric_if_the_task_has_it(read: Reader, task: str, metric: str) -> None:
    content = "".join(f"gj04\t{number % 2}\t\ttext {number}\n" for number in range(20))
    train = write(read.folder / "cola.tsv", content)
    assert read([], task, train=train, preset="cola", dev="0.5").metric == metric


def test_a_file_that_is_also_the_dev_file_is_counted_twice(read: Reader) -> None:
    lines = [*(f"text {number}\t{number % 2}" for number in range(40)), "odd\thigh"]
    file = read.folder / "rows.tsv"
    data = read(lines, "regress", dev=str(file), on_bad_row="skip")
    assert data.remarks[-2:] == [f"skipped in {file}: 1 of 41 rows (label is not a number 1)"] * 2


def test_an_endless_file_of_rows_that_cannot_be_encoded_is_an_error(tokenizer: BertTokenizer) -> None:
    file = row_file("-", on_bad_row="skip")

    def endless() -> Iterator[ClassRow]:
        for number in count(1):
            assert number <= 1000
            file.counts.num_rows += 1
            yield ClassRow(f"-:{number}", ("a text",), "unknown")

    windows = Windows(tokenizer, 512)
    with pytest.raises(DataError, match=r"more than 5% of the rows are bad: 1,000 of 1,000 rows \(unknown label"):
        list(encode_rows(Classify(("a", "b")), endless(), windows, file))


def test_classes_that_are_numbers_and_a_small_dev_set_are_reported(read: Reader) -> None:
    data = read([f"text {number}\t{number / 7}" for number in range(50)] + ["text\t0.0"], dev="0.2")
    assert data.remarks[-2] == "all 50 labels are numbers, and each is a class; use regress to predict a number"
    why = "rows with the same text stay together, and every label keeps a text to train on"
    assert data.remarks[-1] == f"only 1 row could be held out for dev: {why}"


def test_the_data_summary_comes_first(read: Reader) -> None:
    lines = [f"text {number}\t{number % 2}" for number in range(20)]
    data = read(lines, dev=read.write("dev.tsv", lines[:5]))
    assert data.remarks[0].startswith("train: 20 rows; pieces: min ")
    assert data.remarks[1].startswith("dev: 5 rows; pieces: min ")
    assert "5 dev rows also occur in train" in data.remarks


def test_all_labels_of_dev_that_train_does_not_have_are_reported_or_skipped(read: Reader) -> None:
    good = [f"text {number}\t{number % 2}" for number in range(100)]
    dev = read.write("dev.tsv", [*good, "odd\tx", "odder\ty", "oddest\tx"])
    what = "2 labels are not among 0, 1: 'x' (2 rows), 'y' (1 row); correct them, add them to the training data, or"
    with pytest.raises(DataError, match=re.escape(f"{dev}:102: {what} set `on_bad_row='skip'`")):
        read(good, dev=dev)
    data = read(good, dev=dev, on_bad_row="skip")
    assert len(data.dev) == 100
    assert data.remarks[-1] == f"skipped in {dev}: 3 of 103 rows (unknown label 3; unknown: 'x' 2, 'y' 1)"


def test_all_tags_of_dev_that_train_does_not_have_are_reported_or_skipped(read: Reader) -> None:
    train = write(read.folder / "train.conll", "a X\nb Y\n\n" * 40)
    dev = write(read.folder / "dev.conll", "a X\n\n" * 40 + "a P\nb Q\nb P\n\na P\n")
    what = f"{dev}:81, word 1: 2 tags are not among X, Y: 'P' (2 rows), 'Q' (1 row); correct them"
    with pytest.raises(DataError, match=re.escape(what)):
        read([], "tag", train=train, dev=dev)
    data = read([], "tag", train=train, dev=dev, on_bad_row="skip")
    assert data.remarks[-1] == f"skipped in {dev}: 2 of 42 rows (unknown tag 2; unknown: 'P' 2, 'Q' 1)"


def test_notices_about_a_file_come_before_an_error_in_it(read: Reader) -> None:
    train = write(read.folder / "rows.csv", "text;label\na;1,5\nb;2\n")
    with pytest.raises(DataError, match=r"the label '1,5' is not a number; write decimals with a point: 1\.5"):
        read([], "regress", train=train)
    assert read.said == [f"{train}: the columns are separated by semicolons"]
