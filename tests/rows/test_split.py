"""A split is a function of seed and texts: no text on both sides, every label in training."""

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bertmill.errors import DataError
from bertmill.tasks.answer import AnswerQuestions
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.reading import read_labelled
from bertmill.tasks.split import split_rows

ROWS = st.lists(
    st.builds(LabelledRow, st.just("a:1"), st.tuples(st.sampled_from("abcdefghijklmnop")), st.sampled_from("xyz")),
    min_size=2,
    max_size=60,
)


def make_rows(num_rows: int, num_labels: int) -> list[LabelledRow]:
    return [LabelledRow(f"a:{number}", (f"text {number}",), str(number % num_labels)) for number in range(num_rows)]


@given(rows=ROWS, share=st.floats(0.05, 0.95), seed=st.integers(0, 5), stratify=st.booleans())
def test_every_row_is_on_one_side_and_no_text_on_both(
    rows: list[LabelledRow], share: float, seed: int, stratify: bool
) -> None:
    try:
        train, dev = split_rows(rows, share, seed, stratify=stratify)
    except DataError:
        assume(False)
    assert Counter(train) + Counter(dev) == Counter(rows)
    assert dev
    assert not {row.texts for row in train} & {row.texts for row in dev}
    if stratify:
        assert {row.label for row in train} == {row.label for row in rows}


def test_the_order_of_rows_does_not_matter() -> None:
    rows = make_rows(300, 3)
    train, dev = split_rows(rows, 0.2, seed=1)
    shuffled = random.Random(0).sample(rows, len(rows))
    assert [set(part) for part in split_rows(shuffled, 0.2, seed=1)] == [set(train), set(dev)]
    assert dev == [row for row in rows if row in dev]  # as they stand in the file
    assert split_rows(rows, 0.2, seed=1) == (train, dev)
    assert split_rows(rows, 0.2, seed=2) != (train, dev)


def test_what_several_rows_ask_about_stands_on_one_side() -> None:
    rows = [
        LabelledRow(f"a:{number}", (f"premise {number // 3}", f"other {number}"), str(number % 3))
        for number in range(90)
    ]
    train, dev = split_rows(rows, 0.2, seed=0)
    assert not {row.texts[0] for row in train} & {row.texts[0] for row in dev}
    questions = [LabelledRow(row.place, row.texts[::-1], row.label) for row in rows]
    train, dev = split_rows(questions, 0.2, seed=0, stratify=False, subject=AnswerQuestions().subject)
    assert not {row.texts[1] for row in train} & {row.texts[1] for row in dev}


def test_labels_keep_their_proportion(data: Path) -> None:
    rows = list(read_labelled(str(data / "sms_spam/SMSSpamCollection")))
    train, dev = split_rows(rows, 0.1, seed=7)
    in_dev = Counter(row.label for row in dev)
    for label, count in Counter(row.label for row in rows).items():
        assert abs(in_dev[label] - count / 10) <= 2
    assert len(train) + len(dev) == len(rows)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.5])
def test_a_text_with_many_rows_does_not_swallow_the_share(share: float) -> None:
    sizes = [100, *[1] * 20, *[7] * 20]
    rows = [LabelledRow("a:1", (f"text {text}",)) for text, size in enumerate(sizes) for _ in range(size)]
    for seed in range(5):
        _, dev = split_rows(rows, share, seed, stratify=False)
        assert len(dev) == pytest.approx(share * len(rows), abs=4)  # half of a text of 7


def test_many_small_labels_give_their_part() -> None:
    train, dev = split_rows(make_rows(400, 100), 0.1, seed=0)
    assert len(dev) == pytest.approx(40, abs=1)
    assert len({row.label for row in train}) == 100


def test_numbers_are_drawn_whatever_they_are() -> None:
    rows = [LabelledRow(f"a:{number}", (f"text {number}",), str(number / 7)) for number in range(100)]
    train, dev = split_rows(rows, 0.25, seed=0, stratify=False)
    assert (len(train), len(dev)) == (75, 25)


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(DataError, match=r"100 rows with .* different texts: too few of one label to keep 0.25 back"):
        split_rows(make_rows(100, 100), 0.25, seed=0)  # each label is needed in training
