"""Prediction against Hugging Face's pipeline on mixed lengths, and whether memory stays flat.

The texts are the 872 sentences of SST-2's dev set and 128 paragraphs of 300 to 500 pieces of held-out Wikipedia,
shuffled; the model is MiniLM with a head for two classes. The pipeline gets them in batches of 32, as given; both give
the same answers, or the measurement fails. Memory is that of `bertmill predict` on 1,000 and on 100,000 rows.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from bertmill.bench.measure import Row, best_seconds
from bertmill.config import BenchSettings
from bertmill.inference.predictor import load
from bertmill.model.bert import BertForSequenceClassification
from bertmill.runtime import set_threads
from bertmill.text.files import read_lines
from bertmill.text.tokenizer import BertTokenizer

NUM_PARAGRAPHS = 128
PARAGRAPH_PIECES = (300, 500)
BATCH_SIZE = 32
TARGET = 8
MEMORY_ROWS = (1_000, 100_000)
TOLERANCE = 1e-4


def measure(settings: BenchSettings, data: Path) -> Iterator[Row]:
    set_threads(None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        torch.manual_seed(0)
        tokenizer = BertTokenizer.from_pretrained("minilm")
        BertForSequenceClassification.from_pretrained("minilm", num_labels=2).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        texts = _texts(data, tokenizer)
        yield _against_pipeline(folder, texts, settings.rounds)
        yield _memory(folder, Path(name))


def _texts(data: Path, tokenizer: BertTokenizer) -> list[str]:
    sentences = [line.text.split("\t")[0] for line in read_lines([str(data / "glue/SST-2/dev.tsv")])][1:]
    least, most = PARAGRAPH_PIECES
    paragraphs: list[str] = []
    for line in read_lines([str(data / "text/enwiki-heldout.txt.xz")]):
        if len(paragraphs) < NUM_PARAGRAPHS and least <= len(tokenizer.wordpiece.ids(line.text)) <= most:
            paragraphs.append(line.text)
    texts = sentences + paragraphs
    random.Random(0).shuffle(texts)
    return texts


def _against_pipeline(folder: Path, texts: list[str], rounds: int) -> Row:
    import transformers

    transformers.logging.set_verbosity_error()
    ours = load(folder)
    theirs = transformers.pipeline("text-classification", model=str(folder), device="cpu", batch_size=BATCH_SIZE)
    answers: dict[str, list[float]] = {}

    def our_run() -> None:
        answers["ours"] = [answer["score"] for answer in ours.predict(texts)]

    def their_run() -> None:
        answers["theirs"] = [answer["score"] for answer in theirs(texts)]

    sides: dict[str, Callable[[], object]] = {"ours": our_run, "theirs": their_run}
    seconds = best_seconds(sides, rounds)
    assert all(abs(one - other) < TOLERANCE for one, other in zip(*answers.values(), strict=True))
    speed = {side: len(texts) / value for side, value in seconds.items()}
    return Row("predict", "mixed lengths", "text/s", speed["ours"], speed["theirs"], "transformers pipeline", TARGET)


def _memory(model: Path, folder: Path) -> Row:
    few, many = (_peak_gigabytes(model, folder, count) for count in MEMORY_ROWS)
    return Row("predict", "memory, 100 times the rows", "1/GB", 1 / many, 1 / few, "a thousand rows", 0.9)


def _peak_gigabytes(model: Path, folder: Path, num_rows: int) -> float:
    rows = folder / f"{num_rows}.tsv"
    rows.write_text("text\n" + "".join(f"number {number}\n" for number in range(num_rows)), encoding="utf-8")
    words = [sys.executable, "-m", "bertmill", "predict", model, rows, "--out", rows.with_suffix(".jsonl"), "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(list(map(str, words)), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert after >= before  # the largest of all children so far: rows must be given in growing numbers
    return after / (1 << 20)
