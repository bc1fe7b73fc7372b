"""Find the command, read its settings, run it, and turn errors into one line and an exit code.

`COMMANDS` is the whole table of contents. A command is the module of its name here with `run(settings)`; it is
imported only when it runs, so that help is quick.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from bertmill.cli.streams import forget, say
from bertmill.errors import INTERRUPTED, TERMINATED, BertmillError, ResourceError, UsageError
from bertmill.version import __version__

COMMANDS = {
    "demo": "show the tokenizer at work, in a few seconds",
    "tokenize": "show the pieces, ids and offsets of a text",
    "vocab": "learn a vocabulary from text",
    "corpus": "turn text into a corpus for pre-training",
    "pretrain": "train a BERT from a corpus, or go on training one",
    "finetune": "train a model on labelled rows",
    "evaluate": "measure a fine-tuned model on labelled rows",
    "predict": "let a fine-tuned model answer",
    "fill": "guess what stands in the place of [MASK]",
    "report": "show a training, or compare several, in one HTML file",
    "inspect": "say in words what a model, vocabulary or corpus is",
    "check": "check that a model, vocabulary or corpus is whole and right",
}

HELP_WORDS = ("-h", "--help", "help")


class _Terminated(KeyboardInterrupt):
    """SIGTERM: everything that is cleaned up on Ctrl-C is cleaned up."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point: returns the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # results are UTF-8 whatever the locale says
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if sys.stderr is None:  # closed: the next file that is opened must not take its place
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (it stays open)
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        if sys.stdout is not None:
            sys.stdout.flush()
    except BertmillError as error:
        return _failed(str(error), error.exit_code)
    except (MemoryError, RuntimeError) as error:  # torch has no kind of its own for it, but on a GPU
        if isinstance(error, RuntimeError) and not re.search("out of memory|can't allocate memory", str(error)):
            raise
        return _failed("there is not enough memory", ResourceError.exit_code)
    except _Terminated:
        return _failed("terminated", TERMINATED)
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader (`head`, say) has seen enough
        forget(sys.stdout)
        return 0
    except OSError as error:
        forget(sys.stdout)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
        kind = ResourceError if is_full else UsageError
        return _failed(f"{error.filename or 'standard output'}: {error.strerror}", kind.exit_code)
    return code


@contextmanager
def _termination_as_error() -> Iterator[None]:
    """While the block runs, SIGTERM ends it like Ctrl-C; a training, which saves first, has its own way."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not disturb the cleaning up
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _failed(message: str, exit_code: int) -> int:
    say(f"bertmill: {message}")
    return exit_code


def overview() -> str:
    """The help of `bertmill` itself."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items())
    return (
        "bertmill makes BERT models out of text and gets answers out of them.\n\n"
        f"usage: bertmill COMMAND [FLAGS…]\n\n{lines}\n\n"
        "`bertmill COMMAND --help` explains one of them; every command takes --config FILE.toml."
    )


def _run(words: list[str]) -> int:
    if not words or words[0] in HELP_WORDS:
        print(overview())
        return 0 if words else UsageError.exit_code
    if words[0] == "--version":
        print(f"bertmill {__version__}")
        return 0
    command = words[0]
    if command not in COMMANDS:
        from bertmill.config.reading import unknown_name

        raise unknown_name("command", command, list(COMMANDS))
    from bertmill.cli.flags import settings_from_words

    settings = settings_from_words(command, words[1:])
    if settings is not None:
        module = importlib.import_module(f"bertmill.cli.{command}")
        with _termination_as_error():  # not earlier: an error in the middle of importing torch makes it abort
            module.run(settings)
    return 0
