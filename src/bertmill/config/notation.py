"""How messages name settings: as Python arguments in backticks, which the command line shows as flags.

    `columns`                              --columns
    `columns='text=my text,label=stars'`   --columns 'text=my text,label=stars'
    `multi_label=True`                     --multi-label
Values of flags are quoted for a shell, so that they can be copied.
"""

from __future__ import annotations

import ast
import re
import shlex
from typing import Any

_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_SETTING = re.compile(rf"`([a-z]+(?:_[a-z]+)*)(?:=({_STRING}|True|False|[\d.]+))?`")


def setting(name: str, value: Any = None) -> str:
    """A setting in a message, with its value unless that is None."""
    return f"`{name}`" if value is None else f"`{name}={value!r}`"


def with_flags(message: str) -> str:
    """The message with its settings as flags of the command line."""
    return _SETTING.sub(lambda found: _flag(found[1], found[2]), message)


def _flag(name: str, written: str | None) -> str:
    name = name.replace("_", "-")
    value = True if written is None else ast.literal_eval(written)
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {'tab' if value == chr(9) else shlex.quote(str(value))}"
