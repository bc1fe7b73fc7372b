"""The settings of the commands that read raw text: tokenize, vocab and corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from bertmill.config.fields import Encoding, TextFiles
from bertmill.config.settings import Settings


class TokenizeSettings(Settings):
    """Show how text is split into pieces: each piece with its id, the characters it covers and its word."""

    files: TextFiles = Field([])
    model: str = Field(description="vocabulary file, model folder or model name such as minilm or bert-base-uncased")
    text: list[str] = Field([], description="text to tokenize instead of files; may be repeated")
    pair: str | None = Field(None, description="second text, encoded after --text in the same sequence")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")
    encoding: Encoding = None
    cased: bool | None = Field(None, description="keep case and accents (default: as in the model folder)")
    special_tokens: bool = Field(True, description="add [CLS] and [SEP] to each text")
    as_json: bool = Field(False, alias="json", description="print one JSON object per text instead of a table")


class VocabSettings(Settings):
    """Learn a WordPiece vocabulary from text. The output is byte-identical for any file order."""

    files: TextFiles
    out: Path = Field(description="folder to write; it must not exist yet")
    size: int = Field(30_522, ge=6, le=1_000_000, description="number of pieces, including special tokens")
    cased: bool = Field(False, description="keep case and accents")
    alphabet: int | None = Field(
        None, ge=1, description="maximum number of distinct characters (default: enough to cover 99.995% of the text)"
    )
    unused: int = Field(0, ge=0, le=100_000, description="number of [unused…] tokens to reserve")
    min_frequency: int = Field(2, ge=1, description="minimum frequency of words to learn from and of pairs to merge")
    workers: int | None = Field(None, ge=1, le=1024, description="processes to use (default: one per core)")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")
    encoding: Encoding = None
    as_json: bool = Field(False, alias="json", description="print one JSON object instead of text")


class CorpusSettings(Settings):
    """Turn text into a corpus: sentences are split into pieces and stored on disk. Resumes an interrupted build."""

    files: TextFiles
    vocab: str = Field(description="vocabulary folder or file, model folder or model name")
    out: Path = Field(description="corpus folder to write; it must not exist yet")
    workers: int | None = Field(None, ge=1, le=1024, description="processes to use (default: one per core)")
    document: Literal["blank-line", "file", "record"] | None = Field(
        None,
        description="where a document ends: at a blank line, at the end of the file, or after each line or record "
        "(default: record in .jsonl files, else blank-line)",
    )
    chinese_words: bool = Field(False, description="group Chinese characters into words with jieba")
    text_field: str = Field("text", description="field of a .jsonl record that contains the text")
    encoding: Encoding = None
