"""Files that appear whole or not at all, and folders that can prove what they hold.

The commit protocol, the same for a file and for a folder: write beside the destination under a
temporary name → fsync → (folders: manifest with the sha256 of every file, last) → rename → fsync of
the parent. A reader therefore sees the old state or the new one; what a crash leaves behind is a
`.tmp-` name that nobody reads.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertmill.errors import IntegrityError, ResourceError, UsageError

MANIFEST = "manifest.json"
TEMPORARY_PREFIX = ".tmp-"
_BLOCK = 1 << 20


def write_file(path: Path, content: bytes | str) -> None:
    """Replace `path` by `content`, atomically and durably."""
    with new_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A temporary name to write to; on leaving without error the file takes the place of `path`."""
    temporary = _temporary_sibling(path)
    with _disk_errors(path):
        try:
            yield temporary
            _publish(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        _fsync_folder(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder to fill; on leaving without error it becomes `path`, manifest included.

    `path` must not exist yet: nothing is ever overwritten by a folder.
    """
    if path.exists():
        raise UsageError("exists already", where=path, remedy="choose another name or remove it first")
    temporary = _temporary_sibling(path)
    with _disk_errors(path):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            write_manifest(temporary)
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        _fsync_folder(path.parent)


def write_manifest(folder: Path) -> None:
    """Make every file of `folder` durable and readable by all the umask allows, then list them with size and sha256."""
    files: dict[str, Any] = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST):
        _publish(path)
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    write_file(folder / MANIFEST, json.dumps({"files": files}, indent=1) + "\n")


def verify_manifest(folder: Path, names: Collection[str] | None = None) -> None:
    """Raise IntegrityError, naming every file that is missing, cut or changed since `write_manifest`.

    `names` looks at those files alone, for a reader who needs no others.
    """
    manifest = folder / MANIFEST
    try:
        entries = json.loads(manifest.read_bytes())["files"].items()
        expected = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in entries}
    except FileNotFoundError:
        raise IntegrityError("is missing", where=manifest, remedy="the folder was not written to its end") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise IntegrityError("is not a manifest of bertmill", where=manifest) from None
    looked_at = [name for name in expected if names is None or name in names]
    problems = [problem for name in looked_at if (problem := _difference(folder, name, *expected[name]))]
    if problems:
        raise IntegrityError("; ".join(problems), where=folder, remedy="copy or create the folder again")


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: Path, *, max_bytes: int = 16 << 20) -> dict[str, Any]:
    """The JSON object in `path`; refused, not parsed, when it is larger than anything sensible."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise IntegrityError(f"has {size:,} bytes, more than the {max_bytes:,} allowed", where=path)
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=path) from None
    except RecursionError:
        raise IntegrityError("is nested too deeply", where=path) from None
    except ValueError as error:
        raise IntegrityError(f"is not JSON: {error}", where=path) from None
    if not isinstance(content, dict):
        raise IntegrityError("is not a JSON object", where=path)
    return content


def safe_join(root: Path, name: str) -> Path:
    """`root/name`, refused when it would lie outside `root` (`..`, absolute names, links that lead away)."""
    if "\0" in name:
        raise IntegrityError(f"the file name {name!r} contains NUL", where=root)
    base = root.resolve()
    path = (base / name).resolve()
    if not path.is_relative_to(base):
        raise IntegrityError(f"the file name {name!r} leads out of the folder", where=root)
    return path


def _difference(folder: Path, name: str, size: int, sha256: str) -> str | None:
    path = safe_join(folder, name)
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != size:
        return f"{name} has {path.stat().st_size:,} bytes, not {size:,}"
    if sha256_of(path) != sha256:
        return f"{name} is not what was written (sha256 differs)"
    return None


def _temporary_sibling(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(4)}")


def _publish(path: Path) -> None:
    """fsync, and give the mode that `open` would have given: some libraries write 0600 whatever the umask."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Say the operating system's refusals in bertmill's words."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ResourceError(
                f"cannot be written: {error.strerror}", where=path, remedy="free some space and try again"
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
            raise UsageError(f"cannot be written: {error.strerror}", where=path) from error
        raise
