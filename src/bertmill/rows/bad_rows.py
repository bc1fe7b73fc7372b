"""Bad rows: the error class, the counts, and the limit.

A bad row stops reading, or is skipped and counted. If more than 5% of the rows are bad, reading stops in either case.
This limit applies at the end of a file, and after every bad row once 1,000 rows have been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bertmill.errors import DataError
from bertmill.text.repair import Repairs

MAX_BAD_FRACTION = 0.05
ROWS_BEFORE_STOPPING = 1000


class BadRowError(DataError):
    """A row that cannot be used. Skipped rows are counted by `reason`; `what` describes this row."""

    def __init__(self, reason: str, what: str, remedy: str | None = None, *, where: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


def unknown_label(kind: str, label: str, known: Sequence[str], place: str) -> BadRowError:
    """Return the error for a label or tag (`kind`) that the task does not know."""
    listed = ", ".join(known[:10]) + " …" * (len(known) > 10)
    remedy = "correct it, or add it to the training data"
    return BadRowError(f"unknown {kind}", f"the {kind} {label!r} is not one of {listed}", remedy, where=place)


@dataclass
class RowCounts:
    """Counts of the rows of one file that were read, skipped, corrected and repaired."""

    num_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    corrected: Counter[str] = field(default_factory=Counter)  # by kind of correction
    repairs: Repairs = field(default_factory=Repairs)
    first_skipped: str | None = None  # file and line
    notices: list[str] = field(default_factory=list)

    def skip(self, problem: BadRowError, place: str, file: str) -> None:
        """Count a bad row. Raises DataError if there are too many."""
        self.skipped[problem.reason] += 1
        self.first_skipped = self.first_skipped or place
        if self.num_rows >= ROWS_BEFORE_STOPPING:
            self.require_few_skipped(file)

    def require_few_skipped(self, file: str) -> None:
        """Raise DataError if more than 5% of the rows were skipped."""
        if self.skipped.total() > MAX_BAD_FRACTION * self.num_rows:
            remedy = f"look at {self.first_skipped} and check the format and the columns"
            what = f"more than {MAX_BAD_FRACTION:.0%} of the rows are bad: {self._skipped_text}"
            raise DataError(what, where=file, remedy=remedy)

    def remarks(self, where: str = "") -> Iterator[str]:
        """Yield notes for the user after all rows are read. `where` names the file if there are several."""
        yield from self.notices
        skipped, repaired = self._skipped_text if self.skipped else "", str(self.repairs) if self.repairs else ""
        texts = {"corrected": _listed(self.corrected), "skipped": skipped, "repaired": repaired}
        yield from (f"{verb}{where}: {text}" for verb, text in texts.items() if text)

    @property
    def _skipped_text(self) -> str:
        return f"{self.skipped.total():,} of {self.num_rows:,} rows ({_listed(self.skipped)})"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.most_common() if count)
