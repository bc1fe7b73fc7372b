"""The data of a fine-tuning: labels of all rows, bad rows told or counted, flags that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bertmill.config.commands import FinetuneSettings, PredictSettings, RowSettings
from bertmill.config.reading import read_settings
from bertmill.errors import DataError, UsageError
from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from bertmill.tasks.datasets import Dataset, examples_of, read_dataset
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import RowCounts
from bertmill.text.tokenizer import BertTokenizer


def flags_of(task: str, **more: Any) -> dict[str, Any]:
    return {"task": task, "model": "minilm", "train": "rows.tsv", "out": "run", **more}


def read(tmp_path: Path, lines: list[str], task: str = "classify", **more: Any) -> Dataset:
    file = tmp_path / "rows.tsv"
    file.write_text("".join(f"{line}\n" for line in ["text\tlabel", *lines]), encoding="utf-8")
    settings = read_settings(FinetuneSettings, flags_of(task, **{"train": file, **more}))
    return read_dataset(settings, BertTokenizer.from_pretrained("minilm"))


def test_a_rare_label_may_be_in_any_part(tmp_path: Path) -> None:
    lines = [f"text {number}\t{'a|b' if number % 2 else ''}" for number in range(20)]
    for place in range(20):
        rare = [*lines[:place], f"text {place}\trare", *lines[place + 1 :]]
        data = read(tmp_path, rare, multi_label=True, dev="0.3")
        assert isinstance(data.task, Classify)
        assert data.task.labels == ("a", "b", "rare")
        assert (0.0, 0.0, 0.0) in [example.target for example in data.train]


@pytest.mark.parametrize(
    ("task", "share", "bad", "reason", "what"),
    [
        ("regress", True, "high", "label is not a number", "'high' is not a number; correct it, or use classify"),
        ("regress", False, "high", "label is not a number", "'high' is not a number; correct it, or use classify"),
        ("classify", False, "x", "unknown label", "the label 'x' is not one of 0, 1; correct it, or train"),
    ],
)
def test_a_label_that_makes_no_sense_is_a_bad_row(
    tmp_path: Path, task: str, share: bool, bad: str, reason: str, what: str
) -> None:
    lines = [f"text {number}\t{number % 2}" for number in range(40)]
    other = tmp_path / "dev.tsv"
    other.write_text("".join(f"{line}\n" for line in ["text\tlabel", *lines, f"odd\t{bad}"]), encoding="utf-8")
    rows, dev = ([*lines, f"odd\t{bad}"], "0.5") if share else (lines, str(other))
    place = f"{tmp_path / ('rows.tsv' if share else 'dev.tsv')}:42"
    with pytest.raises(DataError, match=re.escape(f"{place}: {what}")) as caught:
        read(tmp_path, rows, task, dev=dev)
    assert str(caught.value).endswith("or skip such rows with --on-bad-row skip")
    data = read(tmp_path, rows, task, dev=dev, on_bad_row="skip")
    assert data.remarks[-1] == f"skipped in {place.removesuffix(':42')}: 1 of 41 rows ({reason} 1)"


def test_numbers_that_are_all_the_same_teach_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.tsv: all rows have the same number"):
        read(tmp_path, [f"text {number}\t2.5" for number in range(40)], "regress")


def test_too_many_bad_rows_name_the_training_file(tmp_path: Path) -> None:
    lines = [f"text {number}\t{number if number % 5 else 'x'}" for number in range(40)]
    with pytest.raises(DataError, match=rf"{tmp_path / 'rows.tsv'}: too many rows are bad"):
        read(tmp_path, lines, "regress", dev="0.5", on_bad_row="skip")


def test_what_was_repaired_is_said(tmp_path: Path) -> None:
    data = read(tmp_path, ["one\tno\r", "two\x00\tyes\r", "three\tno\r", "four\tyes\r"], dev="0.5")
    assert data.remarks[-1] == f"repaired in {tmp_path / 'rows.tsv'}: 1 nuls, 4 carriage returns"


@pytest.mark.parametrize(
    ("task", "more", "metric"),
    [
        ("classify", {"preset": None}, "accuracy"),
        ("classify", {"metric": "f1"}, "f1"),
        ("classify", {"multi_label": True}, "micro_f1"),
        ("regress", {}, "pearson"),
    ],
)
def test_the_metric_is_one_of_the_task(tmp_path: Path, task: str, more: dict[str, Any], metric: str) -> None:
    lines = [f"text {number}\t{number % 2}" for number in range(20)]
    assert read(tmp_path, lines, task, dev="0.5", **more).metric == metric


@pytest.mark.parametrize(("task", "metric"), [("classify", "matthews"), ("regress", "pearson")])
def test_the_metric_of_a_preset_is_taken_where_the_task_has_it(tmp_path: Path, task: str, metric: str) -> None:
    file = tmp_path / "cola.tsv"
    file.write_text("".join(f"gj04\t{number % 2}\t\ttext {number}\n" for number in range(20)), encoding="utf-8")
    settings = read_settings(FinetuneSettings, flags_of(task, train=file, preset="cola", dev="0.5"))
    assert read_dataset(settings, BertTokenizer.from_pretrained("minilm")).metric == metric


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (flags_of("regress", multi_label=True), "are for classify alone"),
        (flags_of("choose", class_weights="balanced"), "are for classify alone"),
        (flags_of("classify", multi_label=True, label_smoothing=0.1), "are for one label per text"),
        (flags_of("classify", dev="1.5"), "should be a share between 0 and 1"),
    ],
)
def test_flags_of_finetune_that_do_not_fit_are_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(FinetuneSettings, flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "either a file"),
        ({"file": "-", "text": "a"}, "either a file"),
        ({"file": "-", "pair": "a"}, "go with --text"),
        ({"file": "-", "choice": ["a", "b"]}, "go with --text"),
        ({"text": " "}, "must not be empty"),
    ],
)
def test_flags_of_predict_that_do_not_fit_are_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings(PredictSettings, {"model": "run/model", **flags})


def test_a_file_that_is_measured_on_too_is_counted_by_itself(tmp_path: Path) -> None:
    lines = [*(f"text {number}\t{number % 2}" for number in range(40)), "odd\thigh"]
    data = read(tmp_path, lines, "regress", dev=str(tmp_path / "rows.tsv"), on_bad_row="skip")
    assert data.remarks[-2:] == [f"skipped in {tmp_path / 'rows.tsv'}: 1 of 41 rows (label is not a number 1)"] * 2


def test_rows_that_a_task_cannot_use_end_an_endless_file() -> None:
    counts = RowCounts()

    def endless() -> Iterator[LabelledRow]:
        for number in count(1):
            assert number <= 1000
            counts.num_rows += 1
            yield LabelledRow(f"-:{number}", ("a text without choices",))

    with pytest.raises(DataError, match=r"too many rows are bad, more than 5%: 1,000 of 1,000 rows \(no choices"):
        list(examples_of(Choose(), endless(), RowSettings(on_bad_row="skip"), counts, "-"))


def test_classes_that_are_numbers_and_a_small_part_to_measure_on_are_remarked(tmp_path: Path) -> None:
    data = read(tmp_path, [f"text {number}\t{number / 7}" for number in range(50)] + ["text\t0.0"], dev="0.2")
    assert data.remarks[-2] == "labels are 50 numbers, each a class of its own: regress learns values"
    why = "rows about one text stay together, and the only text of a label is trained on"
    assert data.remarks[-1] == f"fewer rows than asked for could be kept back, 1: {why}"
