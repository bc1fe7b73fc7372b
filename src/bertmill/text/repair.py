"""Convert bytes or str to valid text, and count repairs.

- Without a given encoding, text is UTF-8, or UTF-16 if it starts with the byte order mark of UTF-16.
- A byte order mark is removed.
- Bytes that are invalid in the encoding, and lone surrogates, become U+FFFD.
- NUL is removed.
- CR and CRLF become LF, which is not counted: Windows files are not damaged.

Text comes in blocks of any size: the end of a block may split a character, a CRLF or a byte order mark.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from bertmill.text.printable import counted

_BAD_BYTE = "\udcff"  # stands for an invalid byte until it is counted and replaced
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
# UTF-32 is not detected: its little-endian BOM starts with UTF-16's, and text files rarely use it.
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_LONGEST_MARK = max(map(len, _MARKS))
_NOUNS = {
    "byte_order_marks": "byte order mark",
    "utf16": "UTF-16 text",
    "bad_bytes": "invalid byte",
    "lone_surrogates": "lone surrogate",
    "nuls": "NUL character",
}


@dataclass
class Repairs:
    """The number of repairs of each kind."""

    byte_order_marks: int = 0
    utf16: int = 0
    bad_bytes: int = 0
    lone_surrogates: int = 0
    nuls: int = 0

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        counts = (counted(count, _NOUNS[name]) for name, count in vars(self).items() if count)
        return ", ".join(counts) or "nothing"


def repair_text(text: bytes | str, repairs: Repairs | None = None, encoding: str | None = None) -> str:
    """Convert `text` to valid text; the repairs are added to `repairs`. `encoding` is that of bytes."""
    counts = Repairs() if repairs is None else repairs
    if isinstance(text, bytes):
        return "".join(repair_blocks([text], counts, encoding))
    return "".join(_repair_strings([text], counts))


def replace_surrogates(text: str, repairs: Repairs) -> str:
    """Replace lone surrogates, without moving other characters; text parsed from JSON needs no other repair."""
    if text.isascii():  # common, and faster than the search
        return text
    text, num_replaced = _LONE_SURROGATE.subn(_REPLACEMENT, text)
    repairs.lone_surrogates += num_replaced
    return text


def repair_blocks(blocks: Iterable[bytes], repairs: Repairs, encoding: str | None = None) -> Iterator[str]:
    """Decode and repair a stream of bytes, block by block."""
    parts = _decode_marked(blocks, repairs) if encoding is None else _decode(blocks, encoding, repairs)
    return _repair_strings(parts, repairs)


def _decode_marked(blocks: Iterable[bytes], repairs: Repairs) -> Iterator[str]:
    """Decode according to the byte order mark (default: UTF-8)."""
    iterator = iter(blocks)
    head = b""
    for block in iterator:
        head += block
        if len(head) >= _LONGEST_MARK:
            break
    mark = next((mark for mark in _MARKS if head.startswith(mark)), b"")
    encoding = _MARKS.get(mark, "utf-8")
    repairs.byte_order_marks += bool(mark)
    repairs.utf16 += encoding != "utf-8"
    return _decode(chain([head[len(mark) :]], iterator), encoding, repairs)


def _decode(blocks: Iterable[bytes], encoding: str, repairs: Repairs) -> Iterator[str]:
    """Decode with U+FFFD for invalid bytes."""
    decoder = codecs.getincrementaldecoder(encoding)(_mark_bad_bytes.__name__)
    for part in chain(blocks, [None]):
        text = decoder.decode(part or b"", final=part is None)
        if not text.isascii() and _BAD_BYTE in text:
            repairs.bad_bytes += text.count(_BAD_BYTE)
            text = text.replace(_BAD_BYTE, _REPLACEMENT)
        yield text


def _repair_strings(texts: Iterable[str], repairs: Repairs) -> Iterator[str]:
    newlines = io.IncrementalNewlineDecoder(None, translate=True)  # holds back a CR until the next character
    is_first = True
    for text in texts:
        if is_first and text:
            is_first = False
            if text[0] == "\ufeff":
                text = text[1:]
                repairs.byte_order_marks += 1
        yield newlines.decode(_repair_block(text, repairs))
    yield newlines.decode("", final=True)


def _repair_block(text: str, repairs: Repairs) -> str:
    text = replace_surrogates(text, repairs)
    if "\0" in text:
        repairs.nuls += text.count("\0")
        text = text.replace("\0", "")
    return text


def _mark_bad_bytes(error: UnicodeError) -> tuple[str, int]:
    """Codec error handler: insert one marker per invalid byte and continue."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _BAD_BYTE * (error.end - error.start), error.end


codecs.register_error(_mark_bad_bytes.__name__, _mark_bad_bytes)
