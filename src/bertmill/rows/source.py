"""A file of labeled data with its reading settings and its row counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bertmill.config.commands import RowSettings
from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError, RowCounts
from bertmill.rows.row import Record, Row
from bertmill.text.files import format_suffix

RowT = TypeVar("RowT", bound=Row)

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet")


@dataclass
class RowFile:
    """A file of rows. The path `-` is standard input; `counts` is updated while rows are read."""

    path: str
    settings: RowSettings = field(default_factory=RowSettings)
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def format(self) -> str:
        """The format from the settings, or else from the suffix. Unknown suffixes mean tsv."""
        if self.settings.format is not None:
            return self.settings.format
        suffix = format_suffix(self.path).removeprefix(".")
        return suffix if suffix in FORMATS else "tsv"

    def require_format(self, *formats: str) -> None:
        """Raise UsageError if the format of the file is not one of `formats`."""
        if self.format not in formats:
            remedy = f"convert the file, or set format, to one of {', '.join(formats)}"
            raise UsageError(f"this task cannot read the format {self.format}", where=self.path, remedy=remedy)

    def require_default(self, *names: str) -> None:
        """Raise UsageError if any of these settings is set. For settings that the task or format does not use."""
        given = [name for name in names if getattr(self.settings, name) is not None]
        if given:
            raise UsageError(f"{' and '.join(given)} cannot be used with this task and format", where=self.path)

    def rows(self, records: Iterable[Record], parse: Callable[[Record], RowT]) -> Iterator[RowT]:
        """Yield the row that `parse` makes of each record, with its id. Bad rows stop reading or are counted."""
        for record in records:
            self.counts.num_rows += 1
            try:
                if record.problem is not None:
                    raise record.problem
                row = parse(record)
            except BadRowError as problem:
                self.handle_bad_row(problem, record.place)
                continue
            yield replace(row, id=self.counts.num_rows if record.id is None else record.id)
        if not self.counts.num_rows:
            raise DataError("the file has no rows", where=self.path)
        self.counts.require_few_skipped(self.path)

    def handle_bad_row(self, problem: BadRowError, place: str) -> None:
        """Raise DataError, or skip and count the row, depending on the `on_bad_row` setting."""
        if self.settings.on_bad_row == "stop":
            remedy = f"{problem.remedy or 'correct it'}, or set on_bad_row=skip to skip such rows"
            raise DataError(problem.what, where=problem.where or place, remedy=remedy) from None
        self.counts.skip(problem, place, self.path)
