"""The settings of every command, as typed objects: flags, TOML keys, help texts and docs come from here.

A command's settings are one frozen pydantic model. A field is at once the flag `--batch-size`, the TOML
key `batch_size` and a line of help; `POSITIONAL` fields are arguments without a flag. Flags win over the
TOML file of `--config`. `read_settings` reports every problem of both in one message.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from bertmill.errors import UsageError

POSITIONAL: Final = "positional"  # marks a field that is an argument without a flag

Objective = Literal["mlm+nsp", "mlm+sop", "mlm", "clm"]


class Settings(BaseModel):
    """What every command takes. The docstring of a subclass is the command's description in its help."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quiet: bool = Field(False, description="print results only: no progress, no remarks")


class TokenizeSettings(Settings):
    """Show how a text is cut into pieces: each piece with its id, the characters it covers and its word."""

    files: Annotated[
        list[str],
        Field(description="text files, folders or globs (.txt .gz .xz .zst .jsonl); - is standard input"),
        POSITIONAL,
    ] = []
    model: str = Field(description="a vocabulary file, a model folder or the name of an installed model (minilm)")
    text: list[str] = Field([], description="a text given here instead of in a file; may be repeated")
    pair: str | None = Field(None, description="a second text, encoded after --text in the same sequence")
    text_field: str = Field("text", description="the field of a .jsonl record that holds the text")
    cased: bool | None = Field(None, description="keep case and accents (default: what the model folder says)")
    special_tokens: bool = Field(True, description="put [CLS] and [SEP] around each text")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class CorpusSettings(Settings):
    """Turn text into a corpus: sentences as pieces, on disk, ready for pre-training. Starts where it was broken off."""

    files: Annotated[
        list[str],
        Field(description="text files, folders or globs (.txt .gz .xz .zst .jsonl); - is standard input"),
        POSITIONAL,
    ] = []
    vocab: str = Field(description="a vocabulary folder or file, a model folder or the name of an installed model")
    out: Path = Field(description="the corpus folder to write; it must not exist yet")
    workers: int | None = Field(None, ge=1, description="processes (default: one per core)")
    document: Literal["blank-line", "file", "record"] | None = Field(
        None,
        description="what ends a document: a blank line, the end of its file, or of each line or record "
        "(default: record in .jsonl files, else blank-line)",
    )
    chinese_words: bool = Field(False, description="let jieba decide which ideographs are one word")
    text_field: str = Field("text", description="the field of a .jsonl record that holds the text")


class InspectSettings(Settings):
    """Say in words what a folder holds: a model, a vocabulary or a corpus."""

    folder: Annotated[
        str, Field(description="a model, vocabulary or corpus folder, or the name of an installed model"), POSITIONAL
    ]
    show: int = Field(0, ge=0, description="so many finished instances of a corpus, with masks, segments and labels")
    objective: Objective = Field("mlm+nsp", description="what the instances are for")
    length: int = Field(128, ge=3, description="pieces of an instance, at most")
    whole_words: bool = Field(False, description="mask all pieces of a word or none")
    seed: int = Field(0, ge=0, description="what chance depends on")
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of sentences")


class CheckSettings(Settings):
    """Check everything about a model, a vocabulary or a corpus that can be wrong. Exit code 4 if anything is."""

    folder: Annotated[
        str, Field(description="a model, vocabulary or corpus folder, or the name of an installed model"), POSITIONAL
    ]


class BenchSettings(Settings):
    """Measure bertmill against the tools people use today, on this machine, and print the ratios."""

    names: Annotated[list[str], Field(description="benchmarks to run (default: all)"), POSITIONAL] = []
    data: Path | None = Field(
        None, description="folder of the benchmark texts (default: BERTMILL_DATA or ../shared/data)"
    )
    rounds: int = Field(3, ge=1, description="rounds of alternating measurements; the best of each side counts")
    as_json: bool = Field(False, alias="json", description="print one JSON object per measurement instead of a table")


class DemoSettings(Settings):
    """Show what bertmill does, on a text and a real model that come with the installation."""


COMMAND_SETTINGS: dict[str, type[Settings]] = {
    "demo": DemoSettings,
    "tokenize": TokenizeSettings,
    "corpus": CorpusSettings,
    "inspect": InspectSettings,
    "check": CheckSettings,
    "bench": BenchSettings,
}

SettingsT = TypeVar("SettingsT", bound=Settings)


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
    known_flags = [flag_of(name, field) for name, field in kind.model_fields.items()] + ["--config", "--help"]
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
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"is not valid TOML: {error}", where=path) from None
    return {key.replace("-", "_"): value for key, value in content.items()}


def _problem(kind: type[Settings], detail: dict[str, Any], flags: Mapping[str, Any], toml_path: Path | None) -> str:
    """One pydantic error in the words of the command line or of the file it came from."""
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
        return f"{flag_of(name, field)} is required: {field.description}"
    value = detail["input"]
    message = detail["msg"][0].lower() + detail["msg"][1:]
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
