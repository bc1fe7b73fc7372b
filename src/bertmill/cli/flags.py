"""Command-line words → settings: an argparse parser made from the fields of a settings class.

argparse only sorts words into flags and prints help; values stay text until pydantic reads them, so
that every rule stands once, in config.py, and all problems are reported together.
"""

from __future__ import annotations

import argparse
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, Union

from pydantic.fields import FieldInfo

from bertmill.config.commands import Settings
from bertmill.config.fields import POSITIONAL
from bertmill.config.reading import SettingsT, flag_of, key_of, read_settings
from bertmill.errors import UsageError


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"`{self.prog} --help` lists the flags")


def settings_from_words(command: str, kind: type[SettingsT], words: Sequence[str]) -> SettingsT | None:
    """The settings that `words` ask for, or None after printing the help they ask for."""
    parser = make_parser(command, kind)
    if "-h" in words or "--help" in words:
        print(parser.format_help(), end="")
        return None
    known, rest = parser.parse_known_intermixed_args(list(words))
    flags = vars(known)
    toml_path = flags.pop("config", None)
    return read_settings(
        kind,
        flags,
        unknown_words=[word.split("=")[0] for word in rest],
        toml_path=None if toml_path is None else Path(toml_path),
    )


def make_parser(command: str, kind: type[Settings]) -> argparse.ArgumentParser:
    """A parser whose flags are the fields of `kind`; what is not given is left out of the result."""
    parser = _Parser(
        prog=f"bertmill {command}",
        description=kind.__doc__,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28, width=100),
    )
    inherited = set(Settings.model_fields)
    for name, field in sorted(kind.model_fields.items(), key=lambda item: item[0] in inherited):
        _add_field(parser, name, field)
    parser.add_argument("--config", metavar="FILE.toml", help="settings from a file; flags win over it")
    return parser


def _add_field(parser: argparse.ArgumentParser, name: str, field: FieldInfo) -> None:
    kind, is_list = _value_type(field.annotation)
    help_text = (field.description or "") + _default_text(field)
    help_text = help_text.replace("%", "%%")
    if POSITIONAL in field.metadata:
        may_be_left_out = None if field.is_required() else "?"
        parser.add_argument(
            key_of(name, field), nargs="*" if is_list else may_be_left_out, metavar=_singular(name), help=help_text
        )
    elif kind is bool:
        parser.add_argument(
            flag_of(name, field), dest=key_of(name, field), action=argparse.BooleanOptionalAction, help=help_text
        )
    else:
        parser.add_argument(
            flag_of(name, field),
            dest=key_of(name, field),
            action="append" if is_list else "store",
            metavar=_metavar(kind),
            help=help_text,
        )


def _value_type(annotation: Any) -> tuple[Any, bool]:
    """(type of one value, whether many may be given), looking through `X | None` and `list[X]`."""
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType):
        inner = next(part for part in typing.get_args(annotation) if part is not type(None))
        return _value_type(inner)
    if origin is list:
        return typing.get_args(annotation)[0], True
    return annotation, False


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


def _singular(name: str) -> str:
    return name.removesuffix("s").upper()
