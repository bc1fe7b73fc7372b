"""Types of settings: the values that a flag or TOML key accepts, and how they are parsed."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

# Markers in the annotations of fields:
POSITIONAL: Final = "positional"  # an argument without a flag
COMMON: Final = "common"  # often changed; help shows it before the rest
PATH: Final = "path"  # a file or folder; some fields accept a fraction instead
NAME_OR_PATH: Final = "name or path"  # a folder, an installed model or a name on the Hub
TIME: Final = "time"  # given as 30m or 2h
MAY_CHANGE: Final = "may change"  # on resume; it does not affect what is learned
MAY_MOVE: Final = "may move"  # on resume; data that the run identifies by its hash

SizeName = Literal["tiny", "mini", "small", "medium", "base", "large"]
OnNonFinite = Literal["stop", "skip", "reload"]
Precision = Literal["fp32", "bf16", "auto"]
Quotes = Literal["literal", "standard"]

_LIMIT = re.compile(r"(\d{1,3}(?:\.\d+)?)%|\d{1,15}", re.ASCII)
MAX_LENGTH = 8192  # pieces per instance; the memory for attention grows with its square

_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)\s*(?:h|hrs?|hours?))?\s*"
    r"(?:(\d+(?:\.\d+)?)\s*(?:m|mins?|minutes?))?\s*"
    r"(?:(\d+)\s*(?:s|secs?|seconds?)?)?",
    re.IGNORECASE,
)
_MAX_SECONDS = 10**9


def _seconds(text: Any) -> Any:
    """Parse a duration: 1h30m, 1.5 hours and 90 min → 5400; numbers are seconds."""
    if not isinstance(text, str) or not text:
        return text
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("must be a time such as 45s, 30m or 1h30m")
    hours, minutes, seconds = (float(number or 0) for number in match.groups())
    return round(min(3600 * hours + 60 * minutes + seconds, 10 * _MAX_SECONDS))


def parse_phases(text: str) -> list[tuple[int, float]]:
    """Parse instance lengths and their fractions of a training run, such as 128:0.9,512:0.1."""
    parts = [part.partition(":") for part in text.split(",")]
    try:
        phases = [(int(length), float(fraction) if fraction else 1.0) for length, _, fraction in parts]
    except ValueError:
        raise ValueError("must have the form 128 or 128:0.9,512:0.1") from None
    if not all(1 <= length <= MAX_LENGTH for length, _ in phases):
        raise ValueError(f"lengths must be from 1 to {MAX_LENGTH:,}")
    # Negated, so that NaN, for which every comparison is false, is rejected.
    if not (all(fraction > 0 for _, fraction in phases) and abs(sum(fraction for _, fraction in phases) - 1) <= 1e-6):
        raise ValueError("fractions must be positive and add up to 1")
    return phases


def parse_mask_mix(text: str) -> tuple[float, float, float]:
    """Parse the percentages of masked, random and unchanged pieces, such as 80/10/10, into fractions."""
    try:
        mask, random, same = (float(number) / 100 for number in text.split("/"))
    except ValueError:
        raise ValueError("must have the form 80/10/10") from None
    if not (all(fraction >= 0 for fraction in (mask, random, same)) and abs(mask + random + same - 1) <= 1e-6):
        raise ValueError("must be three percentages that add up to 100")
    return mask, random, same


def heldout_share(text: str | None) -> float | None:
    """The fraction given as `heldout` or `dev`; None if the value is a file name or None."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _heldout(given: Any) -> Any:
    """Normalize a fraction, which may be a number in a TOML file, so that settings can be compared."""
    fraction = heldout_share(str(given)) if isinstance(given, str | int | float) else None
    if fraction is None:
        if given == "":
            raise ValueError("must not be empty")
        return given
    if not 0 < fraction < 1:
        raise ValueError(f"must be a fraction between 0 and 1 or a file name; for a file named {given}, use ./{given}")
    return str(fraction)


def _written(given: Any) -> Any:
    """Turn a number in a TOML file into text, as on the command line."""
    return str(given) if type(given) is int else given


def are_too_many(count: int, limit: str, total: int) -> bool:
    """Whether `count` of `total` rows exceed a limit such as 20 or 5%."""
    number = float(limit.removesuffix("%"))
    return 100 * count > number * total if limit.endswith("%") else count > number


def _require_limit(text: str) -> None:
    found = _LIMIT.fullmatch(text)
    if found is None or (found[1] and float(found[1]) > 100):
        raise ValueError("must be a number of rows such as 20, or a percentage such as 5%")


def _separator(text: Any) -> Any:
    """Parse a single character; tab and \\t stand for a tab character."""
    if isinstance(text, str):
        text = {"tab": "\t", "\\t": "\t"}.get(text, text)
        if len(text) != 1 or text in '"\n\r':
            raise ValueError("must be a single character, or tab")
    return text


def _encoding(name: str | None) -> str | None:
    """Check that an encoding can decode text."""
    if name is None:
        return None
    try:
        codecs.getincrementaldecoder(name)("replace").decode("text".encode(name), True)
    except (LookupError, ValueError):  # also for codecs of bytes, such as hex, and codecs that cannot replace
        raise ValueError("must be a text encoding such as latin-1, cp1252, gb18030 or utf-16") from None
    return name


def _checked_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


Seconds = Annotated[int, Field(ge=1, le=_MAX_SECONDS), BeforeValidator(_seconds)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Phases = Annotated[str, BeforeValidator(_written), _checked_by(parse_phases)]
Separator = Annotated[str, BeforeValidator(_separator)]
Heldout = Annotated[str, BeforeValidator(_heldout)]
Encoding = Annotated[
    str | None,
    Field(description="encoding of text files, such as latin-1, cp1252 or gb18030 (default: UTF-8)"),
    AfterValidator(_encoding),
]
MaskMix = Annotated[str, _checked_by(parse_mask_mix)]
MaxBadRows = Annotated[str, BeforeValidator(_written), _checked_by(_require_limit)]
TextFiles = Annotated[
    list[str],
    Field(description="text files, folders or globs (.txt .gz .xz .zst .jsonl); - is standard input"),
    POSITIONAL,
]
Folder = Annotated[str, Field(description="model, vocabulary or corpus folder, or model name"), POSITIONAL]
