"""Training steps and a forward pass against Hugging Face's BERT with its default attention, on the same inputs.

A training step is forward + backward + AdamW for MLM and next sentence prediction, with dropout 0.1 (also in attention)
on sequences of 128 pieces, 15% of them selected. Hugging Face runs once with the plain and once with the fused
AdamW, bertmill with the fused one. For base, the necessary operations of a step, 6·(encoder + 0.15·head) per piece, are
compared with the rate of a large matrix product in the same run. Each tool's training step runs in its own process,
set up as its users run it; peak memory is measured in new processes too.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Row, best_seconds, best_seconds_in_processes, high_water_kilobytes, reset_high_water
from bertmill.machine import keep_freed_memory, set_threads
from bertmill.model.bert import BertForPreTraining, BertModel
from bertmill.model.config import BertConfig
from bertmill.model.packing import PackedBatch
from bertmill.text.files import read_lines
from bertmill.text.tokenizer import BertTokenizer

LENGTH = 128
SELECTED = 0.15
# Size → sequences per batch, and how many times faster a step must be.
STEPS = {"tiny": (32, 8.0), "mini": (32, 3.4), "small": (32, 2.4), "base": (16, 1.5)}
SHARE_OF_PRODUCT = 0.7
LONG_LENGTHS = (400, 400)
PRODUCT_SIZE = 2048
SIDES = ("ours", "plain", "fused", "product")


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare training steps of several sizes, a forward pass of mixed lengths, and peak memory."""
    set_threads(None)
    for size in STEPS:
        yield from _training_step(size, rounds)
    yield _mixed_forward(_lengths_of_sst2(data), rounds)
    yield _peak_memory()


def _training_step(size: str, rounds: int) -> Iterator[Row]:
    config = BertConfig.of_size(size)
    num_sequences, target = STEPS[size]
    num_pieces = num_sequences * LENGTH
    seconds = best_seconds_in_processes({side: partial(_side, side, size) for side in SIDES}, rounds)
    speed = {side: num_pieces / seconds[side] for side in ("ours", "plain", "fused")}
    for side in ("plain", "fused"):
        yield Row(
            "model", f"{size}: step", "piece/s", speed["ours"], speed[side], f"transformers, {side} AdamW", target
        )
    if size == "base":
        operations = 6 * config.weights_per_piece(SELECTED) * num_pieces / seconds["ours"]
        product = 2 * PRODUCT_SIZE**3 / seconds["product"]
        yield Row(
            "model", f"{size}: step", "GFLOP/s", operations / 1e9, product / 1e9, "matrix product", SHARE_OF_PRODUCT
        )


def _side(side: str, size: str) -> Callable[[], object]:
    """Return the function to time for one tool; runs in the process of that tool."""
    set_threads(None)
    if side == "product":
        matrix = torch.randn(PRODUCT_SIZE, PRODUCT_SIZE)
        return lambda: matrix @ matrix
    config = BertConfig.of_size(size)
    inputs = _instances(config, STEPS[size][0])
    if side != "ours":
        return _their_step(config, inputs, fused=side == "fused")
    keep_freed_memory()  # as `bertmill pretrain` does
    return _our_step(config, inputs)


def _instances(config: BertConfig, num_sequences: int) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shape = (num_sequences, LENGTH)
    ids = torch.randint(1000, config.vocab_size, shape)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "token_type_ids": (torch.arange(LENGTH) >= LENGTH // 2).long().expand(shape),
        "labels": ids.where(torch.rand(shape) < SELECTED, -100),
        "next_sentence_label": torch.randint(0, 2, (num_sequences,)),
    }


def _our_step(config: BertConfig, inputs: dict[str, Tensor]) -> Callable[[], object]:
    lengths = [LENGTH] * len(inputs["input_ids"])
    batch = PackedBatch(inputs["input_ids"].flatten(), lengths, inputs["token_type_ids"].flatten())
    labels = {"labels": inputs["labels"].flatten(), "next_sentence_label": inputs["next_sentence_label"]}
    model = BertForPreTraining(config)
    return _step(model, lambda: model(batch, **labels).loss, fused=True)


def _their_step(config: BertConfig, inputs: dict[str, Tensor], fused: bool) -> Callable[[], object]:
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.BertForPreTraining(transformers.BertConfig(**_their_settings(config)))
    return _step(model, lambda: model(**inputs).loss, fused)


def _step(model: torch.nn.Module, loss_of: Callable[[], Tensor], fused: bool) -> Callable[[], object]:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


def _their_settings(config: BertConfig) -> dict[str, Any]:
    return {key: value for key, value in config.to_dict().items() if key != "model_type"}


def _mixed_forward(lengths: list[int], rounds: int) -> Row:
    """Compare the forward pass of one padded batch of short sequences and two long ones."""
    import transformers

    config = BertConfig.of_size("mini")
    ours = BertModel(config).eval()
    theirs = transformers.BertModel(transformers.BertConfig(**_their_settings(config))).eval()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    inputs = {"input_ids": torch.randint(1000, config.vocab_size, mask.shape) * mask, "attention_mask": mask.long()}

    @torch.inference_mode()
    def run(model: torch.nn.Module) -> None:
        model(**inputs)

    sides: dict[str, Callable[[], object]] = {"ours": lambda: run(ours), "theirs": lambda: run(theirs)}
    seconds = best_seconds(sides, 2 * rounds)
    speed = {side: sum(lengths) / value for side, value in seconds.items()}
    return Row("model", "mini: forward, mixed", "piece/s", speed["ours"], speed["theirs"], "transformers, padded", 2.5)


def _lengths_of_sst2(data: Path) -> list[int]:
    tokenizer = BertTokenizer.from_pretrained(data / "vocab/bert-base-uncased-vocab.txt")
    lines = list(read_lines([str(data / "glue/SST-2/dev.tsv")]))[1:]
    texts = [line.text.split("\t")[0] for line in lines[: 32 - len(LONG_LENGTHS)]]
    return [len(ids) for ids in tokenizer(texts)["input_ids"]] + list(LONG_LENGTHS)


def _peak_memory() -> Row:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        ours, theirs = pool.map(_peak_gigabytes, ["ours", "theirs"], chunksize=1)
    return Row("model", "tiny: peak memory of a step", "1/GB", 1 / ours, 1 / theirs, "transformers, fused AdamW", 4)


def _peak_gigabytes(side: str) -> float:
    """Return by how much two training steps raise the peak memory of this process above that of the libraries."""
    import transformers

    transformers.logging.set_verbosity_error()
    _ = transformers.BertForPreTraining  # import it now, so that its code does not count
    config = BertConfig.of_size("tiny")
    inputs = _instances(config, STEPS["tiny"][0])
    torch.randn(512, 512) @ torch.randn(512, 512)  # allocates the buffers of matrix products, which do not count either
    reset_high_water()
    before = high_water_kilobytes()
    step = _our_step(config, inputs) if side == "ours" else _their_step(config, inputs, fused=True)
    step()
    step()
    return (high_water_kilobytes() - before) / (1 << 20)
