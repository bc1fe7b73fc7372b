"""`transformers` models with and without `bertmill.accelerate`, on the same inputs and with the same weights.

The model is MiniLM with a head. Both sides alternate in one process, with one and with two threads.

- A training step on SST-2 is forward, backward and AdamW on 32 sentences, padded to the longest, with dropout 0.1.
- A training step on masked language modeling is the same on these sentences, or on 16 sequences of 128 pieces without
  padding; 15% of the pieces are selected. The accelerated model returns all logits or, with `logits=False`, none.
- Mixed lengths are 30 sentences of SST-2 and two sequences of 400 pieces in one padded batch; the last row is a single
  sentence.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import bertmill
from benchmarks.measure import Row, best_seconds
from bertmill.checkpoint.names import find_model
from bertmill.machine import set_threads
from bertmill.text.files import read_lines
from bertmill.text.tokenizer import BertTokenizer

THREADS = (1, 2)
BATCH_SIZE = 32
NUM_BATCHES = 4
LONG_LENGTHS = (400, 400)
MLM_SHAPE = (16, 128)
SELECTED = 0.15
SENTENCES_PER_RUN = 20
TARGETS = {
    "SST-2: step": 1.6,
    "MLM on SST-2: step": 1.8,
    "MLM on SST-2, no logits: step": 2.8,
    "MLM, no padding: step": 1.8,
    "MLM, no padding, no logits: step": 2.8,
    "mixed: forward": 6.0,
    "one: forward": 0.95,
}

Batch = dict[str, Tensor]


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare training steps and forward passes in sequences per second."""
    import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    folder = find_model("minilm")
    classifier = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=2)
    masked_lm = transformers.BertForMaskedLM.from_pretrained(folder)
    sentences = _sentences(data)
    batches = [sentences[start : start + BATCH_SIZE] for start in range(0, len(sentences), BATCH_SIZE)]
    vocab_size = classifier.config.vocab_size
    sst2 = [{**_padded(batch), "labels": torch.randint(0, 2, (len(batch),))} for batch in batches]
    mlm = [_selected(_padded(batch)) for batch in batches]
    full = [_selected(_padded(list(torch.randint(1000, vocab_size, MLM_SHAPE))))]
    long = [torch.randint(1000, vocab_size, (length,)) for length in LONG_LENGTHS]
    mixed = [_padded([*batches[0][: BATCH_SIZE - len(long)], *long])]
    one = [_padded(sentences[:1])] * SENTENCES_PER_RUN
    for threads in THREADS:
        set_threads(threads)
        for what, model, inputs, options in (
            ("SST-2: step", classifier, sst2, {}),
            ("MLM on SST-2: step", masked_lm, mlm, {}),
            ("MLM on SST-2, no logits: step", masked_lm, mlm, {"logits": False}),
            ("MLM, no padding: step", masked_lm, full, {}),
            ("MLM, no padding, no logits: step", masked_lm, full, {"logits": False}),
            ("mixed: forward", classifier, mixed, {}),
            ("one: forward", classifier, one, {}),
        ):
            yield _compare(what, model, inputs, options, threads, rounds)


def _compare(
    what: str, model: nn.Module, batches: list[Batch], options: dict[str, bool], threads: int, rounds: int
) -> Row:
    make = _training if what.endswith("step") else _inference
    theirs = make(copy.deepcopy(model), batches)
    accelerated = bertmill.accelerate(copy.deepcopy(model), **options)
    sides = {"ours": make(accelerated, batches), "theirs": theirs}
    best_seconds(sides, 1)  # to warm up
    seconds = best_seconds(sides, rounds)
    assert not bertmill.acceleration(accelerated).fallbacks
    count = sum(len(batch["input_ids"]) for batch in batches)
    speed = {side: count / value for side, value in seconds.items()}
    label = f"{what}, {threads} thread{'s' if threads > 1 else ''}"
    return Row("accelerate", label, "row/s", speed["ours"], speed["theirs"], "transformers", TARGETS[what])


def _training(model: Any, batches: list[Batch]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5, fused=True)

    def run() -> None:
        for batch in batches:
            optimizer.zero_grad()
            model(**batch).loss.backward()
            optimizer.step()

    return run


def _inference(model: Any, batches: list[Batch]) -> Callable[[], None]:
    return partial(_forward, model.eval(), batches)


@torch.inference_mode()
def _forward(model: nn.Module, batches: list[Batch]) -> None:
    for batch in batches:
        model(**batch)


def _sentences(data: Path) -> list[Tensor]:
    """Return the pieces of the first sentences of SST-2, enough for all batches."""
    lines = list(read_lines([str(data / "glue/SST-2/dev.tsv")]))[1 : 1 + NUM_BATCHES * BATCH_SIZE]
    ids = BertTokenizer.from_pretrained("minilm")([line.text.split("\t")[0] for line in lines])["input_ids"]
    return [torch.tensor(each) for each in ids]


def _padded(sequences: list[Tensor]) -> Batch:
    lengths = torch.tensor([len(each) for each in sequences])
    ids = pad_sequence(sequences, batch_first=True)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}


def _selected(batch: Batch) -> Batch:
    """Return `batch` with labels for some of its pieces."""
    ids = batch["input_ids"]
    is_selected = (torch.rand(ids.shape) < SELECTED) & batch["attention_mask"].bool()
    return {**batch, "labels": ids.where(is_selected, -100)}
