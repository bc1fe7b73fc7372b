"""The entry point: finds the command, reads its settings, runs it, and turns errors into one line and an exit code.

`COMMANDS` lists all commands. A command is the module of the same name in this package, with `run(settings)`; it is
imported only when it runs, so that help is fast.
"""

from __future__ import annotations

import importlib
import io
import logging
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from bertmill.cli.streams import forget, replace_closed_streams, say
from bertmill.config.notation import with_flags
from bertmill.errors import (
    INTERRUPTED,
    TERMINATED,
    BertmillError,
    ResourceError,
    UnfinishedRunError,
    UsageError,
    kind_of_os_error,
)
from bertmill.text.printable import escaped
from bertmill.version import __version__

COMMANDS = {
    "demo": "run the whole pipeline on the documentation of installed packages",
    "tokenize": "show the pieces, ids and offsets of a text",
    "vocab": "learn a vocabulary from text",
    "corpus": "turn text into a corpus for pre-training",
    "pretrain": "pre-train a BERT model on a corpus, or continue pre-training a model",
    "finetune": "fine-tune a model on labeled rows",
    "evaluate": "evaluate a fine-tuned model on labeled rows",
    "predict": "make predictions with a fine-tuned model",
    "fill": "predict the piece at each [MASK] in a text",
    "download": "download a model from the Hugging Face hub",
    "report": "show one run, or compare several, in one HTML file",
    "inspect": "describe a model, vocabulary or corpus",
    "check": "verify a model, vocabulary or corpus",
}

HELP_WORDS = ("-h", "--help", "help")


class _Messages(logging.Handler):
    """Prints the messages of the library, such as the start of a download."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


class _Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, so that everything is cleaned up as on Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: those of the process) and return the exit code."""
    replace_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # results are UTF-8, whatever the locale
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except UnfinishedRunError as error:
        from bertmill.cli.run_folder import resume_command

        return _failed(f"{error}: {resume_command(error.run)}", error.exit_code)
    except BertmillError as error:
        return _failed(_with_notes(str(error), error), error.exit_code)
    except (MemoryError, RuntimeError) as error:  # torch raises a plain RuntimeError, except on a GPU
        if isinstance(error, RuntimeError) and not re.search("out of memory|can't allocate memory", str(error)):
            raise
        return _failed("not enough memory", ResourceError.exit_code)
    except _Terminated as error:
        return _failed(_with_notes("terminated", error), TERMINATED)
    except KeyboardInterrupt as error:
        return _failed(_with_notes("interrupted", error), INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has exited
        forget(sys.stdout)
        return 0
    except OSError as error:
        forget(sys.stdout)
        kind = kind_of_os_error(error) if error.filename else ResourceError
        return _failed(f"{error.filename or 'standard output'}: {error.strerror}", kind.exit_code)
    return code


@contextmanager
def _termination_as_error() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C while the block runs; the training loop replaces this handler to save first."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _with_notes(message: str, error: BaseException) -> str:
    return "; ".join([message, *getattr(error, "__notes__", [])])


def _failed(message: str, exit_code: int) -> int:
    say(escaped(f"bertmill: {with_flags(message)}"))  # it may name a file
    return exit_code


def overview() -> str:
    """The help text of `bertmill --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name:<{width}}{summary}" for name, summary in COMMANDS.items())
    return (
        "bertmill builds BERT models from text and puts them to work.\n\n"
        f"usage: bertmill COMMAND [FLAGS…]\n\n{lines}\n\n"
        "`bertmill COMMAND --help` describes a command. Every command takes --config FILE.toml."
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
        logger = logging.getLogger("bertmill")
        logger.handlers = [_Messages()]
        logger.setLevel(logging.ERROR if settings.quiet else logging.WARNING)
        module = importlib.import_module(f"bertmill.cli.{command}")
        with _termination_as_error():  # not earlier: torch aborts if an exception interrupts its import
            module.run(settings)
    return 0
