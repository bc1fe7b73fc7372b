"""Masked words and pairs as lessons for the training loop, and the same measured on held-out text.

Losses are means over the whole global batch: a micro-batch's mean over its selected pieces counts as much as its share
of all selected pieces, and likewise for pairs. Sums of losses and right guesses go to the log as figures.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.training.distributed import Ranks

MAX_HELDOUT_INSTANCES = 2048
HELDOUT_BATCH = 32


@dataclass(frozen=True)
class WordLessons:
    """Masked words and, for pairs, whether B follows A: lessons for the training loop."""

    measured_on: ClassVar[str] = "heldout"
    loader: Loader
    heldout: Instances | None
    ranks: Ranks
    micro_batch_pieces: int

    def batches(self, start_step: int) -> Generator[InstanceBatch]:
        yield from self.loader.batches(start_step)

    def parts(self, batch: InstanceBatch) -> Sequence[InstanceBatch]:
        return list(batch.micro_batches(self.micro_batch_pieces))

    def counts(self, batch: InstanceBatch) -> Mapping[str, float]:
        return {"selected": batch.num_selected, "instances": len(batch.lengths)}

    def loss(
        self, model: nn.Module, part: InstanceBatch, totals: Mapping[str, float]
    ) -> tuple[Tensor, Mapping[str, float]]:
        words, pairs, sums = _losses(model, part, self.ranks.device)
        share = words * (part.num_selected / totals["selected"])
        if pairs is not None:
            share = share + pairs * (len(part.lengths) / totals["instances"])
        return share, sums

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {**_summary(sums), "pieces": sums["pieces"]}

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {} if self.heldout is None else evaluate_words(model, self.heldout, self.ranks)

    def score(self, figures: Mapping[str, float]) -> list[float]:
        return [-figures["loss"]]

    def name_of(self, batch: InstanceBatch) -> str:
        return f"{len(batch.lengths)} instances that begin with the pieces {batch.piece_ids[1:6].tolist()}"


def _losses(
    model: nn.Module, batch: InstanceBatch, device: torch.device
) -> tuple[Tensor, Tensor | None, dict[str, float]]:
    """The two mean losses of a batch, and its sums for the log."""
    targets = {name: tensor.to(device) for name, tensor in batch.targets().items()}
    output = model(batch.packed().to(device), **targets, output_logits=False)
    num_selected, num_instances = batch.num_selected, len(batch.lengths)
    is_pair = batch.pair_labels is not None
    word_loss, pair_loss = (output.mlm_loss, output.nsp_loss) if is_pair else (output.loss, None)
    sums = {
        "pieces": float(len(batch.piece_ids)),
        "selected": float(num_selected),
        "word_loss": float(word_loss.detach()) * num_selected,
        "words_right": float(output.num_right),
    }
    if pair_loss is not None:
        guessed = output.seq_relationship_logits.argmax(1)
        sums |= {
            "instances": float(num_instances),
            "pair_loss": float(pair_loss.detach()) * num_instances,
            "pairs_right": float((guessed == targets["next_sentence_label"]).sum()),
        }
    return word_loss, pair_loss, sums


def _summary(sums: Mapping[str, float]) -> dict[str, float]:
    word_loss = sums["word_loss"] / sums["selected"]
    figures = {"mlm_loss": word_loss, "mlm_accuracy": sums["words_right"] / sums["selected"]}
    if "instances" in sums:
        figures["nsp_loss"] = sums["pair_loss"] / sums["instances"]
        figures["nsp_accuracy"] = sums["pairs_right"] / sums["instances"]
    return {"loss": word_loss + figures.get("nsp_loss", 0.0), **figures}


def evaluate_words(model: nn.Module, instances: Instances, ranks: Ranks) -> dict[str, float]:
    """Figures on held-out instances, each rank taking its share of the batches."""
    sums: dict[str, float] = {}
    count = min(instances.count(0), MAX_HELDOUT_INSTANCES)
    for start in range(HELDOUT_BATCH * ranks.rank, count, HELDOUT_BATCH * ranks.count):
        batch = instances.in_order(0, start, min(start + HELDOUT_BATCH, count))
        for name, value in _losses(model, batch, ranks.device)[2].items():
            sums[name] = sums.get(name, 0.0) + value
    names = ["pieces", "selected", "word_loss", "words_right"]
    names += ["instances", "pair_loss", "pairs_right"] if instances.settings.is_pair else []
    sums = dict(zip(names, ranks.sum([sums.get(name, 0.0) for name in names]), strict=True))
    figures = _summary(sums)
    return {**figures, "perplexity": math.exp(min(figures["mlm_loss"], 700.0))}
