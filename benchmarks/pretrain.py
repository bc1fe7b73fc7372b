"""`bertmill pretrain` against the bare training step, and two processes of one thread against one process of two.

The corpus is 10 MB of English Wikipedia; batches have 32 instances of 128 pieces. The bare step has its batches in
memory and only does forward, backward and AdamW. The command also loads batches, clips gradients, checks for non-finite
numbers and logs; its rate is that of the second half of its steps, from its log. Both train `mlm+nsp` with the paper's
dropout and mask rate, each in its own process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from benchmarks.inputs import open_instances, write_beginning
from benchmarks.measure import Row
from bertmill.corpus.build import build_corpus
from bertmill.corpus.loader import Loader
from bertmill.corpus.shards import Corpus
from bertmill.machine import keep_freed_memory, set_threads
from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.optimizer import make_optimizer, set_rate

NUM_BYTES = 10_000_000
BATCH_SIZE = 32
STEPS = {"tiny": 80, "mini": 24, "small": 10}  # the second half of them is timed
SIZE_OF_PROCESSES = "mini"
WITHIN = 0.95
LIKE_THE_STEP = {"objective": "mlm+nsp", "dropout": 0.1, "mask-rate": 0.15}  # flags of the command


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the command with the bare step for several sizes, and two processes with one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = BertTokenizer.from_pretrained(data / "vocab/bert-base-uncased-vocab.txt")
        text = write_beginning(data / "text/enwiki.txt.xz", folder / "text.txt", NUM_BYTES)
        build_corpus([str(text)], tokenizer, folder / "corpus")
        for size in STEPS:
            command, bare = _best(
                [partial(_rate_of_command, folder, size, 1), partial(_rate_of_step, folder, size)], rounds
            )
            yield Row("pretrain", f"{size}: the command", "piece/s", command, bare, "the bare step", WITHIN)
        two, one = _best([partial(_rate_of_command, folder, SIZE_OF_PROCESSES, count) for count in (2, 1)], rounds)
        yield Row("pretrain", f"{SIZE_OF_PROCESSES}: 2 × 1 thread", "piece/s", two, one, "1 × 2 threads")


def _best(sides: list[Callable[[], float]], rounds: int) -> list[float]:
    """Return the highest rate of each tool; the tools alternate."""
    rates = [[side() for side in sides] for _ in range(rounds)]
    return [max(of_side) for of_side in zip(*rates, strict=True)]


def _rate_of_command(folder: Path, size: str, num_processes: int) -> float:
    steps = STEPS[size]
    with tempfile.TemporaryDirectory(dir=folder) as out:
        flags = {
            "corpus": folder / "corpus",
            "out": f"{out}/run",
            "size": size,
            "steps": steps,
            "log-every": steps // 2,
            "initial-weights": "random",
            **LIKE_THE_STEP,
        }
        command = ["-m", "bertmill", "pretrain", "--quiet"]
        command += [str(word) for name, value in flags.items() for word in (f"--{name}", value)]
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(num_processes)] if num_processes > 1 else []
        subprocess.run([sys.executable, *torchrun, *command], check=True, capture_output=True)
        log = [json.loads(line) for line in (Path(out) / "run/log.jsonl").read_text(encoding="utf-8").splitlines()]
    first, second = (line for line in log if "pieces" in line)
    rate: float = second["pieces"] / (second["seconds"] - first["seconds"])
    return rate


def _rate_of_step(folder: Path, size: str) -> float:
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_bare_rate, (folder, size))


def _bare_rate(folder: Path, size: str) -> float:
    set_threads(None)
    keep_freed_memory()
    corpus = Corpus(folder / "corpus")
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    instances = open_instances(corpus, tokenizer, folder / "plans")
    steps = STEPS[size]
    batches = list(islice(Loader(instances, batch_size=BATCH_SIZE, workers=0).batches(0), steps))
    model = BertForPreTraining(BertConfig.of_size(size).with_settings(vocab_size=len(tokenizer))).train()
    optimizer = make_optimizer(model, weight_decay=0.01)
    set_rate(optimizer, 1e-4)
    started = 0.0
    for number, batch in enumerate(batches):
        if number == steps // 2:
            started = time.perf_counter()
        optimizer.zero_grad()
        model(batch.packed(), **batch.targets(), output_logits=False).loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - started
    return sum(len(batch.piece_ids) for batch in batches[steps // 2 :]) / seconds
