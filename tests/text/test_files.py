"""Lines are read from files, folders, globs and standard input; bad input gives a one-line error."""

import gzip
import json
import lzma
import random
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from bertmill.errors import BertmillError, DataError, UsageError
from bertmill.text.files import Line, find_files, read_lines, size_of_files
from bertmill.text.repair import Repairs

MAX_LINE_CHARACTERS = 1 << 24
TEXT = "first line\n\nthird 北京\n"
LINES = ["first line", "", "third 北京"]


def texts(*names: str | Path) -> list[str]:
    return [line.text for line in read_lines([str(name) for name in names])]


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
    path.write_bytes(opener.get(path.suffix, bytes)(content))
    return path


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz", "a.xz", "a.txt.zst"])
def test_plain_and_compressed_files_give_the_same_lines(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, TEXT.encode())
    assert texts(path) == LINES
    assert next(read_lines([str(path)])) == Line(str(path), 1, "first line")


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "A.JSONL"])
def test_records_yield_their_text_field(tmp_path: Path, name: str) -> None:
    records = [{"text": "one\ud800", "body": "b1"}, {"text": "two\nlines", "body": "b2"}]
    path = write(tmp_path / name, "\n\n".join(map(json.dumps, records)).encode())
    repairs = Repairs()
    assert [line.text for line in read_lines([str(path)], repairs=repairs)] == ["one\ufffd", "two\nlines"]
    assert repairs == Repairs(lone_surrogates=1)
    assert [line.text for line in read_lines([str(path)], text_field="body")] == ["b1", "b2"]
    assert [line.number for line in read_lines([str(path)])] == [1, 3]


def test_the_encoding_of_files_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt.gz", TEXT.encode("gb18030") * 100)
    assert [line.text for line in read_lines([str(path)], encoding="gb18030")] == LINES * 100
    with pytest.raises(DataError, match=r"is not UTF-8 text: .*; convert it to UTF-8, or set `encoding`"):
        texts(path)
    path = write(tmp_path / "a.jsonl", '{"text": "naïve"}'.encode("cp1252"))
    assert [line.text for line in read_lines([str(path)], encoding="cp1252")] == ["naïve"]


def test_utf_16_without_a_byte_order_mark_is_one_clear_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "北京 and more\n".encode("utf-16-le") * 100)
    assert next(read_lines([str(path)], encoding="utf-16-le")).text == "北京 and more"
    with pytest.raises(DataError, match=r"is not utf-16 text: .*BOM; set `encoding` to the name with its byte order"):
        list(read_lines([str(path)], encoding="utf-16"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        texts(path)


def test_folders_are_read_in_sorted_order_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.txt", "a/b.txt", ".hidden", ".git/x"):
        write(tmp_path / name, name.encode())
    assert texts(tmp_path) == ["a/b.txt", "a/z.txt", "b.txt"]


def test_globs_and_several_names_are_expanded(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt", "3.md", "[4].txt"):
        write(tmp_path / name, name.encode())
    assert texts(tmp_path / "?.txt", tmp_path / "3.md") == ["1.txt", "2.txt", "3.md"]
    assert texts(tmp_path / "[4].txt") == ["[4].txt"]
    write(tmp_path / "folder/5.txt", b"5.txt")
    assert texts(tmp_path / "f*") == ["5.txt"]


def test_a_few_bytes_in_another_encoding_are_repaired(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "latin1.txt", b"caf\xe9\n")) == ["caf\ufffd"]


def test_a_dash_means_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with write(tmp_path / "a", TEXT.encode()).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert texts("-") == LINES


def test_a_line_of_10_mb_is_read_and_memory_stays_bounded(tmp_path: Path) -> None:
    size = 10_000_000
    path = write(tmp_path / "long.txt", b"x" * size + b"\nend")
    assert [len(line.text) for line in read_lines([str(path)])] == [size, 3]
    path = tmp_path / "many.txt"
    path.write_bytes(b"a short line of text\n" * 1_000_000)  # 21 MB
    tracemalloc.start()
    assert sum(1 for _ in read_lines([str(path)])) == 1_000_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000


COMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.compressobj(9, wbits=31),
    ".xz": lambda: lzma.LZMACompressor(preset=0),
    ".zst": lambda: zstandard.ZstdCompressor().compressobj(),
}
# VmHWM and not ru_maxrss, which includes the parent process.
MEASURED_READING = """
import sys
from bertmill.text.files import read_lines
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
before = peak()
print(sum(len(line.text) for line in read_lines(sys.argv[1:])), peak() - before)
"""


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("line", [b"a" * 99_999 + b"\n", b"\n" * 1_000 + b"a" * 99_000], ids=["long", "blank"])
def test_a_small_file_of_much_text_needs_bounded_memory(tmp_path: Path, suffix: str, line: bytes) -> None:
    path, compressor = tmp_path / f"bomb{suffix}", COMPRESSORS[suffix]()
    path.write_bytes(b"".join(compressor.compress(line * 10) for _ in range(80)) + compressor.flush())
    assert path.stat().st_size < 90_000
    done = subprocess.run([sys.executable, "-c", MEASURED_READING, path], capture_output=True, text=True, check=True)
    num_characters, peak_kilobytes = map(int, done.stdout.split())
    assert num_characters == 800 * line.count(b"a")
    assert peak_kilobytes < 100_000


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS])
def test_a_line_over_the_limit_is_a_data_error(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", b"short\n" + b"a" * MAX_LINE_CHARACTERS + b"\nshort")
    assert list(map(len, texts(path))) == [5, MAX_LINE_CHARACTERS, 5]
    write(path, b"short\n" + b"a" * (MAX_LINE_CHARACTERS + 1))
    with pytest.raises(DataError, match=f"a{suffix}:2: the line has more than 16,777,216 characters"):
        texts(path)


def test_a_compressed_file_that_needs_much_memory_is_a_data_error(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 << 20}]
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"text", filters=filters))
    with pytest.raises(DataError, match=r"a\.xz: needs more than 128 MiB of memory to decompress; compress it again"):
        texts(path)
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "a.zst"
    path.write_bytes(compressor.compress(b"text" * 100_000) + compressor.flush())
    with pytest.raises(DataError, match=r"a\.zst: needs more than 128 MiB of memory to decompress; compress it again"):
        texts(path)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_frames_of_any_size_form_one_text(tmp_path: Path, suffix: str) -> None:
    generator = random.Random(0)
    lines = [generator.randbytes(generator.choice((5, 1_500, 50_000))).hex().encode() for _ in range(40)]
    path = tmp_path / f"a{suffix}"
    frames = [write(path, line + b"\n").read_bytes() for line in lines]
    path.write_bytes(b"".join(frames))
    assert texts(path) == [line.decode() for line in lines]
    for missing in (1, len(frames[-1]) - 1):
        path.write_bytes(b"".join(frames)[:-missing])
        with pytest.raises(DataError, match=f"not a complete {suffix} file"):
            texts(path)


def test_repairs_are_counted_over_all_files(tmp_path: Path) -> None:
    write(tmp_path / "a", b"a\r\nb")
    write(tmp_path / "b", b"good text and one \xff bad byte")
    repairs = Repairs()
    assert len(list(read_lines([str(tmp_path)], repairs=repairs))) == 3
    assert repairs == Repairs(bad_bytes=1)


BAD_JSON = b'{"text": "x"}\n{"text": 3}'


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("absent.txt", None, UsageError, "no such file"),
        ("empty.txt", b"", DataError, "contains no text"),
        ("blank.txt", b" \n\n", DataError, "contains no text"),
        ("binary.txt", bytes(range(256)) * 100, DataError, "looks binary"),
        ("folder/.hidden", b"x", DataError, "contains no files"),
        ("a.jsonl", BAD_JSON, DataError, "a.jsonl:2: has no text in the field 'text' (found: text)"),
        ("b.jsonl", b"[1]", DataError, "found: list"),
        ("c.jsonl", b"{", DataError, "c.jsonl:1: is not JSON"),
        ("d.jsonl", b"[" * 100_000, DataError, "is not JSON"),
    ],
)
def test_bad_input_gives_a_one_line_error(
    tmp_path: Path, name: str, content: bytes | None, kind: type[BertmillError], message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        write(path, content)
    with pytest.raises(kind) as caught:
        texts(path.parent if "/" in name else path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_truncated_or_invalid_compressed_file_is_a_data_error(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", b"".join(b"line %d\n" % number for number in range(100_000)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"not a complete {suffix} file"):
        texts(path)
    whole = write(path, b"a line\n").read_bytes()
    path.write_bytes(whole + whole)  # two frames form one text
    assert texts(path) == ["a line"] * 2
    path.write_bytes(whole + b"what is this?")
    with pytest.raises(DataError, match=f"not a complete {suffix} file"):
        texts(path)
    path.write_bytes(b"this is not compressed at all")
    with pytest.raises(DataError, match=f"not a complete {suffix} file"):
        texts(path)


def test_an_unreadable_folder_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a/b.txt", b"x")

    def refuse(path: str) -> None:  # the tests may run as root, which may read everything
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        texts(tmp_path)


def test_a_missing_or_empty_name_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        texts("")
    with pytest.raises(UsageError, match="no input was given"):
        texts()


@pytest.mark.parametrize("suffix", ["", ".xz", ".zst"])
def test_bytes_are_counted_before_decompression(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", b"a line of some length\n" * 20_000)
    counts: list[int] = []
    assert len(list(read_lines([str(path)], on_bytes=counts.append))) == 20_000
    assert sum(counts) == path.stat().st_size == size_of_files([str(path)])
    assert size_of_files([str(path), "-"]) is None


def test_a_broken_link_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("dangling", "dang*"):
        with pytest.raises(UsageError, match="no such file"):
            find_files([str(tmp_path / name)])
