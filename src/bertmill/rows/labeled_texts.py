"""Files and folders of texts with labels, without columns: fastText's format, and a folder per class.

fastText     a text per line, with labels such as __label__x before or after it
folder       a subfolder per class with a text per file, as in IMDB; for prediction, also .txt files in one folder
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bertmill.errors import DataError, UsageError
from bertmill.rows.row import Record
from bertmill.rows.source import RowFile
from bertmill.text.files import Line, format_suffix, read_file
from bertmill.text.printable import counted

LABEL_PREFIX = "__label__"
_LABEL = re.compile(rf"(?<!\S){LABEL_PREFIX}(\S+)")
_UNLABELED = "unsup"  # the texts without labels among IMDB's training texts
_MAX_CHARACTERS = 1 << 24  # of a text


def read_fasttext(lines: Iterable[Line]) -> Iterator[Record]:
    """Yield a record with text and label for each line. The label is a list of labels."""
    for line in lines:
        if line.text.strip():
            fields = {"text": _LABEL.sub("", line.text).strip(), "label": _LABEL.findall(line.text) or None}
            yield Record(line.place, fields)


def read_class_folder(file: RowFile, *, labeled: bool) -> Iterator[Record]:
    """Yield a record with text and label for each file, sorted by name. Its id is the name within the folder."""
    folder = Path(file.path)
    if not folder.is_dir():
        raise UsageError("is not a folder", where=folder)
    classes = _subfolders(folder)
    if not classes and labeled:
        what = "the folder has no subfolders"
        raise DataError(what, where=folder, remedy="name a file of rows, or a folder with one subfolder per class")
    if labeled and any(each.name == _UNLABELED for each in classes):
        classes = [each for each in classes if each.name != _UNLABELED]
        file.counts.notices.append(f"{folder / _UNLABELED} is not read: its texts have no labels")
    paths = [path for each in classes for path in _texts(each)]
    paths = paths if classes else [path for path in _texts(folder) if format_suffix(path.name) == ".txt"]
    if not paths:
        raise DataError("the folder contains no texts", where=folder, remedy="name a file, or a folder of .txt files")
    for path in paths:
        name = path.relative_to(folder).as_posix()
        yield Record(str(path), {"text": _read_text(path, file), "label": path.parent.name}, name)


def _texts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _subfolders(folder: Path) -> list[Path]:
    """The folders of classes; DataError if they contain folders."""
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    for path in found:
        inner = [each.name for each in path.iterdir() if each.is_dir()]
        if inner:
            what = f"{path.name} would be a class, but contains {counted(len(inner), 'folder')}"
            raise DataError(
                what, where=folder, remedy=f"name the folder whose subfolders are the classes, such as {path}"
            )
    return found


def _read_text(path: Path, file: RowFile) -> str:
    lines: list[str] = []
    num_characters = 0
    for line in read_file(str(path), encoding=file.settings.encoding, repairs=file.counts.repairs):
        lines.append(line.text)
        num_characters += 1 + len(line.text)
        if num_characters > _MAX_CHARACTERS:
            raise DataError(f"the text has more than {_MAX_CHARACTERS:,} characters", where=path, remedy="remove it")
    return "\n".join(lines)
