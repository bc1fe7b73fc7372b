"""Read lines of text from files, folders, globs and standard input, compressed or not.

- A file is plain, .gz, .xz or .zst.
- `.jsonl` files (also compressed) yield the text field of each record; all other files yield their lines.
- Folders are read in sorted order, without hidden files.
- Files are streamed: memory holds one portion of the text and one line, regardless of the file's size. A longer line
  than MAX_LINE_CHARACTERS is an error.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import glob
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from bertmill.errors import DataError, UsageError
from bertmill.text.repair import Repairs, repair_blocks, repair_text

STANDARD_INPUT = "-"
MAX_LINE_CHARACTERS = 1 << 24
_MAX_DECOMPRESSOR_BYTES = 128 << 20  # for the history of a stream; the highest levels of xz and zstd need less
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),  # with gzip's header and checksum
    ".xz": lambda: lzma.LZMADecompressor(memlimit=_MAX_DECOMPRESSOR_BYTES),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=_MAX_DECOMPRESSOR_BYTES).decompressobj(),
}
COMPRESSED = tuple(_DECOMPRESSORS)
_BLOCK = 1 << 16
# Not all of the libraries can limit their output, so the input is limited. The densest format, zstd, can store 128 KiB
# in four bytes, which makes 16 MiB.
_COMPRESSED_BLOCK = 1 << 9
_NEEDS_MEMORY = re.compile("Memory usage limit exceeded|requires too much memory")  # of xz and zstd
_MAX_BINARY_SHARE = 0.1
_FEW_BYTES = 16


class Line(NamedTuple):
    """One text and its location."""

    file: str
    number: int
    text: str

    @property
    def place(self) -> str:
        """The location for messages: `file:number`."""
        return f"{self.file}:{self.number}"


def read_lines(
    names: Sequence[str],
    *,
    text_field: str = "text",
    encoding: str | None = None,
    repairs: Repairs | None = None,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Iterator[Line]:
    """Yield all lines (or records) of the named files, in order; empty lines too, since they may separate documents.

    `on_bytes` is called with the number of bytes of each block read, before decompression.
    """
    counts = Repairs() if repairs is None else repairs
    has_text = False
    for file in find_files(names):
        lines = read_file(file, encoding=encoding, repairs=counts, on_bytes=on_bytes)
        for line in _records(lines, text_field, counts) if is_jsonl(file) else lines:
            has_text = has_text or bool(line.text.strip())
            yield line
    if not has_text:
        raise DataError("contains no text", where=", ".join(names))


def read_file(
    file: str,
    *,
    encoding: str | None = None,
    repairs: Repairs,
    on_bytes: Callable[[int], object] = lambda _: None,
    max_line_characters: int = MAX_LINE_CHARACTERS,
) -> Iterator[Line]:
    """Yield the lines of one file or of standard input, including empty lines; records are not parsed.

    Without `encoding`, text is UTF-8, or UTF-16 with a byte order mark.
    """
    return _lines(_blocks(file, on_bytes), file, encoding, repairs, max_line_characters)


def first_lines(lines: Iterator[Line], count: int) -> tuple[list[Line], Iterator[Line]]:
    """Return up to `count` lines that are not empty from the start, and an iterator over them and all other lines."""
    first = list(islice((line for line in lines if line.text), count))
    return first, chain(first, lines)


def find_files(names: Sequence[str]) -> list[str]:
    """Expand names of files, folders and globs to files."""
    if not names:
        raise UsageError("no input was given", remedy="name files, folders or globs, or - for standard input")
    return [file for name in names for file in _expand(name)]


def size_of_files(files: Sequence[str]) -> int | None:
    """The total size on disk in bytes; None if one of the files is a pipe or standard input."""
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
    if not matches or name in matches:  # a glob finds a broken link by its own name
        raise UsageError("no such file", where=name)
    return [file for match in matches for file in _expand(match)]


def _files_of_folder(folder: str) -> list[str]:
    files: list[Path] = []
    for inner, folders, names in os.walk(folder, onerror=_refuse_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(inner) / name for name in names if not name.startswith(".")]
    if not files:
        raise DataError("the folder contains no files (hidden files are skipped)", where=folder)
    return list(map(str, sorted(files)))


def _refuse_unreadable(error: OSError) -> None:
    raise UsageError(f"cannot be read: {error.strerror}", where=error.filename)


def format_suffix(file: str) -> str:
    """The suffix that determines the format, in lowercase: `.jsonl` for `a.JSONL.gz`; empty if there is none."""
    suffixes = map(str.lower, reversed(Path(file).suffixes))
    return next((suffix for suffix in suffixes if suffix not in COMPRESSED), "")


def is_jsonl(file: str) -> bool:
    """Whether the file name ends in `.jsonl`, before any compression suffix."""
    return format_suffix(file) == ".jsonl"


def _blocks(file: str, on_bytes: Callable[[int], object]) -> Iterator[bytes]:
    """The decompressed bytes of `file`."""
    try:
        with _open(file) as stream:

            def read() -> bytes:
                block = stream.read1(_BLOCK)  # unlike read, returns typed input before a block is full
                on_bytes(len(block))
                return block

            blocks = iter(read, b"")
            suffix = Path(file).suffix.lower()
            yield from _decompress(blocks, suffix) if suffix in COMPRESSED else blocks
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=file) from None
    except (EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as error:
        if _NEEDS_MEMORY.search(str(error)):
            what = f"needs more than {_MAX_DECOMPRESSOR_BYTES >> 20} MiB of memory to decompress"
            raise DataError(what, where=file, remedy="compress it again with a standard level") from None
        what = f"is not a complete {Path(file).suffix} file: {error}"
        raise DataError(what, where=file, remedy="copy it again") from None


def _open(file: str) -> io.BufferedReader:
    if file != STANDARD_INPUT:
        return Path(file).open("rb")
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _decompress(blocks: Iterable[bytes], suffix: str) -> Iterator[bytes]:
    """Decompress frame by frame: not all of the libraries' file objects detect a truncated file or trailing garbage.

    Yields blocks of bounded size.
    """
    frame = None
    for block in _cut(blocks, _COMPRESSED_BLOCK):
        while block:
            if frame is None:
                block = block.lstrip(b"\0")  # padding between frames
                frame = _DECOMPRESSORS[suffix]() if block else None
            else:
                yield from _cut([frame.decompress(block)], _BLOCK)
                block = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("it is truncated")


def _cut(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Cut blocks into blocks of at most `size` bytes."""
    return (block[start : start + size] for block in blocks for start in range(0, len(block), size))


def _lines(
    blocks: Iterable[bytes], file: str, encoding: str | None, repairs: Repairs, max_characters: int
) -> Iterator[Line]:
    number = 0
    parts: list[str] = []  # of a line that continues in the next block
    num_characters = 0
    for text in _decoded(_refuse_binary(blocks, file, encoding), file, encoding, repairs):
        first, *others = text.split("\n")
        parts.append(first)
        num_characters += len(first)
        if num_characters > max_characters:
            what = f"the line has more than {max_characters:,} characters"
            remedy = "convert it to .jsonl" if format_suffix(file) == ".json" else "split it into shorter lines"
            raise DataError(what, where=f"{file}:{number + 1}", remedy=remedy)
        for other in others:
            number += 1
            yield Line(file, number, "".join(parts))
            parts, num_characters = [other], len(other)
    if last := "".join(parts):
        yield Line(file, number + 1, last)


def _decoded(blocks: Iterable[bytes], file: str, encoding: str | None, repairs: Repairs) -> Iterator[str]:
    try:
        yield from repair_blocks(blocks, repairs, encoding)
    except UnicodeError as error:  # no byte order mark; invalid bytes are repaired
        remedy = "set `encoding` to the name with its byte order, such as utf-16-le"
        raise DataError(f"is not {encoding} text: {error}", where=file, remedy=remedy) from None


def _refuse_binary(blocks: Iterable[bytes], file: str, encoding: str | None) -> Iterator[bytes]:
    """Yield the blocks; raise DataError if the first one is not text."""
    is_first = True
    for block in blocks:
        if is_first and block:
            is_first = False
            repairs = Repairs()
            repair_text(block, repairs, encoding)
            # In a very short file, a single accent in another encoding is a large fraction.
            if repairs.bad_bytes + repairs.nuls > max(_FEW_BYTES, _MAX_BINARY_SHARE * len(block)):
                what = f"is not {encoding or 'UTF-8'} text: it looks binary or has another encoding"
                remedy = "convert it to UTF-8, or set `encoding`, for example to cp1252 or gb18030"
                raise DataError(what, where=file, remedy=remedy)
        yield block


def parse_record(line: Line) -> dict[str, Any]:
    """Parse the JSON object on `line`; DataError if there is none."""
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
            what = f"has no text in the field {text_field!r} (found: {', '.join(record)})"
            remedy = "rename the field, or set text_field to its name"
            raise DataError(what, where=line.place, remedy=remedy)
        yield line._replace(text=repair_text(text, repairs))
