"""Tagging the 3,250 dev sentences of CoNLL-2003 with MiniLM against Hugging Face's token-classification pipeline.

Both tools get raw text, the words of a sentence separated by spaces. We tag every word; the pipeline tags every piece,
in batches of 32. The head is random, so the tags are meaningless, but the benchmark fails unless both tools agree.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Row, best_seconds_in_processes
from bertmill.inference.predictor import load
from bertmill.machine import set_threads
from bertmill.model.bert import BertForTokenClassification
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import find_words

BATCH_SIZE = 32
TAGS = ("O", *(f"{begin}-{kind}" for kind in ("LOC", "MISC", "ORG", "PER") for begin in "BI"))
TARGET = 4.0
MAX_DIFFERING = 1e-3  # fraction of words, for ties between two tags


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the throughput of both tools in sentences per second."""
    texts = _texts(data / "conll2003/eng.testa")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        model = BertForTokenClassification.from_pretrained("minilm", id2label=dict(enumerate(TAGS)))
        model.save_pretrained(folder / "model")
        BertTokenizer.from_pretrained("minilm").save_pretrained(folder / "model")
        sides = {"ours": partial(_ours, folder, texts), "theirs": partial(_theirs, folder, texts)}
        seconds = best_seconds_in_processes(sides, rounds)
        _require_same(folder, texts)
    rates = {side: len(texts) / taken for side, taken in seconds.items()}
    rival = "transformers pipeline"
    yield Row("tag", "CoNLL-2003, MiniLM", "text/s", rates["ours"], rates["theirs"], rival, TARGET)


def _texts(file: Path) -> list[str]:
    """Return the sentences of a CoNLL file as text, without the -DOCSTART- lines."""
    blocks = (block.splitlines() for block in file.read_text(encoding="utf-8").split("\n\n"))
    sentences = (" ".join(line.split()[0] for line in block if line) for block in blocks)
    return [sentence for sentence in sentences if sentence and sentence != "-DOCSTART-"]


def _ours(folder: Path, texts: list[str]) -> Callable[[], object]:
    set_threads(None)
    model = load(folder / "model")
    return lambda: (folder / "ours.json").write_text(json.dumps([each["tags"] for each in model.predict(texts)]))


def _theirs(folder: Path, texts: list[str]) -> Callable[[], object]:
    import transformers

    set_threads(None)
    transformers.logging.set_verbosity_error()
    pipeline = transformers.pipeline(
        "token-classification",
        model=str(folder / "model"),
        device="cpu",
        batch_size=BATCH_SIZE,
        ignore_labels=[],
        aggregation_strategy="none",
    )

    def tags_by_place(pieces: list[dict[str, Any]]) -> dict[int, str]:
        return {piece["start"]: piece["entity"] for piece in pieces}

    return lambda: (folder / "theirs.json").write_text(json.dumps(list(map(tags_by_place, pipeline(texts)))))


def _require_same(folder: Path, texts: list[str]) -> None:
    """Compare the tag of each word with the pipeline's tag of its first piece."""
    ours, theirs = (json.loads((folder / f"{side}.json").read_text()) for side in ("ours", "theirs"))
    pairs = [
        (tag, by_place.get(str(start)))
        for text, tags, by_place in zip(texts, ours, theirs, strict=True)
        for (start, _), tag in zip(find_words(text), tags, strict=True)
    ]
    assert sum(one != other for one, other in pairs) <= MAX_DIFFERING * len(pairs)
