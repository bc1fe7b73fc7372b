"""Lines of text out of whatever the user names: files, folders, globs, standard input; compressed or not.

A file is plain, .gz, .xz or .zst; `.jsonl` (also compressed) gives the text field of each record, the rest
give their lines. Reading streams: memory holds one block and one line, however large the file. Folders are
read in order of their names, without hidden files.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from bertmill.errors import DataError, UsageError
from bertmill.text.repair import Repairs, repair_blocks, repair_text

STANDARD_INPUT = "-"
COMPRESSED = (".gz", ".xz", ".zst")
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


def read_lines(names: Sequence[str], *, text_field: str = "text", repairs: Repairs | None = None) -> Iterator[Line]:
    """All lines (or records) of the named files, in order; empty lines too, since they may separate documents."""
    counts = Repairs() if repairs is None else repairs
    has_text = False
    for file in find_files(names):
        lines = _lines(_blocks(file), file, counts)
        for line in _records(lines, text_field, counts) if _is_jsonl(file) else lines:
            has_text = has_text or bool(line.text.strip())
            yield line
    if not has_text:
        raise DataError("there is no text in it", where=", ".join(names))


def find_files(names: Sequence[str]) -> list[str]:
    """The files that `names` stand for: themselves, the files of folders, the matches of globs."""
    if not names:
        raise UsageError("no text is given", remedy="name files, folders, globs or - for standard input")
    return [file for name in names for file in _expand(name)]


def _expand(name: str) -> list[str]:
    if name == STANDARD_INPUT or Path(name).is_file():
        return [name]
    if Path(name).is_dir():
        inside = (path.relative_to(name) for path in Path(name).rglob("*") if path.is_file())
        visible = sorted(path for path in inside if not any(part.startswith(".") for part in path.parts))
        if not visible:
            raise DataError("the folder holds no files", where=name)
        return [str(Path(name) / path) for path in visible]
    matches = sorted(match for match in glob(name, recursive=True) if Path(match).is_file())  # noqa: PTH207 (may be absolute)
    if matches:
        return matches
    if Path(name).exists():  # a pipe or a device
        return [name]
    raise UsageError("there is no such file", where=name)


def _is_jsonl(file: str) -> bool:
    suffixes = [suffix for suffix in Path(file).suffixes if suffix not in COMPRESSED]
    return bool(suffixes) and suffixes[-1] == ".jsonl"


def _blocks(file: str) -> Iterator[bytes]:
    """The bytes of `file`, decompressed."""
    try:
        with _open(file) as stream:
            blocks = iter(lambda: stream.read(_BLOCK), b"")
            yield from _decompress_zstandard(blocks) if Path(file).suffix == ".zst" else blocks
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise _unreadable(file, error) from None


def _open(file: str) -> BinaryIO:
    if file == STANDARD_INPUT:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    suffix = Path(file).suffix
    if suffix == ".gz":
        return cast(BinaryIO, gzip.open(file))
    if suffix == ".xz":
        return cast(BinaryIO, lzma.open(file))
    return Path(file).open("rb")


def _decompress_zstandard(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Frame by frame, because the library's own file object does not notice a file that was cut short."""
    import zstandard

    frame = None
    try:
        for block in blocks:
            while block:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(block)
                block = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise EOFError(error) from None
    if frame is not None:
        raise EOFError("it ends in the middle of a frame")


def _unreadable(file: str, error: Exception) -> UsageError | DataError:
    if isinstance(error, OSError) and error.errno is not None:
        return UsageError(f"cannot be read: {error.strerror}", where=file)
    return DataError(f"is not a whole {Path(file).suffix} file: {error}", where=file, remedy="copy it again")


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
                raise DataError("is not text: it looks binary", where=file, remedy="give UTF-8 text")
        yield block


def _records(lines: Iterable[Line], text_field: str, repairs: Repairs) -> Iterator[Line]:
    for line in lines:
        if not line.text.strip():
            continue
        try:
            record = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"is not JSON: {error}", where=line.place) from None
        text = record.get(text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
            raise DataError(
                f"has no text in a field {text_field!r} (found: {found})", where=line.place, remedy="name the field"
            )
        yield line._replace(text=repair_text(text, repairs))
