"""The data summary reports rows, lengths, labels and dev rows that also occur in train."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bertmill.rows.summary import quantiles, summarize
from tests.rows.factory import LabeledRow, read_labeled, row_file


def count_words(text: str) -> int:
    return len(text.split())


def one_label(row: LabeledRow) -> tuple[str, ...]:
    return (row.label,)


def split_label(row: LabeledRow) -> tuple[str, ...]:
    return tuple(filter(None, row.label.split("|")))


def rows_of(*labels: str) -> list[LabeledRow]:
    return [LabeledRow(f"a:{number}", (f"text {number}",), label) for number, label in enumerate(labels, start=1)]


def test_the_summary_lists_counts_and_sample_rows() -> None:
    train = [
        LabeledRow("train:1", ("one",), "good"),
        LabeledRow("train:2", ("one two\nthree",), "bad"),
        LabeledRow("train:3", ("x " * 100,), "good"),
        LabeledRow("train:4", ("one two",), "good"),
    ]
    dev = [LabeledRow("dev:1", ("one two",), "odd")]
    assert list(summarize(train, dev, count_words, one_label)) == [
        "train: 4 rows; pieces: min 1, 50% 2, 90% 100, 99% 100, max 100",
        "dev: 1 row; pieces: min 2, 50% 2, 90% 2, 99% 2, max 2",
        "label good: train 3 (75.0%), dev 0 (0.0%)",
        "label bad: train 1 (25.0%), dev 0 (0.0%)",
        "label odd: train 0 (0.0%), dev 1 (100.0%)",
        "1 dev row also occurs in train",
        "train:1, label good",
        "    one",
        "train:3, label good",
        f"    {'x ' * 50}…",
        "train:4, label good",
        "    one two",
    ]


def test_control_characters_in_a_file_name_are_escaped() -> None:
    rows = [LabeledRow("a\x1b[31m\n.tsv:1", ("one",), "good")]
    lines = list(summarize(rows, rows, count_words, one_label))
    assert "a\\x1b[31m\\n.tsv:1, label good" in lines


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=50))
def test_a_quantile_is_the_smallest_length_that_covers_its_fraction_of_the_rows(lengths: list[int]) -> None:
    found = quantiles(lengths)
    assert (found["min"], found["max"]) == (min(lengths), max(lengths))
    for name, percent in (("50%", 50), ("90%", 90), ("99%", 99)):
        reached = [
            length for length in sorted(lengths) if 100 * sum(n <= length for n in lengths) >= percent * len(lengths)
        ]
        assert found[name] == reached[0]


def test_the_length_of_a_row_is_that_of_all_its_texts() -> None:
    row = LabeledRow("a:1", ("a b", "c", "d e f"), "g")
    lines = list(summarize([row], [row], count_words, one_label))
    assert lines[0] == "train: 1 row; pieces: min 6, 50% 6, 90% 6, 99% 6, max 6"
    assert lines[-3:] == ["    a b", "    c", "    d e f"]


def test_only_twenty_labels_are_listed() -> None:
    rows = rows_of(*(f"label{number}" for number in range(23)))
    lines = list(summarize(rows, rows, count_words, one_label))
    assert sum(line.startswith("label ") for line in lines) == 20
    assert "… and 3 more labels" in lines


def test_many_numbers_are_summarized_by_their_range() -> None:
    lines = list(summarize(rows_of(*map(str, range(30)), "29"), rows_of("2.5"), count_words, one_label))
    assert lines[2:4] == [
        "labels of train: from 0 to 29, mean 14.97",
        "labels of dev: from 2.5 to 2.5, mean 2.5",
    ]


def test_labels_are_counted_if_one_of_them_is_not_a_number() -> None:
    lines = list(summarize(rows_of(*map(str, range(30))), rows_of("other"), count_words, one_label))
    assert "label 0: train 1 (3.3%), dev 0 (0.0%)" in lines


def test_rows_without_labels_have_no_range() -> None:
    lines = list(summarize(rows_of(*map(str, range(30))), rows_of(""), count_words, split_label))
    assert [line for line in lines if line.startswith("labels")] == ["labels of train: from 0 to 29, mean 14.5"]


def test_every_label_of_a_row_is_counted_and_a_sample_may_have_no_label() -> None:
    rows = rows_of("", "a", "a|b", "a|b")
    lines = list(summarize(rows, rows, count_words, split_label))
    assert lines[2:4] == ["label a: train 3 (75.0%), dev 3 (75.0%)", "label b: train 2 (50.0%), dev 2 (50.0%)"]
    assert [line for line in lines if line.startswith("a:")] == [
        "a:1, label none",
        "a:3, label a, b",
        "a:4, label a, b",
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    row = LabeledRow("a:1", ("one\x1b[31m\ntwo",), "x\x07")
    lines = list(summarize([row], [row], count_words, one_label))
    assert all(line.isprintable() for line in lines)


def test_texts_in_both_train_and_dev_are_found(data: Path) -> None:
    train, dev = (
        list(read_labeled(row_file(data / f"chnsenticorp/{part}.tsv", columns="text=1,label=2")))
        for part in ("train", "dev")
    )
    assert "338 dev rows also occur in train" in summarize(train, dev, len, one_label)
