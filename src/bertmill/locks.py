"""Folders that only one process at a time may write.

- A training run locks its folder.
- Resumable work in progress is kept in `.NAME.partial`, which is locked, until it is complete and gets its name.
The lock is on the folder itself, so no lock file can be left behind. While it is held, storage.py writes nothing to a
folder that was moved or replaced.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bertmill.errors import ResourceError
from bertmill.storage import (
    TEMPORARY_PREFIX,
    disk_errors,
    fsync,
    identity_of,
    locked_folders,
    manifest_entries,
    refuse_existing,
)

_LEFTOVER = re.compile(r"\.tmp-(.+-[0-9a-f]{8}|step-\d+)", re.DOTALL)  # `step-` is a checkpoint being removed
_LOCK_PATIENCE_S = 3.0


@contextmanager
def resumable_folder(path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield two folders to work in, (whole, records), which are kept for the next attempt after an error or a kill.

    On success, `whole`, whose manifest must have been written, becomes `path`, and `records` is removed. After an
    error, both folders are removed if there are no records.
    """
    refuse_existing(path)
    partial = path.with_name(f".{path.name}.partial")
    whole, records = partial / "whole", partial / "records"
    with locked_folder(partial):
        refuse_existing(path)  # another process may just have finished it
        with disk_errors(path):
            whole.mkdir(exist_ok=True)
            records.mkdir(exist_ok=True)
        try:
            with disk_errors(path, only_failed=True):
                yield whole, records
        except BaseException:
            if not any(records.iterdir()):
                shutil.rmtree(partial)
            raise
        with disk_errors(path):
            manifest_entries(whole)
            whole.rename(path)
            fsync(path.parent)
            shutil.rmtree(partial)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Create and lock `folder`; the lock is released when the process and its forks end, however they end.

    Removes half-written files that a kill left in the folder. After an error, removes the folder if this call created
    it and it is still empty.
    """
    is_new = not folder.exists()
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    key = folder.absolute()
    identity = os.fstat(descriptor).st_dev, os.fstat(descriptor).st_ino
    try:
        _lock(descriptor, folder)
        locked_folders[key] = identity
        try:
            _remove_leftovers(folder)
            yield
        finally:
            del locked_folders[key]
    except BaseException:
        if is_new and identity_of(folder) == identity:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    for path in list(folder.rglob(f"{TEMPORARY_PREFIX}*")):
        if not _LEFTOVER.fullmatch(path.name):  # not written by bertmill
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _lock(descriptor: int, folder: Path) -> None:
    give_up_at = time.monotonic() + _LOCK_PATIENCE_S  # workers of a killed process need a moment to notice
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                what = "is being written by another process"
                raise ResourceError(what, where=folder, remedy="wait until it finishes") from None
            time.sleep(0.05)
