"""Find the command, read its settings, run it, and turn errors into one line and an exit code.

`COMMANDS` is the whole table of contents. A command is the module of its name here, with `SETTINGS`
(its class in config.py) and `run(settings)`; it is imported only when called, so `--help` is quick.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from bertmill.errors import INTERRUPTED, BertmillError
from bertmill.version import __version__

COMMANDS = {
    "demo": "show what bertmill does, in a few seconds",
    "tokenize": "show the pieces, ids and offsets of a text",
    "inspect": "say in words what a model is",
    "check": "check hashes, shapes, values and tokenizer of a model",
    "bench": "measure bertmill against the tools people use today",
}

HELP_WORDS = ("-h", "--help", "help")


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point: returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # results are UTF-8 whatever the locale says
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in HELP_WORDS:
        print(overview())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"bertmill {__version__}")
        return 0
    try:
        _run(words[0], words[1:])
        sys.stdout.flush()
    except BertmillError as error:
        print(f"bertmill: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("bertmill: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`head`, say) has seen enough. Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def overview() -> str:
    """The help of `bertmill` itself."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "bertmill makes BERT models out of text and gets answers out of them.",
            "",
            "usage: bertmill COMMAND [FLAGS…]",
            "",
            *lines,
            "",
            "`bertmill COMMAND --help` explains one of them; every command takes --config FILE.toml.",
        ]
    )


def _run(command: str, words: list[str]) -> None:
    from bertmill.cli.flags import settings_from_words

    if command not in COMMANDS:
        from bertmill.config import unknown_name

        raise unknown_name("command", command, list(COMMANDS))
    module = importlib.import_module(f"bertmill.cli.{command}")
    settings = settings_from_words(command, module.SETTINGS, words)
    if settings is not None:
        module.run(settings)
