"""Bad rows are counted by reason; too many of them stop reading."""

from __future__ import annotations

from collections import Counter

import pytest

from bertmill.errors import DataError
from bertmill.rows.bad_rows import BadRowError, RowCounts, UnknownLabelError
from bertmill.text.repair import Repairs


def test_notes_list_corrected_skipped_and_repaired_rows() -> None:
    counts = RowCounts(num_rows=1000, repairs=Repairs(nuls=2), notices=["a notice"])
    counts.corrected["tags"] += 3
    for reason in ("empty text", "empty label", "empty text"):
        counts.skip(BadRowError(reason, reason), "a.tsv:7", "a.tsv", "5%")
    assert list(counts.remarks(" in a.tsv")) == [
        "a notice",
        "corrected in a.tsv: tags 3",
        "skipped in a.tsv: 3 of 1,000 rows (empty text 2, empty label 1)",
        "repaired in a.tsv: 2 NUL characters",
    ]
    assert not list(RowCounts(num_rows=7).remarks())


def with_bad_rows(num_bad: int, num_rows: int) -> RowCounts:
    counts = RowCounts(num_rows=num_rows)
    for number in range(num_bad):
        counts.skip(BadRowError("empty text", "empty"), f"a.tsv:{number + 2}", "a.tsv", "100%")
    return counts


@pytest.mark.parametrize(
    ("limit", "most", "what"),
    [
        ("5%", 5, "more than 5% of the rows are bad"),
        ("7.5%", 7, "more than 7.5% of the rows are bad"),
        ("0", 0, "more bad rows than 0"),
    ],
)
def test_more_bad_rows_than_the_limit_are_too_many_at_the_end(limit: str, most: int, what: str) -> None:
    with_bad_rows(most, 100).require_few_skipped("a.tsv", limit)
    with pytest.raises(DataError) as caught:
        with_bad_rows(most + 1, 100).require_few_skipped("a.tsv", limit)
    assert str(caught.value) == (
        f"a.tsv: {what}: {most + 1} of 100 rows (empty text {most + 1}); "
        "look at a.tsv:2 and check the format and the columns, or raise `max_bad_rows`"
    )


def test_a_file_with_only_bad_rows_is_rejected_whatever_the_limit() -> None:
    with_bad_rows(39, 40).require_few_skipped("a.tsv", "100%")
    with pytest.raises(DataError, match=r"a\.tsv: all rows are bad: 40 of 40 rows \(empty text 40\); look at a\.tsv:2"):
        with_bad_rows(40, 40).require_few_skipped("a.tsv", "100%")


def test_after_a_thousand_rows_too_many_bad_rows_stop_reading_immediately() -> None:
    counts = RowCounts(num_rows=999)
    problem = BadRowError("empty text", "empty")
    for _ in range(100):
        counts.skip(problem, "a.tsv:2", "a.tsv", "5%")
    counts.num_rows = 1000
    with pytest.raises(DataError, match="101 of 1,000 rows"):
        counts.skip(problem, "a.tsv:2", "a.tsv", "5%")


def test_a_limit_on_their_number_stops_reading_immediately() -> None:
    counts = with_bad_rows(2, 3)
    with pytest.raises(DataError, match="more bad rows than 2: 3 of 3 rows"):
        counts.skip(BadRowError("empty text", "empty"), "a.tsv:4", "a.tsv", "2")


def test_the_error_for_an_unknown_label_lists_the_known_labels() -> None:
    problem = UnknownLabelError("tag", {"x": 1}, list("abcdefghijkl"), "a.tsv:3")
    assert problem.reason == "unknown tag"
    assert str(problem) == (
        "a.tsv:3: the tag 'x' is not one of a, b, c, d, e, f, g, h, i, j …; correct it, or add it to the training data"
    )
    assert "not one of a, b;" in str(UnknownLabelError("label", {"x": 1}, ["a", "b"], "a.tsv"))


def test_the_error_for_several_unknown_labels_lists_ten_of_them_with_their_rows() -> None:
    problem = UnknownLabelError("label", {"x": 1}, ["a", "b"], "a.tsv:3")
    assert str(problem.of_file({"x": 2, "z": 1000, "y": 1})) == (
        "a.tsv:3: 3 labels are not among a, b: 'z' (1,000 rows), 'x' (2 rows), 'y' (1 row); "
        "correct them, or add them to the training data"
    )
    assert str(problem.of_file({"x": 2})) == (
        "a.tsv:3: the label 'x' (2 rows) is not one of a, b; correct it, or add it to the training data"
    )
    many = str(problem.of_file({str(number): 1 for number in range(12)}))
    assert "12 labels are not among a, b: '0' (1 row), " in many
    assert ", '9' (1 row) …; correct" in many


def test_skipped_rows_with_unknown_labels_are_listed_by_label() -> None:
    counts = RowCounts(num_rows=1000)
    for labels in ("x", "yx", "x"):
        counts.skip(UnknownLabelError("tag", Counter(labels), ["a", "b"], "a.tsv:3"), "a.tsv:3", "a.tsv", "5%")
    assert list(counts.remarks()) == ["skipped: 3 of 1,000 rows (unknown tag 3; unknown: 'x' 3, 'y' 1)"]
