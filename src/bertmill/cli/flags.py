"""Command-line words → settings: an argparse parser built from the fields of a settings class.

argparse only assigns words to flags and prints help. Values stay text until pydantic validates them, so all rules are
in config/ and all problems are reported together. The settings of `finetune TASK` and `predict MODEL` include the
options of the task.
"""

from __future__ import annotations

import argparse
import textwrap
import types
import typing
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union

from pydantic.fields import FieldInfo

from bertmill.config.commands import COMMAND_SETTINGS, FinetuneSettings, PredictSettings
from bertmill.config.fields import COMMON, POSITIONAL, TIME
from bertmill.config.reading import RUN_FILE, argument_of, flag_of, key_of, read_settings, read_toml
from bertmill.config.settings import Settings
from bertmill.corpus.objectives import OBJECTIVES
from bertmill.errors import BertmillError, UsageError
from bertmill.tasks import TASKS, predict_settings_for, settings_for, task_of_model

HELP_FLAGS = ("-h", "--help")
HELP_WIDTH = 100
_REGISTRIES = {"task": TASKS, "objective": OBJECTIVES}  # help lists their names


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"`{self.prog} --help` lists the flags")


def settings_from_words(command: str, words: Sequence[str]) -> Settings | None:
    """Parse the words after the command; returns None after printing help."""
    kind = settings_class(command, words)
    parser = make_parser(command, kind)
    if any(flag in words for flag in HELP_FLAGS):
        print(parser.format_help(), end="")
        return None
    known, rest = parser.parse_known_intermixed_args(list(words))
    flags = vars(known)
    toml_path = Path(flags.pop("config")) if "config" in flags else None
    return read_settings(kind, flags, unknown_words=_unknown(rest), toml_path=toml_path)


def _unknown(rest: Sequence[str]) -> list[str]:
    """The words that the parser did not assign, without the values of unknown flags."""
    return [
        word.split("=")[0]
        for before, word in pairwise(["", *rest])
        if word.startswith("-") or not before.startswith("-") or "=" in before
    ]


def settings_class(command: str, words: Sequence[str]) -> type[Settings]:
    """The settings class of a command, including the options of its task if it has one."""
    kind = COMMAND_SETTINGS[command]
    words = [word for word in words if word not in HELP_FLAGS]
    if issubclass(kind, PredictSettings):
        return _predict_settings(words)
    if not issubclass(kind, FinetuneSettings):
        return kind
    known, rest = make_parser(command, kind).parse_known_intermixed_args(words)
    task = getattr(known, "task", None)
    if task is not None and task not in TASKS:  # the word may be the value of a task's option or of an unknown flag
        others = [word for word in rest if not word.startswith("-")]
        is_value = any(flag in rest and word == task for flag, word in pairwise(words))
        task = next((word for word in others if word in TASKS), next(iter(others), None) if is_value else task)
    task = task or _in_files("task", known)
    return settings_for(task) if task else kind


def _predict_settings(words: list[str]) -> type[Settings]:
    """The settings class of `predict` with the options of the model's task; UsageError for those of another task."""
    kind = PredictSettings
    known, rest = make_parser("predict", kind).parse_known_intermixed_args(words)
    if rest:  # perhaps options of a task; loading tasks imports torch, which `predict --help` must not do
        kind = predict_settings_for(*TASKS)
        known, _ = make_parser("predict", kind).parse_known_intermixed_args(words)
    options = [name for name in vars(known) if name not in {"config", *PredictSettings.model_fields}]
    model = getattr(known, "model", None) or _in_files("model", known)
    try:
        task = task_of_model(model) if model else None
    except BertmillError:
        if options:
            raise
        return PredictSettings  # the command reports the problem
    kind = predict_settings_for(task.name) if task else kind
    for name in options:
        if task and name not in kind.model_fields:
            raise UsageError(f"--{name.replace('_', '-')} does not apply to a model for the task {task.name}")
    return kind


def _in_files(key: str, known: argparse.Namespace) -> str | None:
    """Look up a setting in the file of --config, or in the run to resume."""
    paths = [Path(known.config)] if hasattr(known, "config") else []
    paths += [Path(known.out) / RUN_FILE] if hasattr(known, "resume") and hasattr(known, "out") else []
    values = (read_toml(path).get(key) for path in paths if path.is_file())
    return next((str(value) for value in values if value is not None), None)


def make_parser(command: str, kind: type[Settings]) -> argparse.ArgumentParser:
    """A parser with one flag per field of `kind`; flags that are not given are absent from its result.

    Help is grouped: required settings, common settings, options of the task, other settings. Flags that do not apply to
    the task are parsed with their values, but not in help.
    """
    parser = _Parser(
        prog=f"bertmill {command}",
        usage=_usage(command, kind),
        description="\n".join(textwrap.fill(line, HELP_WIDTH) for line in (kind.__doc__ or "").splitlines()),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=HELP_WIDTH),
    )
    of_command = COMMAND_SETTINGS.get(command, kind).model_fields
    titles = ("required", "common", "task", "other")  # argparse omits empty groups
    groups = {title: parser.add_argument_group(f"{title} settings") for title in titles}
    for name, field in sorted(kind.model_fields.items(), key=lambda item: POSITIONAL not in item[1].metadata):
        is_shown = name not in getattr(kind, "unused", ())
        _add_field(groups[_group(field, name not in of_command)], name, field, is_shown=is_shown)
    others = parser.add_argument_group("files and help")
    others.add_argument("--config", metavar="FILE.toml", help="read settings from a file; flags take precedence")
    others.add_argument(*HELP_FLAGS, action="help", help="show this help")
    return parser


def _usage(command: str, kind: type[Settings]) -> str:
    """The usage line: the command with its required arguments."""
    words = [f"bertmill {command}"]
    for name, field in kind.model_fields.items():
        if POSITIONAL in field.metadata:
            word = kind.__name__ if kind.__name__ in TASKS else argument_of(name, field)
            words.append(word if field.is_required() else f"[{word}]")
    for name, field in kind.model_fields.items():
        if field.is_required() and POSITIONAL not in field.metadata:
            words.append(f"{flag_of(name, field)} {_metavar(_value_type(field.annotation)[0])}")
    return " ".join([*words, "[FLAGS…]"])


def _group(field: FieldInfo, is_option: bool) -> str:
    if field.is_required():
        return "required"
    if is_option:
        return "task"
    return "common" if COMMON in field.metadata or POSITIONAL in field.metadata else "other"


def _add_field(parser: argparse._ArgumentGroup, name: str, field: FieldInfo, *, is_shown: bool) -> None:
    kind, is_list = _value_type(field.annotation)
    names = f": {', '.join(_REGISTRIES[name])}" if name in _REGISTRIES else ""
    help_text = f"{field.description or ''}{names}{_default_text(field)}".replace("%", "%%")
    help_text = help_text if is_shown else argparse.SUPPRESS
    key, flag = key_of(name, field), flag_of(name, field)
    if POSITIONAL in field.metadata:
        nargs = "*" if is_list else "?"  # the file of --config may provide it instead
        parser.add_argument(key, nargs=nargs, metavar=argument_of(name, field), help=help_text)
    elif kind is bool:
        parser.add_argument(flag, dest=key, action=argparse.BooleanOptionalAction, help=help_text)
    else:
        action = "append" if is_list else "store"
        metavar = "TIME" if TIME in field.metadata else _metavar(kind)
        parser.add_argument(flag, dest=key, action=action, metavar=metavar, help=help_text)


def _value_type(annotation: Any) -> tuple[Any, bool]:
    """(type of a value, whether it is a list), looking through `X | None` and `list[X]`."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Annotated, Union, types.UnionType):
        return _value_type(next(part for part in parts if part is not type(None)))
    return (parts[0], True) if origin is list else (annotation, False)


def _metavar(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "|".join(map(str, typing.get_args(kind)))
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def _default_text(field: FieldInfo) -> str:
    if field.is_required():
        return " (required)"
    if field.default is None or field.default is False or field.default in ([], ""):
        return ""
    default = "yes" if field.default is True else field.default
    return f" (default: {default})"
