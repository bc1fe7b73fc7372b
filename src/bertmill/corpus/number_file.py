"""Numbers or records in a file, read in slices.

A memory map of a file that another process truncates ends this process with SIGBUS. A bounded read returns fewer bytes,
which is reported as an error, and is not slower.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.errors import IntegrityError


class NumberFile:
    """An open file of numbers of one type. Thread-safe."""

    def __init__(self, path: Path, kind: np.dtype[Any], *, remedy: str) -> None:
        """Open `path`; `remedy` completes the IntegrityError that is raised if the file cannot be read."""
        self._path, self._kind, self._remedy = path, kind, remedy
        try:
            self._descriptor = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)
            self.num_bytes = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None
        if self.num_bytes % kind.itemsize:
            raise self._error("is truncated")

    def __len__(self) -> int:
        return self.num_bytes // self._kind.itemsize

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Read consecutive numbers."""
        start, stop, _ = part.indices(len(self))
        return np.frombuffer(self._read(start, max(0, stop - start)), self._kind)

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """Read the numbers at `indices`, in their order."""
        return np.frombuffer(b"".join(self._read(index, 1) for index in indices.tolist()), self._kind)

    def _read(self, start: int, count: int) -> bytes:
        size = self._kind.itemsize
        try:
            content = os.pread(self._descriptor, count * size, start * size)
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror}") from None
        if len(content) < count * size:
            raise self._error("was truncated while it was in use")
        return content

    def _error(self, what: str) -> IntegrityError:
        return IntegrityError(what, where=self._path, remedy=self._remedy)
