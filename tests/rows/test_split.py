"""A split depends only on the seed and the texts: no subject is on both sides, every stratum is in training."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertmill.errors import DataError
from bertmill.rows.split import SplitKey, split_into_folds, split_rows
from tests.rows.factory import read_labeled, row_file

Row = tuple[str, str]  # text and label
ROWS = st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.sampled_from("xyz")), min_size=2, max_size=60)


def stratified(row: Row) -> SplitKey:
    return SplitKey(*row)


def by_text(row: Row) -> SplitKey:
    return SplitKey(row[0])


def make_rows(num_rows: int, num_labels: int) -> list[Row]:
    return [(f"text {number}", str(number % num_labels)) for number in range(num_rows)]


@given(rows=ROWS, share=st.floats(0.05, 0.95), seed=st.integers(0, 5), stratify=st.booleans())
def test_every_row_is_on_one_side_and_no_text_on_both(rows: list[Row], share: float, seed: int, stratify: bool) -> None:
    try:
        train, dev = split_rows(rows, share, seed, stratified if stratify else by_text)
    except DataError:
        assume(False)
    assert Counter(train) + Counter(dev) == Counter(rows)
    assert dev
    assert not {text for text, _ in train} & {text for text, _ in dev}
    if stratify:
        assert {label for _, label in train} == {label for _, label in rows}


@given(rows=ROWS, seed=st.integers(0, 5), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[Row], seed: int, order: random.Random) -> None:
    shuffled = order.sample(rows, len(rows))
    try:
        parts = split_rows(rows, 0.3, seed, stratified)
    except DataError:
        with pytest.raises(DataError):
            split_rows(shuffled, 0.3, seed, stratified)
        return
    assert list(map(Counter, split_rows(shuffled, 0.3, seed, stratified))) == list(map(Counter, parts))


def test_both_sides_keep_the_order_of_the_file_and_depend_on_the_seed() -> None:
    rows = make_rows(300, 3)
    train, dev = split_rows(rows, 0.2, 1, stratified)
    assert train == [row for row in rows if row in set(train)]
    assert dev == [row for row in rows if row in set(dev)]
    assert split_rows(rows, 0.2, 1, stratified) == (train, dev)
    assert split_rows(rows, 0.2, 2, stratified) != (train, dev)


def test_rows_about_one_subject_stay_together() -> None:
    rows = [(f"premise {number // 3}", f"other {number}") for number in range(90)]
    train, dev = split_rows(rows, 0.2, 0, by_text)
    assert not {premise for premise, _ in train} & {premise for premise, _ in dev}
    assert len(dev) == pytest.approx(18, abs=2)


def test_labels_keep_their_proportions(data: Path) -> None:
    file = row_file(data / "sms_spam/SMSSpamCollection")
    rows = [(row.texts[0], row.label) for row in read_labeled(file)]
    train, dev = split_rows(rows, 0.1, 7, stratified)
    in_dev = Counter(label for _, label in dev)
    for label, count in Counter(label for _, label in rows).items():
        assert abs(in_dev[label] - count / 10) <= 2
    assert len(train) + len(dev) == len(rows)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5])
def test_a_text_with_many_rows_does_not_use_up_the_fraction(share: float) -> None:
    sizes = [100, *[1] * 20, *[7] * 20]
    rows = [(f"text {text}", "") for text, size in enumerate(sizes) for _ in range(size)]
    for seed in range(5):
        _, dev = split_rows(rows, share, seed, by_text)
        assert len(dev) == pytest.approx(share * len(rows), abs=4)  # half of a text with 7 rows


def test_many_small_strata_contribute_together() -> None:
    train, dev = split_rows(make_rows(400, 100), 0.1, 0, stratified)
    assert len(dev) == pytest.approx(40, abs=1)
    assert len({label for _, label in train}) == 100


def test_without_strata_the_fraction_is_exact() -> None:
    train, dev = split_rows(make_rows(100, 100), 0.25, 0, by_text)
    assert (len(train), len(dev)) == (75, 25)


def test_too_few_rows_are_rejected() -> None:
    with pytest.raises(DataError) as caught:
        split_rows([("one text", "x")] * 5, 0.25, 0, stratified, where="a.tsv")
    assert str(caught.value) == (
        "a.tsv: 5 rows with 1 different text are too few for a dev fraction of 0.25; provide more rows, or a dev file"
    )


def test_labels_that_occur_only_once_are_the_reason_if_no_row_can_be_held_out() -> None:
    with pytest.raises(DataError) as caught:
        split_rows(make_rows(100, 100), 0.25, 0, stratified, where="a.tsv")  # each label must stay in training
    assert str(caught.value) == (
        "a.tsv: every label occurs with a single text, so no row can be held out; "
        "check the label column (for numbers, use regress), or provide a dev file"
    )


@given(
    st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("xyz")), min_size=1, max_size=60),
    st.integers(2, 5),
)
def test_folds_are_a_partition_that_keeps_subjects_together(pairs: list[tuple[str, str]], num_folds: int) -> None:
    rows = [SplitKey(*pair) for pair in pairs]
    folds = split_into_folds(rows, num_folds, 0, lambda row: row)
    assert sorted(number for fold in folds for number in fold) == list(range(len(rows)))
    of_subject: dict[str, set[int]] = {}
    for place, fold in enumerate(folds):
        for number in fold:
            of_subject.setdefault(rows[number].subject, set()).add(place)
    assert all(len(places) == 1 for places in of_subject.values())


def test_folds_are_stratified_and_do_not_depend_on_the_order_of_the_rows() -> None:
    rows = [SplitKey(f"text {number}", "spam" if number % 10 == 0 else "ham") for number in range(100)]
    folds = split_into_folds(rows, 5, 0, lambda row: row)
    assert [sum(rows[number].stratum == "spam" for number in fold) for fold in folds] == [2] * 5
    assert [len(fold) for fold in folds] == [20] * 5
    backwards = split_into_folds(rows[::-1], 5, 0, lambda row: row)
    assert [{rows[number] for number in fold} for fold in folds] == [
        {rows[::-1][number] for number in fold} for fold in backwards
    ]
