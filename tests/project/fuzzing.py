"""Damage files in many ways, run commands on them, and check what every command promises.

- The exit code is a documented one.
- An error is one line on standard error, without a traceback and without control characters.
- Memory is bounded, and the command ends.
Everything follows from a seed, so a failure is reproduced by its seed.
"""

from __future__ import annotations

import gzip
import json
import lzma
import random
import re
import shutil
import signal
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import zstandard

from bertmill.errors import BertmillError
from bertmill.storage import MANIFEST, read_manifest, write_manifest
from tests import program

EXIT_CODES = {0, 2, 3, 4, 5, 6}
TIMEOUT_S = 60
MAX_EXTRA_BYTES = 700 << 20  # of all commands in this process
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

COMPRESSORS = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}
PIECES_OF_FILES = [
    *(b"", b"\r\n", b"\"\"", *(bytes([character]) for character in b"\n\r\t,;\"'\\ {}[]:=#")),
    *(b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", "\u2028".encode(), "\ud7ff\ue000".encode()),
    *(b"\x1b[31m", b"-1", b"0", b"1e400", b"NaN", b"null", b"true", b"\\ud800", b"-DOCSTART-", b"B-LOC", b"O"),
    *("中".encode(), "é".encode(), "e\u0301".encode(), "\u200b".encode(), b"label", b"text"),
    *(b"9" * 30, b"9" * 5000, b"[" * 3000, b"\n" * 3000),
]  # fmt: skip
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 1 << 31, 1 << 63, 10**30, 10**400),
    *(0.5, -0.5, 1e300, float("nan"), float("inf")),
    *("", "a", "\x1b[31m", "\ud800", "x" * 5000, "../../x", "/dev/zero", "\0"),
    *([], {}, [0], [[]], {"a": 1}, ["a", 1, None]),
]  # fmt: skip


def damaged_bytes(content: bytes, draw: random.Random) -> bytes:
    """Change a few places of `content`."""
    if draw.random() < 0.05:
        return draw.choice([b"", b"\0" * 100, b"\n" * 10_000, content + content, draw.randbytes(200)])
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        start = draw.randint(0, len(content))
        stop = min(len(content), start + draw.choice([0, 0, 1, 1, 2, 5, 20, 200]))
        match draw.randrange(5):
            case 0:
                new = draw.choice(PIECES_OF_FILES)
            case 1:
                new = draw.randbytes(stop - start)
            case 2:
                new = content[start:stop] * draw.choice([0, 2, 3])
            case 3:
                other = draw.randint(0, len(content))
                new = content[other : other + draw.choice([1, 5, 50])]
            case _:  # truncate
                start, stop, new = (start, len(content), b"") if draw.random() < 0.3 else (start, stop, b"")
        content = content[:start] + new + content[stop:]
    return content


def damaged_json(content: Any, draw: random.Random) -> Any:
    """Change a few values of a JSON document."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        places = list(_places(content))
        if not places:
            return draw.choice(VALUES)
        container, key = draw.choice(places)
        match draw.randrange(6):
            case 0:
                del container[key]
            case 1:
                _, other = draw.choice([place for place in places if place[0] is container])
                container[key], container[other] = container[other], container[key]
            case 2 if isinstance(container, dict):
                container[draw.choice(["", "a", "id", "\x1b", "type", *container])] = container.pop(key)
            case 3 if isinstance(container, list):
                container.insert(draw.randint(0, len(container)), container[key])
            case _:
                container[key] = draw.choice(VALUES)
    return content


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a JSON value with each of its keys; of long containers, some."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    for key in keys[:20] + keys[-2:]:
        yield value, key
        yield from _places(value[key])


def damaged_lines(content: bytes, draw: random.Random) -> bytes:
    """Remove, repeat, swap or join lines."""
    lines = content.split(b"\n")
    for _ in range(draw.choice([1, 1, 3, 10])):
        first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(5):
            case 0 if len(lines) > 1:
                del lines[first]
            case 1:
                lines.insert(second, lines[first])
            case 2:
                lines[first], lines[second] = lines[second], lines[first]
            case 3:
                lines[first] += draw.choice([b"", b"\t", b",", b" "]) + lines[second]
            case _:
                lines[first] = draw.choice(PIECES_OF_FILES)
    return b"\n".join(lines)


def damage_file(path: Path, draw: random.Random) -> None:
    """Damage a file according to its format, or remove or replace it."""
    if draw.random() < 0.06:
        path.unlink()
        if draw.random() < 0.5:
            draw.choice([path.mkdir, lambda: path.symlink_to("/dev/null"), lambda: path.symlink_to(path)])()
        return
    content = path.read_bytes()
    is_json = path.suffix in (".json", ".jsonl")
    if path.suffix == ".safetensors" and draw.random() < 0.7:
        content = _damaged_header(content, draw)
    elif path.suffix == ".json" and draw.random() < 0.8:
        content = json.dumps(damaged_json(json.loads(content), draw)).encode()
    elif path.suffix == ".jsonl" and draw.random() < 0.6:
        lines = content.rstrip(b"\n").split(b"\n")
        number = draw.randrange(len(lines))
        lines[number] = json.dumps(damaged_json(json.loads(lines[number]), draw)).encode()
        content = b"\n".join([*lines, b""])
    elif not is_json and path.suffix in (".tsv", ".csv", ".txt", ".conll", ".toml") and draw.random() < 0.4:
        content = damaged_lines(content, draw)
    else:
        content = damaged_bytes(content, draw)
    path.write_bytes(content)


def _damaged_header(content: bytes, draw: random.Random) -> bytes:
    """Change the header of a safetensors file, which is JSON after its length."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.dumps(damaged_json(json.loads(content[8 : 8 + length]), draw)).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def damage_folder(folder: Path, names: Sequence[str], draw: random.Random) -> str:
    """Damage one or two files; most of the time, give the folder a manifest that fits. Returns what was damaged."""
    damaged = draw.sample(names, k=min(len(names), draw.choice([1, 1, 1, 2])))
    for name in damaged:
        if (folder / name).is_file():
            damage_file(folder / name, draw)
    is_renewed = draw.random() < 0.75
    for manifest in folder.rglob(MANIFEST) if is_renewed else ():
        try:
            facts = {name: value for name, value in read_manifest(manifest.parent).items() if name != "files"}
            present = [path for path in manifest.parent.rglob("*") if path.is_file() and path != manifest]
            manifest.unlink()
            write_manifest(manifest.parent, [str(path.relative_to(manifest.parent)) for path in present], facts=facts)
        except (BertmillError, OSError):
            continue
    return f"{', '.join(damaged)}{' with a new manifest' if is_renewed else ''}"


def compressed(path: Path, draw: random.Random) -> Path:
    """Compress a file, and sometimes damage the result."""
    suffix = draw.choice(list(COMPRESSORS))
    content = COMPRESSORS[suffix](path.read_bytes())
    if draw.random() < 0.5:
        content = damaged_bytes(content, draw)
    other = path.with_name(path.name + suffix)
    other.write_bytes(content)
    return other


def check_command(words: Sequence[object], folder: Path, what: str, stdin: bytes = b"") -> int:
    """Run a command in this process, and check what every command promises. Returns its exit code."""
    texts = [str(word) for word in words]
    case = f"{what}: bertmill {' '.join(texts)}"
    with _time_limit(case):
        try:
            done = program.run_here(texts, folder, stdin)
        except BaseException as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    lines = done.stderr.splitlines()
    assert done.returncode in EXIT_CODES, f"{case}: exit code {done.returncode}\n{done.stderr}"
    assert not CONTROL.search(done.stderr), f"{case}: control characters\n{done.stderr!r}"
    assert sum(line.startswith("bertmill: ") for line in lines) == (done.returncode != 0), (
        f"{case}: exit code {done.returncode}\n{done.stderr}"
    )
    assert "Traceback" not in done.stderr, f"{case}\n{done.stderr}"
    return done.returncode


@contextmanager
def _time_limit(case: str) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{case}: no result after {TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(TIMEOUT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_bytes() -> int:
    """The largest amount of memory that this process has used."""
    with Path("/proc/self/status").open() as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def fresh_copy(source: Path, target: Path) -> Path:
    """Copy a file or folder, and remove an earlier copy."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target))
