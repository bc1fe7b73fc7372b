"""Atomic files and folders, and manifests that verify their content.

Files and folders are committed in the same way: write next to the destination under a temporary name → fsync →
(folders: write the manifest with the sha256 of every file, last) → rename → fsync the parent. A reader therefore sees
the old state or the new one; a crash leaves only a `.tmp-` name, which is never read. Before each write to a folder
that this process has locked (locks.py), it must still be the same folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertmill.errors import BertmillError, IntegrityError, MissingError, UsageError, kind_of_os_error

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1  # a manifest without a number has the same format
TEMPORARY_PREFIX = ".tmp-"
MAX_MANIFEST_BYTES = 256 << 20  # a large corpus has many files
locked_folders: dict[Path, tuple[int, int]] = {}  # by absolute path: device and inode when this process locked them
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BROKEN = (errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV)


def write_file(path: Path, content: bytes | str) -> None:
    """Replace the content of `path`, atomically and durably."""
    with disk_errors(path), new_file(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def append_to_file(path: Path, content: bytes | str) -> None:
    """Append to a file, such as a log, whose end may be lost in a crash."""
    refuse_moved(path)
    with disk_errors(path), path.open("ab") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; on success, the file replaces `path`."""
    refuse_moved(path)
    if not path.name or path.is_dir():
        raise UsageError("cannot be written: it is a folder", where=path)
    if path.exists() and not path.is_file():  # a device or a pipe would be replaced by a file
        raise UsageError("cannot be written: it is not a regular file", where=path, remedy="choose another name")
    if not path.parent.is_dir():
        what = f"cannot be written: the folder {path.parent} does not exist"
        raise UsageError(what, where=path, remedy="create it first")
    temporary = _temporary_sibling(path)
    try:
        with disk_errors(path, only_failed=True):
            yield temporary
        with disk_errors(path):
            _publish(temporary, _default_mode(path.parent))
            temporary.replace(path)
            fsync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; on success, it becomes `path`, with a manifest.

    `path` must not exist: a folder never overwrites anything.
    """
    refuse_moved(path)
    refuse_existing(path)
    temporary = _temporary_sibling(path)
    try:
        with disk_errors(path):
            temporary.mkdir(parents=True)
        with disk_errors(path, only_failed=True):
            yield temporary
        with disk_errors(path):
            write_manifest(temporary)
            temporary.rename(path)
            fsync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def refuse_moved(path: Path) -> None:
    """Raise UsageError if `path` is in a locked folder that was moved: a write would create half a folder in its place.

    Call this before anything else that changes such a folder.
    """
    for folder, identity in locked_folders.items():
        if path.absolute().is_relative_to(folder) and identity_of(folder) != identity:
            what, remedy = "was moved or replaced while this process was writing to it", "resume it at its new place"
            raise UsageError(what, where=folder, remedy=remedy)


def identity_of(folder: Path) -> tuple[int, int] | None:
    """The device and inode of a folder; None if it does not exist."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def refuse_existing(path: Path) -> None:
    """Raise UsageError if `path` exists."""
    if path.exists():
        raise UsageError("already exists", where=path, remedy="choose another name or remove it first")


def write_manifest(
    folder: Path, names: Collection[str] | None = None, *, facts: Mapping[str, Any] | None = None
) -> None:
    """Make the files of `folder` durable, give them the default mode, and list them with size and sha256.

    With `names`, only those files: other entries are kept, and other files are not touched. `facts` are stored next to
    the list.
    """
    manifest = folder / MANIFEST
    is_kept = names is not None and manifest.exists()
    files = manifest_entries(folder) if is_kept else {}
    kept = read_manifest(folder) if is_kept else {}
    mode = _default_mode(folder)
    paths = sorted(folder.rglob("*")) if names is None else [folder / name for name in names]
    for path in paths:
        if path.is_dir():
            fsync(path)
        elif path != manifest:
            _publish(path, mode)
            name = path.relative_to(folder).as_posix()
            files[name] = manifest_entry(path)
    _write_manifest(folder, {**kept, **(facts or {}), "files": files})


def _write_manifest(folder: Path, content: Mapping[str, Any]) -> None:
    content = {"format": MANIFEST_FORMAT, **content}
    write_file(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def manifest_entry(path: Path) -> dict[str, Any]:
    """The entry of a file in a manifest: its size and sha256."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def verify_manifest(folder: Path, names: Collection[str] | None = None) -> None:
    """Raise IntegrityError, naming every file that is missing, truncated or changed since `write_manifest`.

    With `names`, only those files are checked.
    """
    expected = manifest_entries(folder)
    problems = [problem for name in names or expected if (problem := difference(folder, name, expected.get(name)))]
    if problems:
        accept = f"`bertmill check {shlex.quote(str(folder))} --accept`"
        remedy = f"copy or create the folder again; accept deliberate changes to a model with {accept}"
        raise IntegrityError("; ".join(problems), where=folder, remedy=remedy)


def verify_listed(folder: Path, names: Collection[str]) -> None:
    """Raise IntegrityError if one of these files is in the manifest and differs from its entry.

    Files that the manifest does not list, and folders without a manifest, are accepted: other programs write none.
    """
    if (folder / MANIFEST).is_file() and (listed := manifest_entries(folder).keys() & names):
        verify_manifest(folder, sorted(listed))


def renew_manifest(folder: Path, names: Collection[str]) -> None:
    """Write a manifest of the present content of the files that exist: those it listed before, and `names`."""
    before = manifest_entries(folder) if (folder / MANIFEST).exists() else {}
    present = sorted(name for name in {*before, *names} if safe_join(folder, name).is_file())
    for name in present:
        fsync(folder / name)
    files = {name: manifest_entry(folder / name) for name in present}
    _write_manifest(folder, {**(read_manifest(folder) if before else {}), "files": files})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of `folder`; IntegrityError if it is missing or this version does not support its format."""
    path = folder / MANIFEST
    if not path.exists():
        raise IntegrityError("is missing", where=path, remedy="the folder is incomplete: copy or create it again")
    content = read_json(path, max_bytes=MAX_MANIFEST_BYTES)
    require_format(content.get("format", MANIFEST_FORMAT), MANIFEST_FORMAT, path)
    return content


def manifest_entries(folder: Path) -> dict[str, Any]:
    """The file entries in the manifest of `folder`; IntegrityError if there is no valid manifest."""
    entries = read_manifest(folder).get("files")
    if not isinstance(entries, dict) or not all(map(_is_entry, entries.values())):
        raise IntegrityError("is not a bertmill manifest", where=folder / MANIFEST)
    return entries


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("bytes"), int) and isinstance(entry.get("sha256"), str)


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, *, max_bytes: int = 16 << 20) -> dict[str, Any]:
    """Read the JSON object in `path`; a file over `max_bytes` is rejected without parsing it."""
    try:
        if path.exists() and not path.is_file():
            raise IntegrityError("is not a file", where=path)
        size = path.stat().st_size
        if size > max_bytes:
            raise IntegrityError(f"has {size:,} bytes, more than the {max_bytes:,} allowed", where=path)
        content = json.loads(path.read_bytes())
    except BertmillError:
        raise
    except OSError as error:
        raise MissingError(f"cannot be read: {error.strerror}", where=path) from None
    except RecursionError:
        raise IntegrityError("is nested too deeply", where=path) from None
    except ValueError as error:
        raise IntegrityError(f"is not JSON: {error}", where=path) from None
    if not isinstance(content, dict):
        raise IntegrityError("is not a JSON object", where=path)
    return content


def safe_join(root: Path, name: str) -> Path:
    """Return `root/name`; IntegrityError if it is outside `root` (`..`, absolute names, links to other places)."""
    if "\0" in name:
        raise IntegrityError(f"the file name {name!r} contains NUL", where=root)
    base = root.resolve()
    try:
        path = (base / name).resolve()
        path.exists()  # lets the file system reject names it does not support
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, not a valid name
        raise IntegrityError(f"the file name {name!r} is not valid", where=root) from None
    if not path.is_relative_to(base):
        raise IntegrityError(f"the file name {name!r} points outside the folder", where=root)
    return path


def difference(folder: Path, name: str, entry: Mapping[str, Any] | None) -> str | None:
    """Describe how a file differs from its entry in a manifest; None if it does not differ."""
    if entry is None:
        return f"{name} is not in {MANIFEST}"
    path = safe_join(folder, name)
    if not path.is_file():
        return f"{name} is missing"
    if path.stat().st_size != entry["bytes"]:
        return f"{name} has {path.stat().st_size:,} bytes, not {entry['bytes']:,}"
    if sha256_of(path) != entry["sha256"]:
        return f"{name} has changed since it was written (sha256 differs)"
    return None


def _temporary_sibling(path: Path) -> Path:
    return path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(4)}")


def _default_mode(folder: Path) -> int:
    """The mode of a new file under the umask, taken from a probe: reading the umask changes it for all threads."""
    probe = _temporary_sibling(folder / "mode")
    probe.touch()
    try:
        return probe.stat().st_mode & 0o777
    finally:
        probe.unlink()


def _publish(path: Path, mode: int) -> None:
    """Make a file durable and set its mode: some libraries write 0600 regardless of the umask."""
    path.chmod(mode)
    fsync(path)


def fsync(path: Path) -> None:
    """Flush a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path, *, only_failed: bool = False) -> Iterator[None]:
    """Convert an OSError in the block into a bertmill error about writing `path`.

    With `only_failed`, only if the disk is full or broken: other errors may be about other files.
    """
    try:
        yield
    except BertmillError:
        raise
    except OSError as error:
        refuse_moved(path)
        if only_failed and error.errno not in (*_FULL, *_BROKEN):
            raise
        remedy = "free some space and try again" if error.errno in _FULL else None
        kind = kind_of_os_error(error)
        raise kind(f"cannot be written: {error.strerror}", where=path, remedy=remedy) from error


def require_format(number: Any, supported: int, path: Path) -> None:
    """Raise IntegrityError unless the file has the format number that this version supports."""
    if number != supported:
        what = f"has format {number!r}, but this version of bertmill supports format {supported}"
        is_newer = isinstance(number, int) and number > supported
        raise IntegrityError(what, where=path, remedy="upgrade bertmill" if is_newer else "restore the file")
