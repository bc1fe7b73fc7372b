"""Model folders for `inspect` and `check`: a description and checks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bertmill.batching.windows import recorded_settings
from bertmill.checkpoint.files import CONFIG_FILE, INDEX_FILE, TOKENIZER_FILES
from bertmill.checkpoint.huggingface import ModelFolder, open_folder
from bertmill.checkpoint.names import METADATA_FILE, read_metadata
from bertmill.checkpoint.tensors import read_tensors
from bertmill.cli.folders import check_hashes
from bertmill.config.commands import WindowSettings
from bertmill.errors import IntegrityError
from bertmill.model.config import SIZES, BertConfig
from bertmill.model.mean_layer import has_mean_layer, num_encoder_layers
from bertmill.model.probe import ONLY_OURS, Probe
from bertmill.model.registry import MODEL_CLASSES, class_of
from bertmill.storage import renew_manifest
from bertmill.tasks import PRETRAINED, head_of, task_of_folder
from bertmill.text.padding import NO_LIMIT
from bertmill.text.printable import counted
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.tokenizer_files import require_same_pieces

MANY_LABELS = 20
HEADS_IN_WORDS = {
    "pooler.": "pooler (one vector per sequence)",
    "cls.predictions.": "masked LM",
    "cls.seq_relationship.": "next sentence",
    "classifier.": "labels",
    "qa_outputs.": "answer span",
}


def facts(path: Path) -> dict[str, Any]:
    """What `inspect` shows."""
    folder = open_folder(path)
    config = BertConfig.from_file_settings(folder.settings, folder.path / CONFIG_FILE)
    class_of(config).compare(folder, config)  # an error if the weights contradict the settings
    tokenizer = BertTokenizer.from_pretrained(folder.path)
    shape = (num_encoder_layers(config), config.hidden_size, config.num_attention_heads)
    stored = folder.tensors.values()
    heads = [
        words for prefix, words in HEADS_IN_WORDS.items() if any(name.startswith(prefix) for name in folder.tensors)
    ]
    writer = folder.settings.get("transformers_version")
    return {
        "folder": str(folder.path),
        "size": next((name for name, sizes in SIZES.items() if sizes == shape), None),
        "layers": num_encoder_layers(config),
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "positions": config.max_position_embeddings,
        "segments": config.type_vocab_size,
        "activation": config.hidden_act,
        "causal": config.causal,
        "mean_layer": has_mean_layer(config),
        "method": read_metadata(folder.path).get("method"),
        "weights": sum(math.prod(each.shape) for each in stored),
        "tensors": len(stored),
        "types": dict(Counter(each.dtype for each in stored)),
        "files": {path.name: path.stat().st_size for path in sorted({each.path for each in stored})},
        "heads": heads,
        "labels": list(config.id2label.values()) if HEADS_IN_WORDS["classifier."] in heads else [],
        "vocabulary": len(tokenizer),
        "cased": not tokenizer.do_lower_case,
        "class": class_of(config).__name__,
        "written_by": None if writer is None else f"transformers {writer}",
    }


def sentences(facts: dict[str, Any]) -> list[str]:
    """The facts as lines of text."""
    size = f" (size {facts['size']})" if facts["size"] else ""
    kind = "a left-to-right BERT model" if facts["causal"] else "a BERT model"
    layers = counted(facts["layers"], "layer")
    head_size = facts["hidden_size"] // facts["num_attention_heads"]
    files = ", ".join(f"{name} ({size_ / 1e6:,.1f} MB)" for name, size_ in facts["files"].items())
    types = ", ".join(f"{count} × {kind}" for kind, count in facts["types"].items())
    case = "cased" if facts["cased"] else "uncased"
    lines = [
        f"{facts['folder']} is {kind} with {layers} and hidden size {facts['hidden_size']}{size}.",
        f"attention:  {facts['num_attention_heads']} heads of size {head_size}; "
        f"feed-forward size {facts['intermediate_size']:,}, {facts['activation']}",
        f"input:      up to {facts['positions']} pieces, {facts['segments']} segments",
        f"weights:    {facts['weights']:,} values in {facts['tensors']} tensors ({types}); {files}",
        f"heads:      {'; '.join(facts['heads']) or 'none (vectors only)'}",
    ]
    if facts["mean_layer"]:
        lines.append("pooling:    a last layer that is not trained averages the vectors of all pieces")
    if facts["method"]:
        lines.append(f"method:     {_method(facts)}")
    if facts["labels"]:
        more = len(facts["labels"]) - MANY_LABELS
        shown = ", ".join(facts["labels"][:MANY_LABELS]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"labels:     {shown}")
    lines.append(f"vocabulary: {facts['vocabulary']:,} pieces, {case}")
    origin = [facts["class"], *([f"written by {facts['written_by']}"] if facts["written_by"] else [])]
    return [*lines, f"from:       {', '.join(origin)}"]


def _method(facts: dict[str, Any]) -> str:
    """How the model was fine-tuned, and whether `transformers` can open it."""
    method = facts["method"]
    if method["name"] == "full":
        return "all weights were trained"
    what = f"probe, a linear model of frozen features ({method['features']})"
    is_ours = issubclass(MODEL_CLASSES[facts["class"]], Probe)
    return f"{what}; {ONLY_OURS}" if is_ours else what


def checks(path: Path) -> dict[str, Callable[[], str]]:
    """The checks of `bertmill check` by name; each returns what it found, or raises."""
    folder = open_folder(path, check_hashes=False)  # a model that cannot be opened fails here
    config = BertConfig.from_file_settings(folder.settings, path / CONFIG_FILE)
    return {
        "hashes": lambda: check_hashes(path),
        "shapes": lambda: "; ".join(str(class_of(config).compare(folder, config)).splitlines()),
        "values": lambda: _values(folder),
        "tokenizer": lambda: _tokenizer(folder, config),
        "metadata": lambda: _metadata(folder, config),
    }


def accept(path: Path) -> None:
    """Record the present content of the files in the manifest."""
    weights = {stored.path.name for stored in open_folder(path, check_hashes=False).tensors.values()}
    renew_manifest(path, {CONFIG_FILE, INDEX_FILE, METADATA_FILE, *TOKENIZER_FILES, *weights})


def _values(folder: ModelFolder) -> str:
    stored = folder.tensors.values()
    tensors = zip(stored, read_tensors(stored), strict=True)
    wrong = [each.name for each, tensor in tensors if not bool(torch.isfinite(tensor).all())]
    if wrong:
        raise IntegrityError(f"NaN or infinity in {', '.join(wrong)}")
    return f"all {len(folder.tensors)} tensors are finite"


def _tokenizer(folder: ModelFolder, config: BertConfig) -> str:
    require_same_pieces(folder.path)
    tokenizer = BertTokenizer.from_pretrained(folder.path, check_hashes=False)
    problems = []
    largest = max(tokenizer.vocab.values())
    if largest >= config.vocab_size:
        problems.append(f"it has ids up to {largest:,}, but the embedding has {config.vocab_size:,} rows")
    if config.pad_token_id is not None and tokenizer.pad_token_id != config.pad_token_id:
        problems.append(f"its padding id is {tokenizer.pad_token_id}, but the model's is {config.pad_token_id}")
    positions, longest = config.max_position_embeddings, tokenizer.model_max_length
    if positions < longest < NO_LIMIT:
        problems.append(f"it allows {longest} pieces, but the model has {positions} positions")
    if problems:
        raise IntegrityError("; ".join(problems))
    return f"{len(tokenizer):,} pieces fit the embedding of {config.vocab_size:,} rows"


def _metadata(folder: ModelFolder, config: BertConfig) -> str:
    metadata = read_metadata(folder.path)
    recorded_settings(WindowSettings(), folder.path)  # an error if they are malformed
    if metadata.get("task") in (None, PRETRAINED):
        return "no task is recorded"
    task = task_of_folder(config, metadata, folder.path)
    if MODEL_CLASSES[head_of(config, type(task))].compare(folder, config).new:
        raise IntegrityError(f"the weights have no head for the task {task.name}", where=folder.path)
    return f"the task {task.name} matches the head"
