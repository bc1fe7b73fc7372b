"""Records and rows: a file is read as records of named fields, which a task turns into typed rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bertmill.rows.bad_rows import BadRowError

ID_COLUMNS = ("id", "ID", "idx", "index", "guid")  # the first one present in a record is its id


class Record(NamedTuple):
    """The fields of one row, unchanged from the file."""

    place: str  # file:line, where the row starts
    fields: Mapping[str, Any]
    id: str | int | None = None  # None: the row is identified by its number in the file
    problem: BadRowError | None = None  # the reason if the fields cannot be used


def record_id(fields: Mapping[str, Any]) -> str | int | None:
    """Return the value of the first id column that is set, or None."""
    ids = (fields.get(name) for name in ID_COLUMNS)
    return next((each for each in ids if isinstance(each, str | int) and each != ""), None)


@dataclass(frozen=True)
class Row(ABC):
    """A row of labeled data, typed for a task."""

    place: str  # for messages
    texts: tuple[str, ...]
    id: str | int | None = field(default=None, compare=False, kw_only=True)  # None if it does not come from a file

    @property
    def all_texts(self) -> tuple[str, ...]:
        """All texts that the model reads."""
        return self.texts

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """Return the unlabeled content by field name, in the form of a request."""
