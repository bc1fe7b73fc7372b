"""Build a corpus from text: each worker process takes the text of one shard and writes the shard.

A worker splits lines into sentences, tokenizes them, writes the shard's files and finally a record with the hashes of
the text, the recipe and the files. An interrupted build reads the text again, which is cheap, and skips every shard
whose record matches. So the result is byte-identical for any number of workers and interruptions.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus import chinese
from bertmill.corpus.shard_texts import DocumentMode, ShardText, cut_shard_texts
from bertmill.corpus.shards import (
    KINDS,
    VOCABULARY_FOLDER,
    Shard,
    open_shard,
    pack_words,
    piece_type,
    shard_file,
    vocabulary_sha256,
)
from bertmill.corpus.statistics import compute_statistics
from bertmill.errors import BertmillError, DataError
from bertmill.locks import resumable_folder
from bertmill.storage import difference, manifest_entry, read_json, write_file, write_manifest
from bertmill.text.bulk import ReadingProgress, map_with_wordpiece
from bertmill.text.files import read_lines
from bertmill.text.repair import Repairs
from bertmill.text.sentences import split_sentences
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.wordpiece import CONTINUATION, WordPiece
from bertmill.version import __version__

ShardRecord = dict[str, Any]  # of a finished shard


@dataclass(frozen=True)
class Job:
    """What a worker needs besides the text of its shard."""

    folder: Path
    records: Path
    recipe: str  # hash of everything except the text that determines the content of the shards
    chinese_words: bool

    def record_path(self, number: int) -> Path:
        """Return the path of the record of a shard."""
        return self.records / shard_file(number, "json")


def build_corpus(
    files: Sequence[str],
    tokenizer: BertTokenizer,
    out: Path,
    *,
    workers: int | None = None,
    document: DocumentMode | None = None,
    chinese_words: bool = False,
    text_field: str = "text",
    encoding: str | None = None,
    repairs: Repairs | None = None,
    on_progress: Callable[[int, int], object] = lambda _read, _text: None,
) -> dict[str, Any]:
    """Write the corpus folder `out` and return its facts as stored in the manifest.

    `document` determines what a document is (default: a record in .jsonl files, else the lines between blank lines).
    For each finished shard, `on_progress` gets the number of bytes read up to its end and its bytes of text.
    """
    wordpiece = tokenizer.wordpiece
    recipe = {
        "bertmill": __version__,
        "vocabulary_sha256": vocabulary_sha256(wordpiece),
        "chinese_words": f"jieba {chinese.version()}" if chinese_words else None,
    }
    with resumable_folder(out) as (folder, records_folder):
        job = Job(folder, records_folder, _sha256(json.dumps(recipe, sort_keys=True).encode()), chinese_words)
        progress = ReadingProgress()
        lines = read_lines(files, text_field=text_field, encoding=encoding, repairs=repairs, on_bytes=progress.count)
        texts = progress.track(cut_shard_texts(lines, document))
        records: list[ShardRecord] = []
        for record in map_with_wordpiece(partial(_finish_shard, job), wordpiece, texts, workers):
            records.append(record)
            on_progress(progress.finish_unit(), record["text_bytes"])
        facts = _facts(records, recipe, document, wordpiece, files)
        _remove_all_but(folder, {name for record in records for name in record["files"]})
        tokenizer.save_pretrained(folder / VOCABULARY_FOLDER)
        shards = (open_shard(folder, number, len(wordpiece.vocabulary)) for number in range(len(records)))
        facts["statistics"] = compute_statistics(shards, len(wordpiece.vocabulary), tokenizer.unk_token_id)
        write_manifest(folder, facts={"corpus": facts})
    return facts


def _finish_shard(job: Job, wordpiece: WordPiece, shard_text: ShardText) -> ShardRecord:
    return _finished(job, shard_text) or write_shard(job, wordpiece, shard_text)


def _finished(job: Job, shard_text: ShardText) -> ShardRecord | None:
    """Return the record of a shard that an earlier build finished, if text, recipe and files still match it."""
    path = job.record_path(shard_text.number)
    if not path.exists():
        return None
    try:
        record = read_json(path)
        is_right = (record["recipe"], record["text_sha256"]) == (job.recipe, _sha256(shard_text.text)) and not any(
            difference(job.folder, name, entry) for name, entry in record["files"].items()
        )
    except (BertmillError, LookupError, TypeError, AttributeError):  # invalid record: build the shard again
        return None
    return record if is_right else None


def write_shard(job: Job, wordpiece: WordPiece, shard_text: ShardText) -> ShardRecord:
    """Build a shard, write its files and then its record."""
    shard, num_dropped = make_shard(wordpiece, shard_text.text.decode(), chinese_words=job.chinese_words)
    names = [shard_file(shard_text.number, kind) for kind in KINDS]
    columns: tuple[NDArray[Any], ...] = (shard.pieces[:], shard.words[:], shard.sentence_ends, shard.document_ends)
    for name, column in zip(names, columns, strict=True):
        write_file(job.folder / name, column.tobytes())
    record = {
        "number": shard_text.number,
        "recipe": job.recipe,
        "text_sha256": _sha256(shard_text.text),
        "text_bytes": len(shard_text.text),
        "pieces": shard.num_pieces,
        "sentences": len(shard.sentence_ends),
        "documents": len(shard.document_ends),
        "dropped_sentences": num_dropped,
        "files": {name: manifest_entry(job.folder / name) for name in names},
    }
    write_file(job.record_path(shard_text.number), json.dumps(record))
    return record


def make_shard(wordpiece: WordPiece, text: str, *, chinese_words: bool) -> tuple[Shard, int]:
    """Return the shard of a text, and the number of sentences without pieces, which are not in the shard."""
    pieces = array("I")  # one array for all sentences, since most are short
    sentence_ends = array("I")
    words: list[NDArray[np.bool_]] = []
    document_ends: list[int] = []
    num_dropped = 0
    # Computing only ids is faster. A piece's spelling shows whether it begins a word, unless some words are not split.
    by_spelling = not (chinese_words or wordpiece.never_split)
    for row in text.split("\n")[:-1]:
        if not row:
            if len(sentence_ends) > (document_ends[-1] if document_ends else 0):
                document_ends.append(len(sentence_ends))
            continue
        for sentence in split_sentences(row):
            if by_spelling:
                ids = wordpiece.ids(sentence, split_special=True)
            else:
                ids, begins_word = _locate(wordpiece, sentence, chinese_words)
                words.append(begins_word)
            if ids:
                pieces.extend(ids)
                sentence_ends.append(len(pieces))
            else:
                num_dropped += 1
    flat = np.frombuffer(pieces, np.uint32)
    begins = _begins_word(wordpiece)[flat] if by_spelling else np.concatenate([np.empty(0, np.bool_), *words])
    piece_ids = flat.astype(piece_type(len(wordpiece.vocabulary)))
    ends = (np.array(sentence_ends, "<u4"), np.array(document_ends, "<u4"))
    return Shard(piece_ids, pack_words(begins), *ends), num_dropped


@cache
def _begins_word(wordpiece: WordPiece) -> NDArray[np.bool_]:
    """Return, for each id, whether the piece begins a word."""
    begins = np.ones(max(wordpiece.vocabulary.values()) + 1, np.bool_)
    begins[[number for piece, number in wordpiece.vocabulary.items() if piece.startswith(CONTINUATION)]] = False
    return begins


def _locate(wordpiece: WordPiece, sentence: str, chinese_words: bool) -> tuple[array[int], NDArray[np.bool_]]:
    """Return the ids of the pieces of `sentence`, and whether each begins a word."""
    located = wordpiece.pieces(sentence, split_special=True)
    begins = np.diff(located.words.astype(np.int64), prepend=-1) > 0
    if chinese_words:
        begins &= ~chinese.goes_on_word(sentence)[located.starts]
    return array("I", located.ids.tobytes()), begins


def _facts(
    records: list[ShardRecord],
    recipe: dict[str, Any],
    document: DocumentMode | None,
    wordpiece: WordPiece,
    files: Sequence[str],
) -> dict[str, Any]:
    names = ("pieces", "sentences", "documents", "dropped_sentences", "text_bytes")
    totals = {name: sum(record[name] for record in records) for name in names}
    if not totals["pieces"]:
        raise DataError("contains no text", where=", ".join(files))
    hashes = [entry["sha256"] for record in records for entry in record["files"].values()]
    return {
        "shards": len(records),
        **totals,
        **recipe,
        "document": document or "record in .jsonl files, else blank-line",
        "vocabulary_size": len(wordpiece.vocabulary),
        "sha256": _sha256("".join([recipe["vocabulary_sha256"], *hashes]).encode()),
    }


def _remove_all_but(folder: Path, names: set[str]) -> None:
    """Remove files that an earlier attempt left behind and that do not belong to the corpus."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in names:
            path.unlink()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
