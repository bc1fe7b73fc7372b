"""Helpers that write files of rows, and a typed row with one label."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from bertmill.config.commands import RowSettings
from bertmill.config.notation import with_flags
from bertmill.rows.fields import read_fields
from bertmill.rows.labels import label_text
from bertmill.rows.row import Record, Row
from bertmill.rows.source import RowFile


@dataclass(frozen=True)
class LabeledRow(Row):
    """A row with one label."""

    label: str = ""

    def fields(self) -> dict[str, Any]:
        return {"text": self.texts[0]}


def write(path: Path, content: bytes | str) -> str:
    """Write a file, compressed according to its suffix. Returns its path."""
    compressors: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": zstandard.compress,
    }
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(compressors.get(path.suffix, bytes)(raw))
    return str(path)


def write_records(path: Path, *records: Any) -> str:
    return write(path, "".join(f"{json.dumps(record)}\n" for record in records))


def row_file(path: str | Path, **settings: Any) -> RowFile:
    return RowFile(str(path), RowSettings(**settings))


def suggested_columns(remedy: str | None) -> str:
    """The value of the setting `columns` in a remedy, as the command line shows it."""
    found = re.match(r"set (`columns=.*?`)(?: \(or only one of them\))?(?:;.*)?$", remedy or "", re.DOTALL)
    assert found is not None
    _, value = shlex.split(with_flags(found[1]))
    return value


def read_labeled(file: RowFile) -> Iterator[LabeledRow]:
    """Yield the text and the label of every row."""

    def parse(record: Record) -> LabeledRow:
        return LabeledRow(record.place, (record.fields["text"],), label_text(record.fields["label"]))

    return file.rows(read_fields(file, labeled=True), parse)
