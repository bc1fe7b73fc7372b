"""`bertmill check`: everything about a model folder that can be wrong, looked at and said."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bertmill.checkpoint.huggingface import CONFIG_FILE, ModelFolder, check_vocabulary_size, open_folder, read_tensors
from bertmill.checkpoint.names import find_model
from bertmill.config import CheckSettings
from bertmill.errors import BertmillError, IntegrityError
from bertmill.model.bert import class_of
from bertmill.model.config import BertConfig
from bertmill.storage import MANIFEST, verify_manifest
from bertmill.text.tokenizer import NO_LIMIT, BertTokenizer


def run(settings: CheckSettings) -> None:
    path = find_model(settings.model)
    folder = open_folder(path, check_hashes=False)  # what cannot be opened at all is an error at once
    config = BertConfig.from_file_settings(folder.settings, path / CONFIG_FILE)
    checks: dict[str, Callable[[], str]] = {
        "hashes": lambda: _hashes(folder),
        "shapes": lambda: _shapes(folder, config),
        "values": lambda: _values(folder),
        "tokenizer": lambda: _tokenizer(folder, config),
    }
    failed = []
    for name, check in checks.items():
        try:
            print(f"ok     {name}: {check()}")
        except BertmillError as error:
            print(f"WRONG  {name}: {error}")
            failed.append(name)
    if failed:
        raise IntegrityError(f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}", where=path)


def _hashes(folder: ModelFolder) -> str:
    if not (folder.path / MANIFEST).is_file():
        return f"there is no {MANIFEST} (other programs write none), so changed bytes would not be noticed"
    verify_manifest(folder.path)
    return f"every file is what {MANIFEST} says"


def _shapes(folder: ModelFolder, config: BertConfig) -> str:
    check_vocabulary_size(folder.path, config.vocab_size)
    return "; ".join(str(class_of(config).compare(folder, config)).splitlines())


def _values(folder: ModelFolder) -> str:
    wrong = [name for name, tensor in read_tensors(folder) if not bool(torch.isfinite(tensor).all())]
    if wrong:
        raise IntegrityError(f"NaN or infinity in {', '.join(wrong)}")
    return f"all of the {len(folder.tensors)} tensors are finite"


def _tokenizer(folder: ModelFolder, config: BertConfig) -> str:
    tokenizer = BertTokenizer.from_pretrained(folder.path)
    problems = []
    largest = max(tokenizer.vocab.values())
    if largest >= config.vocab_size:
        problems.append(f"it has ids up to {largest:,}, and the embedding {config.vocab_size:,} rows")
    if config.pad_token_id is not None and tokenizer.pad_token_id != config.pad_token_id:
        problems.append(f"its padding is {tokenizer.pad_token_id}, and the model's {config.pad_token_id}")
    if config.max_position_embeddings < tokenizer.model_max_length < NO_LIMIT:
        problems.append(
            f"it gives {tokenizer.model_max_length} pieces, the model has {config.max_position_embeddings} positions"
        )
    if problems:
        raise IntegrityError("; ".join(problems))
    return f"its {tokenizer.vocab_size:,} pieces fit the embedding of {config.vocab_size:,} rows"
