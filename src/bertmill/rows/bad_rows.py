"""Bad rows: the error, the counts, and the rule when to stop.

A bad row stops the reading, or is skipped and counted. More than 5 % bad rows stop it in either case: at the end, or as
soon as a thousand rows were read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bertmill.errors import DataError
from bertmill.text.repair import Repairs

MAX_BAD_SHARE = 0.05
ROWS_BEFORE_STOPPING = 1000


class BadRowError(DataError):
    """A row that cannot be used: `reason` is what gets counted, `what` describes this row."""

    def __init__(self, reason: str, what: str, remedy: str | None = None, *, where: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


def unknown_label(kind: str, label: str, known: Sequence[str], place: str) -> BadRowError:
    """The error for a label or tag that the task does not have."""
    listed = ", ".join(known[:10]) + " …" * (len(known) > 10)
    remedy = "correct it, or train with data that has it"
    return BadRowError(f"unknown {kind}", f"the {kind} {label!r} is not one of {listed}", remedy, where=place)


@dataclass
class RowCounts:
    """How many rows of one file were read, skipped, corrected and repaired."""

    num_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    corrected: Counter[str] = field(default_factory=Counter)  # by what was corrected
    repairs: Repairs = field(default_factory=Repairs)
    first_skipped: str | None = None  # its place
    warnings: list[str] = field(default_factory=list)

    def skip(self, problem: BadRowError, place: str, file: str) -> None:
        """Count a bad row; DataError if there are too many of them."""
        self.skipped[problem.reason] += 1
        self.first_skipped = self.first_skipped or place
        if self.num_rows >= ROWS_BEFORE_STOPPING:
            self.require_few_skipped(file)

    def require_few_skipped(self, file: str) -> None:
        """DataError if more than 5 % of the rows were skipped."""
        if self.skipped.total() > MAX_BAD_SHARE * self.num_rows:
            remedy = f"look at {self.first_skipped} and check the format and the columns"
            what = f"more than {MAX_BAD_SHARE:.0%} of the rows are bad: {self._skipped_text}"
            raise DataError(what, where=file, remedy=remedy)

    def remarks(self, where: str = "") -> Iterator[str]:
        """What the user should know once all rows are read; `where` names the file if there are several."""
        yield from self.warnings
        for verb, text in (
            ("corrected", _listed(self.corrected)),
            ("skipped", self._skipped_text if self.skipped else ""),
            ("repaired", str(self.repairs) if self.repairs else ""),
        ):
            if text:
                yield f"{verb}{where}: {text}"

    @property
    def _skipped_text(self) -> str:
        return f"{self.skipped.total():,} of {self.num_rows:,} rows ({_listed(self.skipped)})"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count:,}" for what, count in counts.most_common() if count)
