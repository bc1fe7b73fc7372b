"""Read and write the tokenizer files of a model folder, so that Hugging Face tools get the same ids.

`tokenizer.json` contains the whole pipeline, `vocab.txt` the pieces, `tokenizer_config.json` the settings of the Python
class. The vocabulary is read from `tokenizer.json` if it exists, otherwise from `vocab.txt`. Settings are read from
`tokenizer_config.json`; those it does not set come from the normalizer in `tokenizer.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bertmill.checkpoint.files import PIPELINE_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILES, VOCABULARY_FILE
from bertmill.checkpoint.names import not_a_model
from bertmill.errors import IntegrityError, UsageError
from bertmill.storage import MANIFEST, read_json, verify_listed, write_file, write_manifest
from bertmill.text.vocabulary import SPECIAL_TOKENS, read_vocabulary, vocabulary_text
from bertmill.text.wordpiece import CONTINUATION, MAX_WORD_CHARACTERS

# The only pipeline that this tokenizer implements; any other would produce wrong ids.
_ONLY_PARTS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
_ONLY_VALUES = {"continuing_subword_prefix": CONTINUATION, "max_input_chars_per_word": MAX_WORD_CHARACTERS}
_NORMALIZER_KEYS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
_ADDED = {"single_word": False, "lstrip": False, "rstrip": False}
NAMED_TOKENS = dict(
    zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True)
)
_MAX_PIPELINE_BYTES = 256 << 20


# A special token is a string, or an object that contains it.
_Token = Annotated[
    str | None, BeforeValidator(lambda token: token.get("content") if isinstance(token, dict) else token)
]
# As in Hugging Face, a list of tokens, or an object with named tokens.
_Tokens = Annotated[
    list[_Token] | None, BeforeValidator(lambda tokens: list(tokens.values()) if isinstance(tokens, dict) else tokens)
]


class _Config(BaseModel):
    """The entries of `tokenizer_config.json` that are used; they are arguments of BertTokenizer."""

    model_config = ConfigDict(extra="ignore", strict=True)

    do_lower_case: bool | None = None
    tokenize_chinese_chars: bool | None = None
    strip_accents: bool | None = None
    never_split: list[str] | None = None
    model_max_length: float | None = Field(None, ge=1, allow_inf_nan=False)
    padding_side: Literal["left", "right"] | None = None
    truncation_side: Literal["left", "right"] | None = None
    pad_token: _Token = None
    unk_token: _Token = None
    cls_token: _Token = None
    sep_token: _Token = None
    mask_token: _Token = None
    additional_special_tokens: _Tokens = None
    extra_special_tokens: _Tokens = None


@dataclass
class TokenizerFiles:
    """The content of the files.

    `vocabulary` includes added tokens, after the first `base_size` pieces. `is_special` lists the added tokens.
    """

    vocabulary: dict[str, int]
    base_size: int
    is_special: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments of BertTokenizer."""
        named = {self.settings.get(name, default) for name, default in NAMED_TOKENS.items()}
        special = [token for token, is_special in self.is_special.items() if is_special and token not in named]
        special = [*self.settings.get("additional_special_tokens", []), *special]
        plain = [token for token, is_special in self.is_special.items() if not is_special]
        added = {"additional_special_tokens": special, "added_tokens": plain}
        return {"base_size": self.base_size, **self.settings, **added}


def read_tokenizer_files(path: Path, *, check_hashes: bool = True) -> TokenizerFiles:
    """Read the tokenizer of a model folder, or a vocabulary file; if there is a manifest, verify the hashes first."""
    if not path.is_dir():
        return _from_vocabulary(path)
    if check_hashes:
        verify_listed(path, TOKENIZER_FILES)
    config = read_json(path / TOKENIZER_CONFIG_FILE) if (path / TOKENIZER_CONFIG_FILE).exists() else {}
    if (path / PIPELINE_FILE).exists():
        files = _from_pipeline(path / PIPELINE_FILE)
    elif (path / VOCABULARY_FILE).exists():
        files = _from_vocabulary(path / VOCABULARY_FILE)
    else:
        raise not_a_model(path, f"contains neither {PIPELINE_FILE} nor {VOCABULARY_FILE}")
    files.settings.update(_checked(config, path / TOKENIZER_CONFIG_FILE))
    added = config.get("added_tokens_decoder") or {}
    if not isinstance(added, Mapping) or not all(isinstance(token, Mapping) for token in added.values()):
        raise IntegrityError("has malformed added tokens", where=path / TOKENIZER_CONFIG_FILE)
    for number, token in added.items():
        _add_token({**token, "id": number}, files, path / TOKENIZER_CONFIG_FILE)
    return files


def _from_vocabulary(path: Path) -> TokenizerFiles:
    vocabulary = read_vocabulary(path)
    return TokenizerFiles(vocabulary, len(vocabulary))


def require_same_pieces(folder: Path) -> None:
    """Raise IntegrityError if `vocab.txt`, which is not read then, contradicts `tokenizer.json`."""
    if not ((folder / VOCABULARY_FILE).exists() and (folder / PIPELINE_FILE).exists()):
        return
    pieces = _from_pipeline(folder / PIPELINE_FILE).vocabulary
    for piece, number in read_vocabulary(folder / VOCABULARY_FILE).items():
        if pieces.get(piece) != number:
            what = f"gives {piece!r} the id {number}, but in {PIPELINE_FILE} it is {pieces.get(piece, 'missing')}"
            raise IntegrityError(what, where=folder / VOCABULARY_FILE, remedy="change both files or remove one")


def _checked(config: dict[str, Any], path: Path) -> dict[str, Any]:
    try:
        return _Config.model_validate(config).model_dump(exclude_none=True)
    except ValidationError as error:
        problems = [f"{detail['loc'][0]} is {detail['input']!r}: {detail['msg'].lower()}" for detail in error.errors()]
        raise IntegrityError("; ".join(problems), where=path) from None


def _from_pipeline(path: Path) -> TokenizerFiles:
    pipeline = read_json(path, max_bytes=_MAX_PIPELINE_BYTES)
    for part, kind in _ONLY_PARTS.items():
        content = pipeline.get(part)
        found = content.get("type", kind) if isinstance(content, dict) else content
        if found != kind:
            raise UsageError(f"the {part} is {found}, but BERT uses {kind}", where=path)
    normalizer, model = pipeline["normalizer"], pipeline["model"]
    for name, value in _ONLY_VALUES.items():
        if model.get(name, value) != value:
            raise UsageError(f"{name} is {model[name]!r}, but only {value!r} is supported", where=path)
    vocabulary = model.get("vocab")
    added = pipeline.get("added_tokens") or []
    if not isinstance(vocabulary, dict) or not isinstance(added, list):
        raise IntegrityError("has no vocabulary, or has malformed added tokens", where=path)
    settings = {ours: normalizer[theirs] for ours, theirs in _NORMALIZER_KEYS.items() if theirs in normalizer}
    files = TokenizerFiles(vocabulary, len(vocabulary), settings=_checked(settings, path))
    for token in added:
        _add_token(token, files, path)
    return files


def _add_token(token: Any, files: TokenizerFiles, path: Path) -> None:
    """Add a token to the vocabulary."""
    try:
        content, number = str(token["content"]), int(token["id"])
        is_plain = not (token.get("lstrip") or token.get("rstrip") or token.get("single_word"))
        is_special = bool(token.get("special"))
        is_plain &= is_special or token.get("normalized") is not False
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise IntegrityError("has a malformed added token", where=path) from None
    if not content:
        raise IntegrityError("has an added token without text", where=path)
    if not is_plain:
        what = f"the added token {content!r} sets lstrip, rstrip or single_word, or is neither special nor normalized"
        raise UsageError(what, where=path, remedy="tokens with these options are not supported")
    if files.vocabulary.setdefault(content, number) != number:
        raise IntegrityError(f"gives {content!r} two different ids", where=path)
    files.is_special.setdefault(content, is_special)


def write_tokenizer_files(
    folder: Path, vocabulary: dict[str, int], base_size: int, is_special: Mapping[str, bool], settings: dict[str, Any]
) -> tuple[str, ...]:
    """Write the three tokenizer files, and return their paths; `settings` are the arguments of BertTokenizer."""
    pipeline = _pipeline(vocabulary, base_size, is_special, settings)
    contents = {
        VOCABULARY_FILE: vocabulary_text(vocabulary),
        PIPELINE_FILE: json.dumps(pipeline, ensure_ascii=False) + "\n",
        TOKENIZER_CONFIG_FILE: json.dumps(
            {"tokenizer_class": "BertTokenizer", **settings}, indent=2, ensure_ascii=False
        )
        + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_file(folder / name, content)
    if (folder / MANIFEST).exists():  # the model was saved before its tokenizer
        write_manifest(folder, contents)
    return tuple(str(folder / name) for name in contents)


def _pipeline(
    vocabulary: dict[str, int], base_size: int, is_special: Mapping[str, bool], settings: dict[str, Any]
) -> dict[str, Any]:
    """The content of `tokenizer.json`."""
    cls, sep = settings["cls_token"], settings["sep_token"]
    first = [_part("SpecialToken", cls, 0), _part("Sequence", "A", 0), _part("SpecialToken", sep, 0)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": vocabulary[token], "content": token, **_ADDED, "normalized": not special, "special": special}
            for token, special in sorted(is_special.items(), key=lambda item: vocabulary[item[0]])
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
            "pair": [*first, _part("Sequence", "B", 1), _part("SpecialToken", sep, 1)],
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
            "vocab": dict(list(vocabulary.items())[:base_size]),
        },
    }


def _part(kind: str, name: str, segment: int) -> dict[str, Any]:
    return {kind: {"id": name, "type_id": segment}}
