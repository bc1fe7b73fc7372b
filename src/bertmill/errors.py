"""The errors that bertmill raises on purpose, with their exit codes and HTTP statuses.

    BertmillError                          1  500   (never raised itself)
    ├─ UsageError      ValueError          2  400   flags, settings, arguments
    │  └─ MissingError ValueError, OSError 2  400   a file or model that does not exist or cannot be opened
    │     └─ UnfinishedRunError            2  400   the model of a run that has not finished
    ├─ DataError       ValueError          3  422   the user's text or rows
    ├─ IntegrityError  OSError             4  409   a file that is damaged, incomplete or in an unsupported format
    ├─ NonFiniteError                      5  500   a loss, gradient or result that is NaN or infinite
    ├─ ResourceError   OSError             6  507   disk, memory, locks, the network
    └─ StoppedError                 130, 143  503   SIGINT or SIGTERM, after progress was saved

The second column names the built-in errors that each class is as well, so code that catches those works unchanged.

A message states where the problem is, what it is, and how to fix it: `where: what; remedy`. Any other exception is a
bug in bertmill, and the command line shows its traceback.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

INTERRUPTED = 130  # SIGINT
TERMINATED = 143  # SIGTERM
_WRONG_NAME = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
    errno.EILSEQ,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
}


class BertmillError(Exception):
    """Base class: what went wrong, where, and the remedy, formatted as one line."""

    exit_code = 1
    http_status = 500

    def __init__(self, what: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.remedy = remedy
        place = "" if self.where is None else f"{self.where}: "
        advice = "" if remedy is None else f"; {remedy}"
        super().__init__(_printable(f"{place}{what}{advice}"))


def _printable(message: str) -> str:
    """Escape control characters, which names from untrusted files may contain."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


class UsageError(BertmillError, ValueError):
    """A flag, setting or argument is invalid."""

    exit_code = 2
    http_status = 400


class MissingError(UsageError, OSError):
    """A file or model does not exist or cannot be opened."""


class UnfinishedRunError(MissingError):
    """A run was used like a model, but it has not finished."""

    def __init__(self, run: Path) -> None:
        super().__init__("is a run that has not finished", where=run, remedy="resume it to get a model")
        self.run = run

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run,)


class DataError(BertmillError, ValueError):
    """The user's text or rows are invalid."""

    exit_code = 3
    http_status = 422


class IntegrityError(BertmillError, OSError):
    """A file is damaged, incomplete or in an unsupported format."""

    exit_code = 4
    http_status = 409


class NonFiniteError(BertmillError):
    """A loss, gradient or result of training is NaN or infinite."""

    exit_code = 5
    http_status = 500


class ResourceError(BertmillError, OSError):
    """Disk space, memory, a lock, a worker process or the network is not available."""

    exit_code = 6
    http_status = 507


class StoppedError(BertmillError):
    """Training was stopped by SIGINT or SIGTERM, after its progress was saved."""

    http_status = 503

    def __init__(self, what: str, exit_code: int) -> None:
        super().__init__(what)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.exit_code)


def kind_of_os_error(error: OSError) -> type[MissingError] | type[ResourceError]:
    """MissingError if a different file name would help, otherwise ResourceError: reading or writing failed."""
    return MissingError if error.errno in _WRONG_NAME else ResourceError
