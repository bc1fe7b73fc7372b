"""The first look counts what is there."""

from pathlib import Path

from bertmill.tasks.choose import Choose
from bertmill.tasks.classify import Classify
from bertmill.tasks.first_look import FirstLook
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import read_labelled


def count_words(text: str) -> int:
    return len(text.split())


def labels_of(row: LabelledRow) -> tuple[str, ...]:
    assert isinstance(row.label, str)
    return (row.label,)


def rows_of(*labels: str | tuple[str, ...]) -> list[LabelledRow]:
    return [LabelledRow(f"a:{i}", (f"text {i}",), label) for i, label in enumerate(labels, start=1)]


def test_a_look_in_words() -> None:
    train = [
        LabelledRow("train:1", ("one",), "good"),
        LabelledRow("train:2", ("one two\nthree",), "bad"),
        LabelledRow("train:3", ("x " * 100,), "good"),
        LabelledRow("train:4", ("one two",), "good"),
    ]
    dev = [LabelledRow("dev:1", ("one two",), "odd")]
    assert FirstLook.at(train, dev, count_words, labels_of).lines() == [
        "train: 4 rows; pieces: least 1, 50 % 2, 90 % 100, 99 % 100, most 100",
        "dev: 1 rows; pieces: least 2, 50 % 2, 90 % 2, 99 % 2, most 2",
        "label good: train 3 (75.0%), dev 0 (0.0%)",
        "label bad: train 1 (25.0%), dev 0 (0.0%)",
        "label odd: train 0 (0.0%), dev 1 (100.0%)",
        "rows of dev whose texts stand in train as well: 1",
        "train:1, label good",
        "    one",
        "train:3, label good",
        f"    {'x ' * 50}…",
        "train:4, label good",
        "    one two",
    ]


def test_quantiles_are_lengths_that_so_many_rows_do_not_exceed() -> None:
    rows = [LabelledRow("a:1", ("x " * length,), "l") for length in range(100, 0, -1)]
    look = FirstLook.at(rows, rows, count_words, labels_of)
    assert list(look.parts["train"].lengths.values()) == [1, 50, 90, 99, 100]


def test_a_row_is_as_long_as_its_texts_and_its_longest_choice() -> None:
    row = LabelledRow("a:1", ("a b", "c"), "g", ("d e f", "g"))
    look = FirstLook.at([row], [row], count_words, Choose().labels_of)
    assert look.parts["train"].lengths["most"] == 6
    assert look.parts["train"].labels == {"choice 1": 1}  # from 0 on, as answers count
    assert look.lines()[-4:] == ["    a b", "    c", "    choice: d e f", "    choice: g"]


def test_only_twenty_labels_are_listed() -> None:
    rows = rows_of(*(f"label{number}" for number in range(23)))
    lines = FirstLook.at(rows, rows, count_words, labels_of).lines()
    assert sum(line.startswith("label ") for line in lines) == 20
    assert "… and 3 more" in lines


def test_many_numbers_are_a_range() -> None:
    look = FirstLook.at(rows_of(*map(str, range(30)), "29"), rows_of("2.5"), count_words, labels_of)
    assert look.lines()[2:4] == [
        "labels of train: from 0 to 29, 14.97 on average",
        "labels of dev: from 2.5 to 2.5, 2.5 on average",
    ]


def test_numbers_beside_a_word_are_counted() -> None:
    lines = FirstLook.at(rows_of(*map(str, range(30))), rows_of("other"), count_words, labels_of).lines()
    assert "label 0: train 1 (3.3%), dev 0 (0.0%)" in lines


def test_a_part_without_labels_has_no_range() -> None:
    several = Classify(tuple(map(str, range(30))), multi_label=True)
    look = FirstLook.at(rows_of(*several.labels), rows_of(()), count_words, several.labels_of)
    assert [line for line in look.lines() if line.startswith("labels")] == [
        "labels of train: from 0 to 29, 14.5 on average"
    ]


def test_several_labels_count_each_and_none_count_nothing() -> None:
    several = Classify(("a", "b"), multi_label=True)
    rows = rows_of(("a", "b"), ("a",), (), "a|b")
    look = FirstLook.at(rows, rows, count_words, several.labels_of)
    assert look.parts["train"].labels == {"a": 3, "b": 2}


def test_texts_in_both_parts_are_found(data: Path) -> None:
    train, dev = (list(read_labelled(str(data / f"chnsenticorp/{part}.tsv"))) for part in ("train", "dev"))
    assert FirstLook.at(train, dev, len, labels_of).num_shared == 338
