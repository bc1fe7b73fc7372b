"""Bad rows: the error classes, the counts, and the limit.

A bad row stops reading, or is skipped and counted. Reading also stops if more rows are skipped than the setting
`max_bad_rows` allows, or all of them. A limit on their number applies after every bad row. A limit on their fraction
applies at the end of a file, and after every bad row once 1,000 rows have been read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bertmill.config.fields import are_too_many
from bertmill.errors import DataError
from bertmill.text.printable import counted, escaped, listed, one_line
from bertmill.text.repair import Repairs

ROWS_BEFORE_STOPPING = 1000
_MAX_CHARACTERS = 40  # of a label in a message


class BadRowError(DataError):
    """A row that cannot be used. Skipped rows are counted by `reason`; `what` describes this row."""

    def __init__(self, reason: str, what: str, remedy: str | None = None, *, where: str | None = None) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.reason = reason


class UnknownLabelError(BadRowError):
    """One or more labels or tags (`kind`) that the task does not know, with the number of rows that have each."""

    def __init__(self, kind: str, num_rows: Mapping[str, int], known: Sequence[str], place: str) -> None:
        self.kind, self.num_rows, self.known = kind, num_rows, known
        allowed = listed(known)
        if len(num_rows) == 1:
            ((label, count),) = num_rows.items()
            rows = f" ({counted(count, 'row')})" if count > 1 else ""
            what, them = f"the {kind} {_quoted(label)}{rows} is not one of {allowed}", "it"
        else:
            by_count = sorted(num_rows.items(), key=lambda item: -item[1])
            found = listed([f"{_quoted(label)} ({counted(count, 'row')})" for label, count in by_count])
            what, them = f"{counted(len(num_rows), kind)} are not among {allowed}: {found}", "them"
        remedy = f"correct {them}, or add {them} to the training data"
        super().__init__(f"unknown {kind}", what, remedy, where=place)

    def of_file(self, num_rows: Mapping[str, int]) -> UnknownLabelError:
        """Return the error for all unknown labels of a file, at the place of this one."""
        return UnknownLabelError(self.kind, num_rows, self.known, self.where or "")


@dataclass
class RowCounts:
    """Counts of the rows of one file that were read, skipped, corrected and repaired."""

    num_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # by reason
    unknown: Counter[str] = field(default_factory=Counter)  # rows with each unknown label
    corrected: Counter[str] = field(default_factory=Counter)  # by kind of correction
    repairs: Repairs = field(default_factory=Repairs)
    first_skipped: str | None = None  # file and line
    notices: list[str] = field(default_factory=list)

    def skip(self, problem: BadRowError, place: str, file: str, limit: str) -> None:
        """Count a bad row. Raises DataError if there are too many."""
        self.skipped[problem.reason] += 1
        self.first_skipped = self.first_skipped or place
        if isinstance(problem, UnknownLabelError):
            self.unknown.update(problem.num_rows)
        if self.num_rows >= ROWS_BEFORE_STOPPING or not limit.endswith("%"):
            self._require_at_most(limit, file)

    def require_few_skipped(self, file: str, limit: str) -> None:
        """Raise DataError at the end of a file if more rows were skipped than `limit` allows, or all of them."""
        self._require_at_most(limit, file)
        if self.skipped and self.skipped.total() >= self.num_rows:
            raise self._too_many("all rows are bad", file)

    def _require_at_most(self, limit: str, file: str) -> None:
        if are_too_many(self.skipped.total(), limit, self.num_rows):
            is_percentage = limit.endswith("%")
            which = f"more than {limit} of the rows are bad" if is_percentage else f"more bad rows than {limit}"
            raise self._too_many(which, file, ", or raise `max_bad_rows`")

    def _too_many(self, which: str, file: str, also: str = "") -> DataError:
        remedy = f"look at {self.first_skipped} and check the format and the columns{also}"
        return DataError(f"{which}: {self._skipped_text}", where=file, remedy=remedy)

    def remarks(self, where: str = "") -> Iterator[str]:
        """Yield notes for the user after all rows are read. `where` names the file if there are several."""
        yield from map(escaped, self.notices)  # they name files
        skipped, repaired = self._skipped_text if self.skipped else "", str(self.repairs) if self.repairs else ""
        texts = {"corrected": _with_counts(self.corrected), "skipped": skipped, "repaired": repaired}
        yield from (f"{verb}{where}: {text}" for verb, text in texts.items() if text)

    @property
    def _skipped_text(self) -> str:
        labels = [f"{_quoted(label)} {count:,}" for label, count in self.unknown.most_common()]
        unknown = f"; unknown: {listed(labels)}" if labels else ""
        return f"{self.skipped.total():,} of {self.num_rows:,} rows ({_with_counts(self.skipped)}{unknown})"


def _with_counts(counts: Counter[str]) -> str:
    return listed([f"{what} {count:,}" for what, count in counts.most_common() if count])


def _quoted(label: str) -> str:
    return repr(one_line(label, _MAX_CHARACTERS))
