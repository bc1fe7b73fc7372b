"""`bertmill inspect`: what a model folder holds, in words."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from bertmill.checkpoint.huggingface import CONFIG_FILE, ModelFolder, open_folder
from bertmill.checkpoint.names import find_model
from bertmill.config import InspectSettings
from bertmill.model.bert import class_of
from bertmill.model.config import SIZES, BertConfig
from bertmill.text.tokenizer import BertTokenizer

MANY_LABELS = 20
HEADS_IN_WORDS = {
    "pooler.": "pooler (one vector per sequence)",
    "cls.predictions.": "masked words",
    "cls.seq_relationship.": "next sentence",
    "classifier.": "labels",
    "qa_outputs.": "answer span",
}


def run(settings: InspectSettings) -> None:
    folder = open_folder(find_model(settings.model))
    config = BertConfig.from_file_settings(folder.settings, folder.path / CONFIG_FILE)
    class_of(config).compare(folder, config)  # settings that the weights do not bear out are not repeated
    tokenizer = BertTokenizer.from_pretrained(folder.path)
    facts = _facts(folder, config, tokenizer)
    if settings.as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print("\n".join(_sentences(facts)))


def _facts(folder: ModelFolder, config: BertConfig, tokenizer: BertTokenizer) -> dict[str, Any]:
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
    files = {stored.path for stored in folder.tensors.values()}
    heads = [
        words for prefix, words in HEADS_IN_WORDS.items() if any(name.startswith(prefix) for name in folder.tensors)
    ]
    return {
        "folder": str(folder.path),
        "size": next((name for name, sizes in SIZES.items() if sizes == shape), None),
        "layers": config.num_hidden_layers,
        "hidden": config.hidden_size,
        "heads_of_attention": config.num_attention_heads,
        "inner": config.intermediate_size,
        "positions": config.max_position_embeddings,
        "segments": config.type_vocab_size,
        "activation": config.hidden_act,
        "causal": config.causal,
        "weights": sum(math.prod(stored.shape) for stored in folder.tensors.values()),
        "tensors": len(folder.tensors),
        "types": dict(Counter(stored.dtype for stored in folder.tensors.values())),
        "files": {path.name: path.stat().st_size for path in sorted(files)},
        "heads": heads,
        "labels": list(config.id2label.values()) if HEADS_IN_WORDS["classifier."] in heads else [],
        "vocabulary": tokenizer.vocab_size,
        "cased": not tokenizer.do_lower_case,
        "made_for": config.architectures or [],
        "written_by": _writer(folder),
    }


def _writer(folder: ModelFolder) -> str | None:
    version = folder.settings.get("transformers_version")
    return None if version is None else f"transformers {version}"


def _sentences(facts: dict[str, Any]) -> list[str]:
    size = f", the size called {facts['size']}" if facts["size"] else ""
    kind = "a left-to-right BERT" if facts["causal"] else "a BERT"
    files = ", ".join(f"{name} ({size_ / 1e6:,.1f} MB)" for name, size_ in facts["files"].items())
    types = ", ".join(f"{count} × {kind}" for kind, count in facts["types"].items())
    case = "cased" if facts["cased"] else "uncased"
    lines = [
        f"{facts['folder']} is {kind} of {facts['layers']} layers, {facts['hidden']} wide{size}.",
        f"attention:  {facts['heads_of_attention']} heads of {facts['hidden'] // facts['heads_of_attention']}; "
        f"feed-forward {facts['inner']:,} wide, {facts['activation']}",
        f"input:      up to {facts['positions']} pieces, {facts['segments']} segments",
        f"weights:    {facts['weights']:,} numbers in {facts['tensors']} tensors ({types}); {files}",
        f"heads:      {'; '.join(facts['heads']) or 'none: vectors only'}",
    ]
    if facts["labels"]:
        more = len(facts["labels"]) - MANY_LABELS
        shown = ", ".join(facts["labels"][:MANY_LABELS]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(f"labels:     {shown}")
    lines.append(f"vocabulary: {facts['vocabulary']:,} pieces, {case}")
    origin = [*facts["made_for"], *([f"written by {facts['written_by']}"] if facts["written_by"] else [])]
    if origin:
        lines.append(f"from:       {', '.join(origin)}")
    return lines
