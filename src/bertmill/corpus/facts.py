"""The facts about a corpus in its manifest, checked where they are read.

A manifest can be damaged or edited although its files are intact, so types and ranges are checked here for all readers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import MANIFEST, MAX_MANIFEST_BYTES, read_json, read_manifest

_MAX_COUNT = 1 << 62
_MAX_VOCABULARY = 1 << 31
_Count = Annotated[int, Field(ge=0, le=_MAX_COUNT)]
_PositiveCount = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Histogram = Annotated[list[_Count], Field(max_length=64)]


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Statistics(_Checked):
    """See corpus/statistics.py."""

    unigram_entropy: float = Field(ge=0, allow_inf_nan=False)
    unknown_share: float = Field(ge=0, le=1)
    pieces_used: _Count
    duplicate_sentences: _Count
    duplicate_documents: _Count
    duplicates_from_one_in: _PositiveCount
    short_documents: _Count
    instances_of_128: _Count
    longest_sentence: _Count
    sentence_lengths: _Histogram
    document_lengths: _Histogram


class _Facts(_Checked):
    shards: _PositiveCount
    pieces: _PositiveCount
    sentences: _PositiveCount
    documents: _PositiveCount
    dropped_sentences: _Count
    text_bytes: _Count
    vocabulary_size: int = Field(ge=1, le=_MAX_VOCABULARY)
    vocabulary_sha256: _Sha256
    sha256: _Sha256
    chinese_words: str | None = Field(pattern=r"^[\x20-\x7e]*$")
    statistics: _Statistics


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts about a corpus; UsageError if `folder` is not a corpus, IntegrityError if they are invalid."""
    if not folder.exists():
        raise UsageError("does not exist", where=folder, remedy="use a folder written by `bertmill corpus`")
    facts = read_manifest(folder).get("corpus") if is_corpus(folder) else None
    if not isinstance(facts, dict):
        raise UsageError("is not a corpus", where=folder, remedy="use a folder written by `bertmill corpus`")
    if "doctor" in facts:  # the key in corpora built by earlier versions
        facts["statistics"] = facts.pop("doctor")
    try:
        _Facts.model_validate(facts)
    except ValidationError as error:
        names = [".".join(map(str, detail["loc"])) for detail in error.errors()]
        what = f"{', '.join(names)} of the corpus {'is' if len(names) == 1 else 'are'} missing or invalid"
        raise IntegrityError(what, where=folder / MANIFEST, remedy="build the corpus again") from None
    return facts


def is_corpus(folder: Path) -> bool:
    """Whether `folder` has the manifest of a corpus."""
    manifest = folder / MANIFEST
    return manifest.is_file() and "corpus" in read_json(manifest, max_bytes=MAX_MANIFEST_BYTES)
