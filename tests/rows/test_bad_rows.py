"""Bad rows are counted by reason; more than 5% of them stop reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertmill.errors import DataError
from bertmill.rows.bad_rows import BadRowError, RowCounts, unknown_label
from bertmill.text.repair import Repairs


def test_notes_list_corrected_skipped_and_repaired_rows() -> None:
    counts = RowCounts(num_rows=1000, repairs=Repairs(nuls=2), notices=["a notice"])
    counts.corrected["tags"] += 3
    for reason in ("empty text", "empty label", "empty text"):
        counts.skip(BadRowError(reason, reason), "a.tsv:7", "a.tsv")
    assert list(counts.remarks(" in a.tsv")) == [
        "a notice",
        "corrected in a.tsv: tags 3",
        "skipped in a.tsv: 3 of 1,000 rows (empty text 2, empty label 1)",
        "repaired in a.tsv: 2 NUL characters",
    ]
    assert not list(RowCounts(num_rows=7).remarks())


@pytest.mark.parametrize(("num_bad", "is_rejected"), [(5, False), (6, True)])
def test_more_than_five_percent_bad_rows_are_too_many_at_the_end(num_bad: int, is_rejected: bool) -> None:
    counts = RowCounts(num_rows=100)
    for number in range(num_bad):
        counts.skip(BadRowError("empty text", "empty"), f"a.tsv:{number + 2}", "a.tsv")
    if not is_rejected:
        counts.require_few_skipped("a.tsv")
        return
    with pytest.raises(DataError) as caught:
        counts.require_few_skipped("a.tsv")
    assert str(caught.value) == (
        "a.tsv: more than 5% of the rows are bad: 6 of 100 rows (empty text 6); "
        "look at a.tsv:2 and check the format and the columns"
    )


def test_after_a_thousand_rows_too_many_bad_rows_stop_reading_immediately() -> None:
    counts = RowCounts(num_rows=999)
    problem = BadRowError("empty text", "empty")
    for _ in range(100):
        counts.skip(problem, "a.tsv:2", "a.tsv")
    counts.num_rows = 1000
    with pytest.raises(DataError, match="101 of 1,000 rows"):
        counts.skip(problem, "a.tsv:2", "a.tsv")


def test_the_error_for_an_unknown_label_lists_the_known_labels() -> None:
    problem = unknown_label("tag", "x", list("abcdefghijkl"), "a.tsv:3")
    assert problem.reason == "unknown tag"
    assert str(problem) == (
        "a.tsv:3: the tag 'x' is not one of a, b, c, d, e, f, g, h, i, j …; correct it, or add it to the training data"
    )
    assert "not one of a, b;" in str(unknown_label("label", "x", ["a", "b"], str(Path("a.tsv"))))
