"""Lines of text out of whatever the user names: files, folders, globs, standard input; compressed or not.

A file is plain, .gz, .xz or .zst; `.jsonl` (also compressed) gives the text field of each record, the rest
give their lines. Reading streams: memory holds one block and one line, however large the file. Folders are
read in order of their names, without hidden files.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from bertmill.errors import DataError, UsageError
from bertmill.text.repair import Repairs, repair_blocks, repair_text

STANDARD_INPUT = "-"
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),  # with gzip's header and checksum
    ".xz": lzma.LZMADecompressor,
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
COMPRESSED = tuple(_DECOMPRESSORS)
_BLOCK = 1 << 16
_MAX_BINARY_SHARE = 0.1
_FEW_BYTES = 16


class Line(NamedTuple):
    """One text and where it stands: `file:number`."""

    file: str
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"


def read_lines(
    names: Sequence[str],
    *,
    text_field: str = "text",
    repairs: Repairs | None = None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Iterator[Line]:
    """All lines (or records) of the named files, in order; empty lines too, since they may separate documents.

    `on_bytes` is told how many bytes were read from the files as they are, compressed or not.
    """
    counts = Repairs() if repairs is None else repairs
    has_text = False
    for file in find_files(names):
        lines = read_file(file, repairs=counts, on_bytes=on_bytes)
        for line in _records(lines, text_field, counts) if is_jsonl(file) else lines:
            has_text = has_text or bool(line.text.strip())
            yield line
    if not has_text:
        raise DataError("there is no text in it", where=", ".join(names))


def read_file(file: str, *, repairs: Repairs, on_bytes: Callable[[int], object] = lambda _: None) -> Iterator[Line]:
    """The lines of one file or of standard input as they stand there, empty ones and those of records too."""
    return _lines(_blocks(file, on_bytes), file, repairs)


def find_files(names: Sequence[str]) -> list[str]:
    """The files that `names` stand for: themselves, the files of folders, the matches of globs."""
    if not names:
        raise UsageError("no text is given", remedy="name files, folders, globs or - for standard input")
    return [file for name in names for file in _expand(name)]


def size_of_files(files: Sequence[str]) -> int | None:
    """Bytes on disk, or None where there are pipes."""
    paths = [Path(file) for file in files]
    return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else None


def _expand(name: str) -> list[str]:
    if not name:
        raise UsageError("a file name is empty")
    path = Path(name)
    if path.is_dir() and name != STANDARD_INPUT:
        return _files_of_folder(name)
    if name == STANDARD_INPUT or path.exists():  # also a pipe or a device
        return [name]
    matches = sorted(glob(name, recursive=True))  # noqa: PTH207 (a name may be absolute)
    if not matches or name in matches:  # the latter is a link that leads nowhere
        raise UsageError("there is no such file", where=name)
    return [file for match in matches for file in _expand(match)]


def _files_of_folder(folder: str) -> list[str]:
    files: list[Path] = []
    for inner, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(inner) / name for name in names if not name.startswith(".")]
    if not files:
        raise DataError("the folder holds no files", where=folder)
    return list(map(str, sorted(files)))


def _refuse_unreadable(error: OSError) -> None:
    raise UsageError(f"cannot be read: {error.strerror}", where=error.filename)


def format_suffix(file: str) -> str:
    """The suffix that tells the format, in small letters: `.jsonl` for `a.JSONL.gz`; empty where there is none."""
    suffixes = map(str.lower, reversed(Path(file).suffixes))
    return next((suffix for suffix in suffixes if suffix not in COMPRESSED), "")


def is_jsonl(file: str) -> bool:
    return format_suffix(file) == ".jsonl"


def _blocks(file: str, on_bytes: Callable[[int], object]) -> Iterator[bytes]:
    """The bytes of `file`, decompressed."""
    try:
        with _open(file) as stream:

            def read() -> bytes:
                block = stream.read1(_BLOCK)  # read1: what somebody types is there at once, not when a block is full
                on_bytes(len(block))
                return block

            blocks = iter(read, b"")
            suffix = Path(file).suffix.lower()
            yield from _decompress(blocks, suffix) if suffix in COMPRESSED else blocks
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=file) from None
    except (EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as error:
        what = f"is not a whole {Path(file).suffix} file: {error}"
        raise DataError(what, where=file, remedy="copy it again") from None


def _open(file: str) -> io.BufferedReader:
    if file != STANDARD_INPUT:
        return Path(file).open("rb")
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _decompress(blocks: Iterable[bytes], suffix: str) -> Iterator[bytes]:
    """Frame by frame: the libraries' own file objects do not all notice a file that is cut short or goes on wrongly."""
    frame = None
    for block in blocks:
        while block:
            if frame is None:
                block = block.lstrip(b"\0")  # padding between frames
                frame = _DECOMPRESSORS[suffix]() if block else None
            else:
                yield frame.decompress(block)
                block = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it ends too early")


def _lines(blocks: Iterable[bytes], file: str, repairs: Repairs) -> Iterator[Line]:
    number = 0
    parts: list[str] = []  # of a line that goes on in the next block
    for text in repair_blocks(_refuse_binary(blocks, file), repairs):
        first, *others = text.split("\n")
        parts.append(first)
        for other in others:
            number += 1
            yield Line(file, number, "".join(parts))
            parts = [other]
    if last := "".join(parts):
        yield Line(file, number + 1, last)


def _refuse_binary(blocks: Iterable[bytes], file: str) -> Iterator[bytes]:
    """Pass the blocks on, unless the beginning shows that this is no text."""
    is_first = True
    for block in blocks:
        if is_first and block:
            is_first = False
            repairs = Repairs()
            repair_text(block, repairs)
            # In a few bytes, a single accent in another encoding is a large share.
            if repairs.bad_bytes + repairs.nuls > max(_FEW_BYTES, _MAX_BINARY_SHARE * len(block)):
                what = "is not text in UTF-8: it looks binary, or has another encoding"
                raise DataError(what, where=file, remedy="convert it to UTF-8")
        yield block


def parse_record(line: Line) -> dict[str, Any]:
    """The JSON object that stands on `line`."""
    try:
        record = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", where=line.place) from None
    if not isinstance(record, dict):
        raise DataError(f"is not a JSON object (found: {type(record).__name__})", where=line.place)
    return record


def _records(lines: Iterable[Line], text_field: str, repairs: Repairs) -> Iterator[Line]:
    for line in lines:
        if not line.text.strip():
            continue
        record = parse_record(line)
        text = record.get(text_field)
        if not isinstance(text, str):
            what = f"has no text in a field {text_field!r} (found: {', '.join(record)})"
            remedy = f"call it {text_field!r}, or name it with --text-field"
            raise DataError(what, where=line.place, remedy=remedy)
        yield line._replace(text=repair_text(text, repairs))
