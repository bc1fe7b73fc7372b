"""What a data file is read as: records of named fields, which a task turns into typed rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bertmill.rows.bad_rows import BadRowError

ID_COLUMNS = ("id", "ID", "idx", "index", "guid")  # the first that a record has identifies it


class Record(NamedTuple):
    """The fields of one row as the file has them."""

    place: str  # file:line, of its first line
    fields: Mapping[str, Any]
    id: str | int | None = None  # None: the row is identified by its number in the file
    problem: BadRowError | None = None  # why the fields cannot be used


def record_id(fields: Mapping[str, Any]) -> str | int | None:
    """The row's own id, if it has one."""
    ids = (fields.get(name) for name in ID_COLUMNS)
    return next((each for each in ids if isinstance(each, str | int) and each != ""), None)


@dataclass(frozen=True)
class Row(ABC):
    """A row of labelled data as a task understands it."""

    place: str  # for messages
    texts: tuple[str, ...]
    id: str | int | None = field(default=None, compare=False, kw_only=True)  # None: it does not come from a file

    @property
    def all_texts(self) -> tuple[str, ...]:
        """Everything that the model reads."""
        return self.texts

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """The unlabelled content by field name, as a request gives it."""
