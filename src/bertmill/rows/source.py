"""A file of labeled data with its reading settings and its row counts.

`data.json#train` names the value of the key `train` of a .json file that holds several lists of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from bertmill.config.commands import RowSettings
from bertmill.config.notation import setting
from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError, RowCounts, UnknownLabelError
from bertmill.rows.columns import Columns
from bertmill.rows.json_files import MAX_JSON_CHARACTERS
from bertmill.rows.row import Record, Row
from bertmill.storage import sha256_of
from bertmill.text.files import MAX_LINE_CHARACTERS, Line, format_suffix, read_file

RowT = TypeVar("RowT", bound=Row)

FORMATS = ("tsv", "csv", "jsonl", "json", "parquet", "fasttext")
FOLDER = "folder"  # the format of a folder with one subfolder per class
PARALLEL_FORMAT = "sentences"  # the format of a file whose tags are in a parallel file: one sentence per line


@dataclass
class RowFile:
    """A file of rows. The path `-` is standard input; `counts` is updated while rows are read."""

    path: str  # without the key
    settings: RowSettings = field(default_factory=RowSettings)
    counts: RowCounts = field(default_factory=RowCounts)
    trained_columns: Columns | None = None  # of the model, used if the settings name none
    trained_separator: str | None = None  # of a .csv file, used if the first line has none
    trained_format: str | None = None  # of untagged sentences, used if the first line does not decide
    is_like_trained: bool = False  # whether the suffix is that of the training rows
    key: str | None = field(default=None, init=False)
    columns: Columns | None = field(default=None, init=False)  # in use; set when reading starts
    separator: str | None = field(default=None, init=False)  # of a .csv file, if detected and not a comma
    detected_format: str | None = field(default=None, init=False)  # `sentences`, if the first line decided it
    tags: Path | None = None  # a parallel file with the tags of each line
    _first_unknown: UnknownLabelError | None = field(default=None, init=False)  # if it stops reading

    def __post_init__(self) -> None:
        self.path, self.key = split_key_off(self.path)

    @property
    def format(self) -> str:
        """The format from the settings, or else from the suffix. Unknown suffixes mean tsv."""
        if self.settings.format is not None:
            return self.settings.format
        if Path(self.path).is_dir():
            return FOLDER
        suffix = format_suffix(self.path).removeprefix(".")
        return suffix if suffix in FORMATS else "tsv"

    def lines(self) -> Iterator[Line]:
        """Yield the lines of the file, including empty ones. Adds a notice if some bytes are invalid."""
        repairs, encoding = self.counts.repairs, self.settings.encoding
        limit = MAX_JSON_CHARACTERS if self.format == "json" else MAX_LINE_CHARACTERS  # JSON may be one line
        yield from read_file(self.path, encoding=encoding, repairs=repairs, max_line_characters=limit)
        if repairs.bad_bytes and not repairs.utf16 and encoding is None:
            advice = "if the file has another encoding, set `encoding`, for example to cp1252 or gb18030"
            self.counts.notices.append(f"{self.path}: some bytes are not UTF-8; {advice}")

    def require_format(self, *formats: str) -> None:
        """Raise UsageError if the format of the file is not one of `formats`."""
        if self.format not in formats:
            remedy = f"convert the file, or set `format`, to one of {', '.join(formats)}"
            raise UsageError(f"this task cannot read the format {self.format}", where=self.path, remedy=remedy)

    def require_default(self, *names: str) -> None:
        """Raise UsageError if any of these settings is set. For settings that the format does not use."""
        given = [name for name in names if getattr(self.settings, name) is not None]
        if given:
            what = f"{' and '.join(map(setting, given))} cannot be used with this format"
            raise UsageError(what, where=self.path)

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
        self.require_usable_rows()

    def handle_bad_row(self, problem: BadRowError, place: str) -> None:
        """Raise DataError, or skip and count the row, depending on the `on_bad_row` setting.

        An error for unknown labels is raised by `require_usable_rows`, because it lists those of all rows.
        """
        if self.settings.on_bad_row == "skip":
            self.counts.skip(problem, place, self.path, self.settings.max_bad_rows)
        elif isinstance(problem, UnknownLabelError):
            self.counts.unknown.update(problem.num_rows)
            self._first_unknown = self._first_unknown or problem
        else:
            raise _stopped_by(problem, place) from None

    def require_usable_rows(self) -> None:
        """Raise DataError after the last row if labels are unknown and not skipped, or if too many rows are bad."""
        if self._first_unknown is not None:
            raise _stopped_by(self._first_unknown.of_file(self.counts.unknown), self.path)
        self.counts.require_few_skipped(self.path, self.settings.max_bad_rows)


def _stopped_by(problem: BadRowError, place: str) -> DataError:
    alternatives = ", ".join((problem.remedy or "correct it").rsplit(", or ", 1))
    remedy = f"{alternatives}, or set {setting('on_bad_row', 'skip')} to skip such rows"
    return DataError(problem.what, where=problem.where or place, remedy=remedy)


def split_key_off(name: str) -> tuple[str, str | None]:
    """Split `data.json#train` into the file and the key. Other names, and files with a # in their name, have no key."""
    path, separator, key = name.rpartition("#")
    has_key = separator and key and not Path(name).exists() and format_suffix(path) == ".json"
    return (path, key) if has_key else (name, None)


def source_sha256(name: str) -> str:
    """Hash the content of a file or folder of rows, and the key if `name` has one."""
    path, key = split_key_off(name)
    if not Path(path).is_dir():
        content = sha256_of(Path(path))
        return content if key is None else sha256(f"{content}#{key}".encode()).hexdigest()
    files = sorted(file for file in Path(path).rglob("*") if file.is_file())
    entries = (f"{file.relative_to(path).as_posix()}\0{sha256_of(file)}\n" for file in files)
    return sha256("".join(entries).encode(errors="surrogateescape")).hexdigest()
