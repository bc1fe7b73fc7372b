"""A tokenizer's files in a model folder, read and written so that Hugging Face's tools get the same ids.

`tokenizer.json` holds the whole pipeline, `vocab.txt` the pieces, `tokenizer_config.json` the settings of the
Python class. Reading takes the vocabulary from `tokenizer.json` if it is there, else from `vocab.txt`; settings
from `tokenizer_config.json`, and what that leaves open from the normalizer in `tokenizer.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import read_json, write_file
from bertmill.text.vocabulary import VOCABULARY_FILE, read_vocabulary, vocabulary_text
from bertmill.text.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

PIPELINE_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
_NORMALIZER_KEYS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_MAX_PIPELINE_BYTES = 256 << 20


@dataclass
class TokenizerFiles:
    """What the files say: the vocabulary, all special tokens that are listed, and the arguments of BertTokenizer."""

    vocabulary: dict[str, int]
    special_tokens: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)


def read_tokenizer_files(path: Path) -> TokenizerFiles:
    """Read a model folder, or a vocabulary file by itself."""
    if not path.is_dir():
        return TokenizerFiles(read_vocabulary(path))
    config = read_json(path / CONFIG_FILE) if (path / CONFIG_FILE).exists() else {}
    if (path / PIPELINE_FILE).exists():
        files = _from_pipeline(path / PIPELINE_FILE)
    elif (path / VOCABULARY_FILE).exists():
        files = TokenizerFiles(read_vocabulary(path / VOCABULARY_FILE))
    else:
        raise UsageError(f"holds neither {PIPELINE_FILE} nor {VOCABULARY_FILE}", where=path)
    files.settings.update(_known_settings(config))
    for number, token in dict(config.get("added_tokens_decoder") or {}).items():
        content = _added_token({**token, "id": number}, files.vocabulary, path / CONFIG_FILE)
        if content not in files.special_tokens:
            files.special_tokens.append(content)
    return files


def _from_pipeline(path: Path) -> TokenizerFiles:
    pipeline = read_json(path, max_bytes=_MAX_PIPELINE_BYTES)
    model = pipeline.get("model")
    if not isinstance(model, dict) or model.get("type", "WordPiece") != "WordPiece":
        raise UsageError("is not a WordPiece tokenizer, which is what BERT uses", where=path)
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict):
        raise IntegrityError("has no vocabulary", where=path)
    special = [_added_token(token, vocabulary, path) for token in pipeline.get("added_tokens") or []]
    normalizer = pipeline.get("normalizer") or {}
    settings = {ours: normalizer[theirs] for ours, theirs in _NORMALIZER_KEYS.items() if theirs in normalizer}
    return TokenizerFiles(vocabulary, special, settings)


def _added_token(token: Any, vocabulary: dict[str, int], path: Path) -> str:
    """The text of an added token, entered in the vocabulary with its id."""
    try:
        content, number = str(token["content"]), int(token["id"])
        is_plain = not (token.get("lstrip") or token.get("rstrip") or token.get("single_word"))
        is_literal = token.get("special") or not token.get("normalized")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise IntegrityError("has a malformed added token", where=path) from None
    if not (is_plain and is_literal):
        raise UsageError(
            f"the added token {content!r} is matched on normalised text or eats white space, which is not supported",
            where=path,
        )
    if vocabulary.setdefault(content, number) != number:
        raise IntegrityError(f"gives {content!r} two different ids", where=path)
    return content


def _known_settings(config: dict[str, Any]) -> dict[str, Any]:
    """The entries of `tokenizer_config.json` that matter here, under the names of BertTokenizer's arguments."""
    settings = {role: _content(config[role]) for role in ROLES if config.get(role) is not None}
    for name in ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "model_max_length", "never_split"):
        if config.get(name) is not None:
            settings[name] = config[name]
    for name in ("padding_side", "truncation_side"):
        if config.get(name) in ("left", "right"):
            settings[name] = config[name]
    return settings


def _content(token: Any) -> str:
    """A special token is written as a string or as an object around it."""
    return str(token["content"] if isinstance(token, dict) and "content" in token else token)


def write_tokenizer_files(
    folder: Path, vocabulary: dict[str, int], special_tokens: list[str], settings: dict[str, Any]
) -> None:
    """Write the three files; `settings` are the arguments of BertTokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    pipeline = _pipeline(vocabulary, special_tokens, settings)
    config = {"tokenizer_class": "BertTokenizer", **settings}
    write_file(folder / VOCABULARY_FILE, vocabulary_text(vocabulary))
    write_file(folder / PIPELINE_FILE, json.dumps(pipeline, ensure_ascii=False) + "\n")
    write_file(folder / CONFIG_FILE, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _pipeline(vocabulary: dict[str, int], special_tokens: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    cls, sep = settings["cls_token"], settings["sep_token"]
    first = [_special(cls, 0), _sequence("A", 0), _special(sep, 0)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in sorted(special_tokens, key=vocabulary.__getitem__)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            **{theirs: settings[ours] for ours, theirs in _NORMALIZER_KEYS.items()},
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": [*first, _sequence("B", 1), _special(sep, 1)],
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (cls, sep)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": settings["unk_token"],
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": MAX_WORD_CHARACTERS,
            "vocab": vocabulary,
        },
    }


def _special(token: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": segment}}


def _sequence(name: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": segment}}
