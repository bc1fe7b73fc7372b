"""A file of labelled data, the settings it is read with, and what was found while reading it."""

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
    """`path` may be - for standard input. `counts` grow while rows are read."""

    path: str
    settings: RowSettings = field(default_factory=RowSettings)
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def format(self) -> str:
        """As the settings say, or by the suffix; everything without a known suffix is a .tsv."""
        if self.settings.format is not None:
            return self.settings.format
        suffix = format_suffix(self.path).removeprefix(".")
        return suffix if suffix in FORMATS else "tsv"

    def require_format(self, *formats: str) -> None:
        """UsageError if the file has none of these formats."""
        if self.format not in formats:
            remedy = f"use a file of one of these formats, or name its format with --format: {', '.join(formats)}"
            raise UsageError(f"the format {self.format} cannot be read for this task", where=self.path, remedy=remedy)

    def require_default(self, *names: str) -> None:
        """UsageError if any of these settings is given, for tasks that do not use them."""
        given = [f"--{name}" for name in names if getattr(self.settings, name) is not None]
        if given:
            raise UsageError(f"{' and '.join(given)} cannot be used with this task and format", where=self.path)

    def rows(self, records: Iterable[Record], parse: Callable[[Record], RowT]) -> Iterator[RowT]:
        """What `parse` makes of each record; bad rows stop the reading or are counted."""
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
        """Stop at a bad row, or skip and count it, as the settings say."""
        if self.settings.on_bad_row == "stop":
            remedy = f"{problem.remedy or 'correct it'}, or skip such rows with --on-bad-row skip"
            raise DataError(problem.what, where=problem.where or place, remedy=remedy) from None
        self.counts.skip(problem, place, self.path)
