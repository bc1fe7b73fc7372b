"""Flags over a TOML file as settings; one error lists every problem of both."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bertmill.config.commands import COMMAND_SETTINGS, Settings, TrainingSettings
from bertmill.config.fields import POSITIONAL
from bertmill.errors import IntegrityError, UsageError

SettingsT = TypeVar("SettingsT", bound=Settings)
TrainingT = TypeVar("TrainingT", bound=TrainingSettings)


def key_of(name: str, field: FieldInfo) -> str:
    """The TOML key of a field; with dashes for underscores it is the flag."""
    return field.alias or name


def flag_of(name: str, field: FieldInfo) -> str:
    return "--" + key_of(name, field).replace("_", "-")


def read_settings(
    kind: type[SettingsT],
    flags: Mapping[str, Any],
    *,
    unknown_words: Sequence[str] = (),
    toml_path: Path | None = None,
) -> SettingsT:
    """Validate flags over TOML as `kind`; one UsageError lists everything that is wrong."""
    from_file = {} if toml_path is None else _read_toml(toml_path)
    known_flags = ["--config", "--help"]
    known_flags += [
        flag_of(name, field) for name, field in kind.model_fields.items() if POSITIONAL not in field.metadata
    ]
    problems = [_unknown_word(word, known_flags) for word in unknown_words]
    try:
        settings = kind.model_validate({**from_file, **flags})
    except ValidationError as error:
        for detail in error.errors():
            problems.append(_problem(kind, dict(detail), flags, toml_path))
    if problems:
        raise UsageError(" · ".join(problems))
    return settings


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows marks files
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"is not valid TOML: {error}", where=path) from None
    return {key.replace("-", "_"): value for key, value in content.items()}


def settings_toml(settings: Settings) -> str:
    """The settings as a file that `--config` reads; what is not set is left out."""
    lines = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if value is not None:
            _require_utf8(flag_of(name, field), str(value))
            # A JSON string, number, boolean or list of strings is one in TOML too.
            lines.append(f"{key_of(name, field)} = {json.dumps(value, default=str, ensure_ascii=False)}\n")
    return "".join(lines)


def _require_utf8(flag: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{flag} has a name that is not UTF-8: {value!r}", remedy="rename it") from None


def resumed_settings(given: TrainingT, path: Path, *, is_finished: bool) -> TrainingT:
    """The settings of the run whose config.toml is `path`, with what may change as it is given now."""
    _refuse_other_command(type(given), path)
    before = read_settings(type(given), {"out": given.out}, toml_path=path)
    if before.missing():
        what = f"does not say {', '.join(before.missing())}, which it did when the run began"
        raise IntegrityError(what, where=path, remedy="restore the file, or begin a new run")
    may_change = given.MAY_CHANGE if is_finished else given.MAY_CHANGE | given.MAY_MOVE
    differing = [
        flag_of(name, type(given).model_fields[name])
        for name in sorted(given.model_fields_set - may_change)
        if getattr(given, name) != getattr(before, name)
    ]
    if differing:
        raise UsageError(
            f"{', '.join(differing)} cannot change when a run is resumed", where=path, remedy="leave it as it was"
        )
    return before.model_copy(update={name: getattr(given, name) for name in given.model_fields_set & may_change})


def _refuse_other_command(kind: type[TrainingSettings], path: Path) -> None:
    """UsageError if the run in whose folder `path` lies was begun by another command."""

    def fits(other: type[Settings]) -> bool:
        return content.keys() <= {key_of(name, field) for name, field in other.model_fields.items()}

    content = _read_toml(path)
    for command, other in COMMAND_SETTINGS.items():
        if issubclass(other, TrainingSettings) and fits(other) and not fits(kind):
            remedy = f"go on with `bertmill {command} --resume`"
            raise UsageError(f"is a run of `bertmill {command}`", where=path.parent, remedy=remedy)


def _problem(kind: type[Settings], detail: dict[str, Any], flags: Mapping[str, Any], toml_path: Path | None) -> str:
    """One pydantic error in the words of the command line or of the file it came from."""
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if not detail["loc"]:  # several fields that do not go together
        return message
    key = str(detail["loc"][0])
    fields = {key_of(name, field): (name, field) for name, field in kind.model_fields.items()}
    in_file = toml_path is not None and key not in flags
    if detail["type"] == "extra_forbidden":
        return f"{toml_path}: unknown key {key}{_suggestion(key, list(fields))}"
    name, field = fields[key]
    label = f"{toml_path}: {key}" if in_file else flag_of(name, field)
    if POSITIONAL in field.metadata and not in_file:
        label = name.upper()
    if detail["type"] == "missing":
        named = name.upper() if POSITIONAL in field.metadata else flag_of(name, field)
        return f"{named} is required: {field.description}"
    value = detail["input"]
    return f"{label}: {message} (got {value!r})"


def _unknown_word(word: str, known_flags: Sequence[str]) -> str:
    if not word.startswith("-"):
        return f"{word!r} is one argument too many"
    return f"unknown flag {word}{_suggestion(word, known_flags)}"


def unknown_name(kind: str, word: str, known: Sequence[str]) -> UsageError:
    """The error for a word that is none of the `known` ones."""
    return UsageError(
        f"there is no {kind} called {word!r}{_suggestion(word, known)}", remedy="known: " + ", ".join(known)
    )


def _suggestion(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
