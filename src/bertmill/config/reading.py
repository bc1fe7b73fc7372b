"""Reads settings from three layers: the run to resume, the file of --config, and flags; later layers win.

One error lists every problem. The config.toml of a run has `format`, `command`, a table of settings including the
run's decisions, and hashes of its data and of the settings that may not change. Markers on fields (fields.py) say what
may change when a run is resumed.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bertmill.config.commands import COMMAND_SETTINGS
from bertmill.config.fields import MAY_CHANGE, MAY_MOVE, NAME_OR_PATH, PATH, POSITIONAL, heldout_share
from bertmill.config.notation import with_flags
from bertmill.config.settings import Settings
from bertmill.config.suggestions import suggestion
from bertmill.config.training_settings import TrainingSettings
from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import require_format

SettingsT = TypeVar("SettingsT", bound=Settings)
TrainingT = TypeVar("TrainingT", bound=TrainingSettings)

RUN_FILE = "config.toml"  # identifies a run folder
RUN_FORMAT = 1
MAX_TOML_BYTES = 1 << 20
_DAMAGED_REMEDY = "restore the file, or start a new run"
_EXTENDED = "extended"  # marks a run that had finished, until it has finished again
_FINGERPRINT = "settings_sha256"
# The run decides if None.
_BY_RUN = (
    "size",
    "steps",
    "epochs",
    "budget",
    "learning_rate",
    "metric",
    "eval_every",
    "log_every",
    "patience",
    "max_length",
    "stride",
    "truncate",
)


class RunContent(NamedTuple):
    """The content of the config.toml of a run."""

    command: str
    settings: dict[str, Any]
    sources: dict[str, str]  # hashes of the data by name
    is_extended: bool  # whether it had finished, and now trains longer


def key_of(name: str, field: FieldInfo) -> str:
    """The TOML key of a field; its flag has dashes instead of underscores."""
    return field.alias or name


def flag_of(name: str, field: FieldInfo) -> str:
    """The flag of a field, with its two dashes."""
    return "--" + key_of(name, field).replace("_", "-")


def argument_of(name: str, field: FieldInfo) -> str:
    """The name of an argument without a flag in help and messages: FILE, or FILE… if it may be repeated."""
    return name.removesuffix("s").upper() + "…" * (get_origin(field.annotation) is list)


def read_settings(
    kind: type[SettingsT],
    flags: Mapping[str, Any],
    *,
    unknown_words: Sequence[str] = (),
    toml_path: Path | None = None,
) -> SettingsT:
    """Validate all layers as `kind`; one UsageError lists all problems."""
    from_file = {} if toml_path is None else read_toml(toml_path)
    given = {**from_file, **flags}
    stored: dict[str, Any] = {}
    hints: list[str] = []
    if issubclass(kind, TrainingSettings) and given.get("resume") and "out" in given:
        stored = stored_settings(kind, given)
        hints = [] if stored else [f"there is no run to resume in {given['out']}"]
    problems = [_unknown_word(word, kind) for word in unknown_words]
    try:
        settings = kind.model_validate({**stored, **given})
    except ValidationError as error:
        # A conflict between fields may follow from an unknown flag, whose value was read as an argument.
        details = [detail for detail in error.errors() if detail["loc"] or not problems]
        problems += [_problem(kind, dict(detail), flags, toml_path) for detail in details]
    if problems:
        raise UsageError(" · ".join([*hints, *problems]))
    return settings


def stored_settings(kind: type[TrainingSettings], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the run in `out`, if there is one, without those that `given` replaces."""
    path = Path(str(given["out"])) / RUN_FILE
    if not path.exists():
        return {}
    command = next(name for name, settings in COMMAND_SETTINGS.items() if issubclass(kind, settings))
    stored = _read_run(path, command)
    for name, field in kind.model_fields.items():
        if _is_argument(field) and given.get(name, stored.get(name)) != stored.get(name):
            raise _cannot_change([key_of(name, field)], path)
    _validate_run(kind, {**stored, "out": path.parent}, path)
    dropped = {"quiet", *(kind.durations if given.keys() & set(kind.durations) else ())}
    return {name: value for name, value in stored.items() if name not in dropped}


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, or in the config.toml of a run."""
    content = _parse_toml(path)
    if "command" in content:  # the config.toml of a run
        require_format(content.get("format"), RUN_FORMAT, path)
        settings = content.get("settings")
        content = settings if isinstance(settings, dict) else {}
    return {key.replace("-", "_"): value for key, value in content.items()}


def _parse_toml(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file():  # a device may be endless, and a pipe cannot be read twice
            raise UsageError("is not a regular file", where=path)
        with path.open("rb") as file:
            content = file.read(MAX_TOML_BYTES + 1)
        if len(content) > MAX_TOML_BYTES:
            raise UsageError(f"is larger than the {MAX_TOML_BYTES:,} bytes allowed for settings", where=path)
        return tomllib.loads(content.decode("utf-8-sig"))  # Windows writes byte order marks
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=path) from None
    except RecursionError:
        raise UsageError("is nested too deeply", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"is not valid TOML: {error}", where=path) from None


def read_run_settings(kind: type[TrainingT], out: Path, command: str) -> TrainingT:
    """The settings of the run in `out`; UsageError if another command started it."""
    path = out / RUN_FILE
    return _validate_run(kind, {**_read_run(path, command), "out": out}, path)


def _read_run(path: Path, command: str) -> dict[str, Any]:
    """The unvalidated settings in a run's config.toml; an error if another command or version wrote it."""
    run = read_run(path.parent)
    if run.command != command:
        what = f"is a run of `bertmill {run.command}`"
        raise UsageError(what, where=path.parent, remedy="resume it with that command")
    return run.settings


def read_run(out: Path) -> RunContent:
    """Read the config.toml of the run in `out`; IntegrityError if it is damaged or of another version."""
    path = out / RUN_FILE
    try:
        content = _parse_toml(path)
    except UsageError as error:
        raise IntegrityError(error.what, where=path, remedy=_DAMAGED_REMEDY) from None
    if "command" not in content:
        if not content:
            raise IntegrityError("is empty", where=path, remedy=_DAMAGED_REMEDY)
        what = "is a run of an earlier version, which this version cannot read"
        raise IntegrityError(what, where=out, remedy="start a new run")
    sources = content.get("sources")
    sources = sources if isinstance(sources, dict) else {}
    return RunContent(str(content["command"]), read_toml(path), sources, content.get(_EXTENDED) is True)


def _validate_run(kind: type[TrainingT], content: Mapping[str, Any], path: Path) -> TrainingT:
    try:
        settings = kind.model_validate(content)
        missing = [names for names in kind.recorded if all(getattr(settings, name) is None for name in names)]
        problems = [f"{names[0]}: field required" for names in missing]
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg'].lower()}" for detail in error.errors()]
    if problems:
        raise IntegrityError(f"is damaged: {'; '.join(problems)}", where=path, remedy=_DAMAGED_REMEDY)
    recorded = _parse_toml(path)
    if recorded.get(_FINGERPRINT) not in (None, _fingerprint(kind, recorded["settings"])):
        what = "the settings were edited after the run had started"
        raise IntegrityError(what, where=path, remedy=_DAMAGED_REMEDY)
    return settings


def _fingerprint(kind: type[TrainingSettings], settings: Mapping[str, Any]) -> str:
    """A hash of the settings in a config.toml that may not change, whatever their order."""
    fields = {key_of(name, field): field.metadata for name, field in kind.model_fields.items()}
    fixed = {key for key, markers in fields.items() if MAY_CHANGE not in markers and MAY_MOVE not in markers}
    content = json.dumps({key: settings[key] for key in sorted(fixed & settings.keys())})
    return hashlib.sha256(content.encode()).hexdigest()


def read_run_sources(out: Path) -> dict[str, str]:
    """The hashes of the data that the run in `out` started with, by name; empty if there is no run."""
    path = out / RUN_FILE
    return dict(_parse_toml(path).get("sources", {})) if path.exists() else {}


def run_toml(settings: TrainingSettings, command: str, sources: Mapping[str, str], *, is_extended: bool = False) -> str:
    """The content of a run's config.toml; settings that are None are omitted."""
    lines = []
    for name, field in type(settings).model_fields.items():
        value, key = getattr(settings, name), key_of(name, field)
        if value is not None:
            try:
                str(value).encode()
            except UnicodeEncodeError:
                raise UsageError(f"{key} is not valid UTF-8: {str(value)!r}", remedy="rename it") from None
            # A JSON string, number, boolean or list of strings is also valid TOML.
            lines.append(f"{key} = {json.dumps(value, default=str, ensure_ascii=False)}\n")
    table = "".join(lines)
    head = [f"format = {RUN_FORMAT}\n", f'command = "{command}"\n', f"{_EXTENDED} = true\n" * is_extended]
    head.append(f'{_FINGERPRINT} = "{_fingerprint(type(settings), tomllib.loads(table))}"\n')
    hashes = "".join(f"{name} = {json.dumps(value)}\n" for name, value in sources.items())
    return f"{''.join(head)}\n[settings]\n{table}\n[sources]\n{hashes}"


def resumed_settings(given: TrainingT, before: TrainingT, *, is_finished: bool) -> TrainingT:
    """The settings of a stopped run, updated by those in `given` that may change; UsageError if others differ.

    Settings that are left open keep the run's decisions. A finished run may be extended: only its duration may grow.
    Otherwise, its data may not move, since hashes are not compared again.
    """
    required = [names[0] for names in type(given).recorded if len(names) == 1]
    left_open = {**dict.fromkeys((*_BY_RUN, *required)), "precision": "auto", "method": "auto"}
    given = with_whole_paths(given)
    extended = {name for name in type(given).durations if is_finished and _is_longer(name, given, before)}
    allowed = [MAY_CHANGE] if is_finished and not extended else [MAY_CHANGE, MAY_MOVE]
    changes = {}
    differing = []
    for name, field in type(given).model_fields.items():
        value = getattr(given, name)
        if name not in given.model_fields_set or value == getattr(before, name):
            continue
        if name in extended or any(marker in field.metadata for marker in allowed):
            changes[name] = value
        elif name not in left_open or value != left_open[name]:
            differing.append(key_of(name, field))
    if differing:
        raise _cannot_change(differing, given.out / RUN_FILE)
    return before.model_copy(update=changes)


def _is_longer(name: str, given: TrainingSettings, before: TrainingSettings) -> bool:
    now, then = getattr(given, name, None), getattr(before, name, None)
    return now is not None and then is not None and now > then


def _cannot_change(names: Sequence[str], path: Path) -> UsageError:
    what = f"{', '.join(names)} cannot change when a run is resumed"
    return UsageError(what, where=path, remedy=f"omit {'it' if len(names) == 1 else 'them'}, or start a new run")


def with_whole_paths(settings: TrainingT) -> TrainingT:
    """Make paths in the settings absolute, so that a run can be resumed from any directory."""
    whole = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        is_path, may_be_path = PATH in field.metadata, NAME_OR_PATH in field.metadata
        is_fraction = isinstance(value, str) and heldout_share(value) is not None
        if not (is_path or may_be_path) or value is None or is_fraction or str(value) == "-":
            continue
        if is_path or Path(value).exists():
            whole[name] = type(value)(Path(value).resolve())
    return settings.model_copy(update=whole)


def duration_of(settings: TrainingSettings) -> dict[str, Any]:
    """The settings that say how long to train, by name."""
    return {name: getattr(settings, name) for name in type(settings).durations}


def movable_fields(settings: TrainingSettings) -> dict[str, Any]:
    """The settings that name data, which may have moved when a run is resumed."""
    fields = type(settings).model_fields
    return {name: getattr(settings, name) for name, field in fields.items() if MAY_MOVE in field.metadata}


def _problem(kind: type[Settings], detail: dict[str, Any], flags: Mapping[str, Any], toml_path: Path | None) -> str:
    """A pydantic error as a message that names the flag, or the file and its key."""
    message = with_flags(_message(detail))
    if not detail["loc"]:  # a conflict between fields
        return message
    key = str(detail["loc"][0])
    fields = {key_of(name, field): (name, field) for name, field in kind.model_fields.items()}
    in_file = toml_path is not None and key not in flags
    if detail["type"] == "extra_forbidden":
        return f"{toml_path}: unknown key {key}{suggestion(key, list(fields))}"
    name, field = fields[key]
    argument = argument_of(name, field) if _is_argument(field) else flag_of(name, field)
    if detail["type"] == "missing":
        return f"{argument} is required: {field.description}"
    return f"{f'{toml_path}: {key}' if in_file else argument}: {message} (got {detail['input']!r})"


def problem_in_python(kind: type[Settings], detail: dict[str, Any]) -> str:
    """A pydantic error as a message that names the setting."""
    message = _message(detail)
    if not detail["loc"]:  # a conflict between fields
        return message
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        return f"there is no setting {name}{suggestion(name, list(kind.model_fields))}"
    return f"{name}: {message} (got {detail['input']!r})"


def _message(detail: Mapping[str, Any]) -> str:
    """The message of a pydantic error, beginning in lower case."""
    message = str(detail["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _unknown_word(word: str, kind: type[Settings]) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r}"
    flags = {flag_of(name, field): name for name, field in kind.model_fields.items()}
    fields = kind.model_fields
    arguments = {flag: argument_of(name, fields[name]) for flag, name in flags.items() if _is_argument(fields[name])}
    if word in arguments:
        return f"unknown flag {word}; {arguments[word]} is an argument without a flag"
    known = suggestion(word, ["--config", "--help", *(flag for flag in flags if flag not in arguments)])
    return f"unknown flag {word}{known or _where_known(word, arguments.values())}"


def _where_known(word: str, arguments: Collection[str]) -> str:
    """The end of a message about an unknown flag: which commands have it, or else what needs no flag."""
    commands = [
        command
        for command, settings in COMMAND_SETTINGS.items()
        if any(flag_of(name, field) == word for name, field in settings.model_fields.items() if not _is_argument(field))
    ]
    if commands:
        return f"; it is a flag of {', '.join(commands)}"
    return f"; give {' and '.join(arguments)} without a flag" if arguments else ""


def _is_argument(field: FieldInfo) -> bool:
    return POSITIONAL in field.metadata


def unknown_name(kind: str, word: str, known: Sequence[str]) -> UsageError:
    """The error for a name that is not one of `known`; it suggests a similar one."""
    what = f"there is no {kind} called {word!r}{suggestion(word, known)}"
    return UsageError(what, remedy=f"known: {', '.join(known)}")
