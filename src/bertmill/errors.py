"""Every error bertmill raises on purpose, in one tree, with its exit code and HTTP status.

    BertmillError              1  500   (never raised itself)
    ├─ UsageError              2  400   flags, settings, names that do not exist
    ├─ DataError               3  422   the user's text or rows
    ├─ IntegrityError          4  409   a file that is not what it should be
    ├─ NonFiniteError          5  500   a loss or gradient that is not a number
    ├─ ResourceError           6  507   disk, memory, locks
    └─ StoppedError     130, 143  503   SIGINT, SIGTERM, after what was done is saved

The message says what is wrong, where, and what to do: `where: what; remedy`. Anything else that is
raised is a defect of bertmill, and the command line shows its traceback.
"""

from __future__ import annotations

from pathlib import Path

INTERRUPTED = 130  # SIGINT
TERMINATED = 143  # SIGTERM


class BertmillError(Exception):
    """What went wrong, where it was, and the remedy, as one line."""

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
    """Names out of foreign files may hold control characters: they are shown, not sent to the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)


class UsageError(BertmillError):
    exit_code = 2
    http_status = 400


class DataError(BertmillError):
    exit_code = 3
    http_status = 422


class IntegrityError(BertmillError):
    exit_code = 4
    http_status = 409


class NonFiniteError(BertmillError):
    exit_code = 5
    http_status = 500


class ResourceError(BertmillError):
    exit_code = 6
    http_status = 507


class StoppedError(BertmillError):
    http_status = 503

    def __init__(self, what: str, exit_code: int) -> None:
        super().__init__(what)
        self.exit_code = exit_code
