"""From a corpus to batches: the speed of planning, and of the loader compared with a training step of a tiny model.

Planning covers as many epochs of 10 MB of English Wikipedia as contain a million sentences. It includes writing the
files and is compared with the target of a million sentences in 20 s. The loader runs on one thread without prefetching;
the training step (tiny, a batch of 32 instances, dropout, fused AdamW) runs on all cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import torch

from benchmarks.inputs import open_instances, write_beginning
from benchmarks.measure import Row, best_seconds
from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.plan import Planner, PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.machine import set_threads
from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer

NUM_BYTES = 10_000_000
NUM_SENTENCES = 1_000_000
PROMISED_SECONDS = 20
TIMES_A_STEP = 50
BATCH_SIZE = 32
NUM_BATCHES = 200
OBJECTIVES = ("mlm+nsp", "mlm+sop", "mlm")


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare planning with its target and loading with a training step."""
    set_threads(None)
    tokenizer = BertTokenizer.from_pretrained(data / "vocab/bert-base-uncased-vocab.txt")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = write_beginning(data / "text/enwiki.txt.xz", folder / "text.txt", NUM_BYTES)
        build_corpus([str(text)], tokenizer, folder / "corpus")
        corpus = Corpus(folder / "corpus")
        for objective in OBJECTIVES:
            yield _planning(corpus, folder, objective, rounds)
        whole_words = {False: "mlm+nsp", True: "mlm+nsp, whole words"}
        for is_whole, what in whole_words.items():
            instances = open_instances(corpus, tokenizer, folder / "loader", whole_words=is_whole, seed=1)
            yield _loading(instances, what, rounds)


def _planning(corpus: Corpus, folder: Path, objective: str, rounds: int) -> Row:
    num_epochs = -(-NUM_SENTENCES // corpus.num_sentences)
    attempt = count()

    def plan() -> None:
        new_folder = folder / f"{objective}-{next(attempt)}"
        planner = Planner(corpus, new_folder, PlanSettings(objective), seed=1)
        for epoch in range(num_epochs):
            planner.plan(epoch)

    seconds = best_seconds({"ours": plan}, rounds)["ours"]
    speed = num_epochs * corpus.num_sentences / seconds
    promised = NUM_SENTENCES / PROMISED_SECONDS
    return Row("instances", f"plan {objective}", "sent/s", speed, promised, "goal: a million in 20 s", 1)


def _loading(instances: Instances, what: str, rounds: int) -> Row:
    loader = Loader(instances, batch_size=BATCH_SIZE, workers=0)
    batch = loader.load(0)  # plans the epoch before anything is timed
    sides: dict[str, Callable[[], object]] = {
        "loader": partial(_load, loader),
        "step": _training_step(batch, instances.corpus.vocabulary_size),
    }
    sides["step"]()
    seconds = best_seconds(sides, rounds)
    num_loaded = sum(len(loader.load(step).piece_ids) for step in range(NUM_BATCHES))
    loaded, trained = num_loaded / seconds["loader"], len(batch.piece_ids) / seconds["step"]
    return Row("instances", f"load {what}", "piece/s", loaded, trained, "a tiny training step", TIMES_A_STEP)


def _load(loader: Loader) -> None:
    for step in range(NUM_BATCHES):
        loader.load(step)


def _training_step(batch: InstanceBatch, vocabulary_size: int) -> Callable[[], object]:
    model = BertForPreTraining(BertConfig.of_size("tiny", vocab_size=vocabulary_size)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    inputs, targets = batch.packed(), batch.targets()

    def step() -> None:
        optimizer.zero_grad()
        model(inputs, **targets).loss.backward()
        optimizer.step()

    return step
