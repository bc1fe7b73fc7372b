"""Base class of objectives: everything that differs between one kind of pre-training and another.

`plan_shard` cuts a shard into instances, from lengths alone. `texts` finds the pieces of planned instances, and `label`
determines what the model must predict. Every objective predicts pieces at selected positions and reports the metrics of
the language-model head; a subclass may add others. Modules of objectives use tensors but do not import torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.instances import Layout, Text
from bertmill.corpus.masking import Masker
from bertmill.corpus.parts import DocumentPart
from bertmill.corpus.plan import PlanFacts, PlanSettings
from bertmill.corpus.shards import Corpus

if TYPE_CHECKING:
    from torch import Tensor

    from bertmill.corpus.instances import InstanceBatch

LARGEST_EXPONENT = 700.0  # keeps the perplexity finite


class Objective(ABC):
    """A pre-training objective. It has no state."""

    record: ClassVar[np.dtype[Any]]  # format of a planned instance on disk
    num_special: ClassVar[int]  # [CLS] and [SEP] pieces that every instance has
    min_pieces: ClassVar[int] = 1  # pieces of the corpus that an instance needs
    model_class: ClassVar[str]  # name of a class in MODEL_CLASSES
    causal: ClassVar[bool] = False  # whether a piece sees only those before it
    is_masked: ClassVar[bool] = True  # whether pieces to predict are selected at the mask rate
    heads: ClassVar[Mapping[str, str]]  # key in the log → displayed name; the language-model head comes first
    shows_labels: ClassVar[bool] = True  # whether labels are shown next to their pieces
    text_names: ClassVar[Sequence[str]] = ()  # names of the texts of an instance, by segment

    # Instances

    def check_part(self, part: DocumentPart, settings: PlanSettings) -> None:  # noqa: B027 (most require nothing)
        """Raise DataError if no instances can be made from these documents."""

    @abstractmethod
    def plan_shard(
        self, part: DocumentPart, shard: int, settings: PlanSettings, generator: np.random.Generator
    ) -> tuple[NDArray[Any], dict[str, int]]:
        """Return the records of a shard's instances, and counts by name.

        The count `pieces`, without [CLS] and [SEP], is required.
        """

    @abstractmethod
    def texts(self, corpus: Corpus, records: NDArray[Any]) -> list[list[Text]]:
        """Return the texts of each planned instance, in order."""

    @abstractmethod
    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        """Return the piece to predict at each position, or NOT_SELECTED. May change the pieces in place."""

    def instance_targets(self, records: NDArray[Any]) -> dict[str, Numbers]:
        """Return arguments of the model besides `labels`, by name: arrays with one value per instance."""
        return {}

    # Training

    @property
    def language_model_head(self) -> str:
        """Key of the language-model head in `heads`."""
        return next(iter(self.heads))

    @property
    def entropy_figure(self) -> str:
        """Name of the metric for which the unigram entropy is a baseline."""
        return f"{self.language_model_head}_loss"

    def predicted_share(self, mask_rate: float) -> float:
        """Return the fraction of positions that the language-model head predicts."""
        return mask_rate

    def counts(self, batch: InstanceBatch) -> dict[str, float]:
        """Return the number of predictions of each head."""
        return {self.language_model_head: batch.num_selected}

    def losses(self, output: Any) -> dict[str, Tensor]:
        """Return the mean loss of each head."""
        return {self.language_model_head: output.loss}

    def num_right(self, output: Any, batch: InstanceBatch) -> dict[str, float]:
        """Return the number of correct predictions of each head."""
        return {self.language_model_head: float(output.num_right)}

    def sums(self, output: Any, batch: InstanceBatch) -> dict[str, float]:
        """Return the sums over a batch from which `figures` computes the metrics, one for each of `sum_names`."""
        counts, num_right = self.counts(batch), self.num_right(output, batch)
        sums = {"pieces": float(len(batch.piece_ids))}
        for head, loss in self.losses(output).items():
            total = float(loss.detach()) * counts[head]
            sums |= {f"{head}_count": counts[head], f"{head}_loss": total, f"{head}_right": num_right[head]}
        return sums

    @property
    def sum_names(self) -> list[str]:
        """Names of the sums."""
        return ["pieces", *(f"{head}_{kind}" for head in self.heads for kind in ("count", "loss", "right"))]

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics reported in training. `loss` is the one that is minimized."""
        metrics = {}
        for head in self.heads:
            metrics[f"{head}_loss"] = sums[f"{head}_loss"] / sums[f"{head}_count"]
            metrics[f"{head}_accuracy"] = sums[f"{head}_right"] / sums[f"{head}_count"]
        return {"loss": sum(metrics[f"{head}_loss"] for head in self.heads), **metrics}

    def heldout_figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics reported for held-out text."""
        metrics = self.figures(sums)
        return {**metrics, "perplexity": math.exp(min(metrics[self.entropy_figure], LARGEST_EXPONENT))}

    # Display

    def describe_figures(self, figures: Mapping[str, float]) -> list[str]:
        """Format the metrics of training or held-out text for display, without `loss`."""
        texts = [
            f"{name} loss {figures[f'{head}_loss']:.3f} (accuracy {figures[f'{head}_accuracy']:.1%})"
            for head, name in self.heads.items()
        ]
        if "perplexity" in figures:
            texts.append(f"perplexity {figures['perplexity']:,.1f}")
        return texts

    def describe_instance(self, instance: InstanceBatch) -> list[str]:
        """Return what `bertmill inspect` shows about an instance besides its size."""
        return [f"{instance.num_selected} selected"]

    def describe_plan(self, facts: PlanFacts) -> list[str]:
        """Return what `bertmill inspect` shows about an epoch besides the number and size of its instances."""
        return []

    def plan_remarks(self, facts: PlanFacts, num_pieces: int) -> list[str]:
        """Return notes about a plan for the user. `num_pieces` is the number of pieces in the corpus."""
        return []
