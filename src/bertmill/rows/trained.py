"""How the training rows of a model were read, recorded in bertmill.json so that similar files need no settings.

    "rows": {"suffix": ".csv", "detected_separator": ";", "columns": {"text": "comentario", "label": "clase", …}}

- The columns are used for every file that has them (fields.py).
- Format, separator and quotes are used for files with the same suffix, if none of the three is set. If the tags were in
  a parallel file, the format is `sentences`.
- A separator that was detected in the first line is used for .csv files with no separator in their first line.
- A format that was detected in the first line is used for files with the same suffix whose first line does not decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from bertmill.config.fields import Quotes, Separator
from bertmill.errors import IntegrityError
from bertmill.rows.columns import Columns, given_columns
from bertmill.rows.source import PARALLEL_FORMAT, RowFile
from bertmill.text.files import format_suffix

_FORMAT_SETTINGS = ("format", "separator", "quotes")


class TrainedRows(BaseModel):
    """Settings and columns with which training rows were read."""

    model_config = ConfigDict(frozen=True)

    suffix: str
    format: str | None = None
    separator: Separator | None = None
    quotes: Quotes | None = None
    detected_separator: Separator | None = None  # not set, and not a comma
    detected_format: str | None = None  # not set
    columns: Columns | None = None

    @model_validator(mode="after")
    def _numbers_are_numbers(self) -> Self:
        if self.columns and not self.columns.has_header and not all(map(str.isdecimal, self.columns.names)):
            raise ValueError("without a header, columns must be numbers")
        return self

    def apply_to(self, file: RowFile) -> None:
        """Use these columns and settings for a file where its own settings are open."""
        file.is_like_trained = format_suffix(file.path) == self.suffix
        if file.is_like_trained and all(getattr(file.settings, name) is None for name in _FORMAT_SETTINGS):
            recorded = {name: getattr(self, name) for name in _FORMAT_SETTINGS}
            file.settings = file.settings.model_copy(update=recorded)
        file.trained_columns, file.trained_separator = self.columns, self.detected_separator
        file.trained_format = self.detected_format if file.is_like_trained else None


def recorded_rows(file: RowFile) -> dict[str, Any]:
    """The entry of bertmill.json for a file of training rows that has been read."""
    settings = {name: getattr(file.settings, name) for name in _FORMAT_SETTINGS}
    if file.tags is not None:
        settings["format"] = PARALLEL_FORMAT
    columns = file.columns or given_columns(file.settings)
    detected = {"detected_separator": file.separator, "detected_format": file.detected_format}
    recorded = TrainedRows(suffix=format_suffix(file.path), columns=columns, **detected, **settings)
    return recorded.model_dump(mode="json", exclude_defaults=True)


def trained_rows(recorded: Any, where: str | Path) -> TrainedRows | None:
    """The settings in the metadata of a model folder; None if there are none. IntegrityError if they are invalid."""
    if recorded is None:
        return None
    try:
        return TrainedRows.model_validate(recorded)
    except ValidationError:
        what = "has no valid settings for reading rows"
        raise IntegrityError(what, where=where, remedy="fine-tune again") from None
