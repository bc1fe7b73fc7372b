"""What an objective is: everything that differs between one way of pre-training and another.

Planning cuts a shard into instances, from lengths alone. `texts` finds the pieces of planned instances, and `label`
says what the model must predict. Every objective predicts pieces at selected positions and reports the figures of the
language-model head; a subclass may add others. Modules of objectives do not import torch: they only use tensors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.layout import Layout, Text
from bertmill.corpus.masking import Masker
from bertmill.corpus.parts import DocumentPart
from bertmill.corpus.plan_settings import PlanSettings, ShardPlan
from bertmill.corpus.shards import Corpus

if TYPE_CHECKING:
    from torch import Tensor

    from bertmill.corpus.instances import InstanceBatch
    from bertmill.corpus.plan import PlanFacts

LARGEST_EXPONENT = 700.0  # of a finite perplexity


class Objective(ABC):
    """A pre-training objective. It has no state."""

    record: ClassVar[np.dtype[Any]]  # of a planned instance on disk
    num_special: ClassVar[int]  # [CLS] and [SEP] that every instance has
    min_pieces: ClassVar[int] = 1  # pieces of the corpus that an instance needs
    model_class: ClassVar[str]  # the name of a class in MODEL_CLASSES
    causal: ClassVar[bool] = False  # whether a piece sees only those before it
    head_name: ClassVar[str] = "MLM"  # what figures of the language-model head are called
    sum_names: ClassVar[tuple[str, ...]] = ("pieces", "selected", "mlm_loss", "mlm_right")  # what `sums` returns
    shows_labels: ClassVar[bool] = True  # whether labels are shown beside their pieces
    text_names: ClassVar[Sequence[str]] = ()  # of the texts of an instance, by segment

    # Instances

    def check_part(self, part: DocumentPart, settings: PlanSettings) -> None:  # noqa: B027 (most require nothing)
        """Raise DataError if no instances can be made of these documents."""

    @abstractmethod
    def plan_shard(
        self, part: DocumentPart, shard: int, settings: PlanSettings, generator: np.random.Generator
    ) -> ShardPlan:
        """The instances of one shard."""

    @abstractmethod
    def texts(self, corpus: Corpus, records: NDArray[Any]) -> list[list[Text]]:
        """The texts of each planned instance, in order."""

    @abstractmethod
    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        """The piece to predict at each position, NOT_SELECTED elsewhere; may change the pieces in place."""

    def pair_labels(self, records: NDArray[Any]) -> Numbers | None:
        """One label per instance, if the objective has any."""
        return None

    # Training

    def predicted_share(self, mask_rate: float) -> float:
        """The share of positions that the language-model head sees."""
        return mask_rate

    def losses(self, output: Any) -> dict[str, Tensor]:
        """The mean losses of a model's output, each under the name of the count it is averaged over."""
        return {"selected": output.loss}

    def counts(self, batch: InstanceBatch) -> dict[str, float]:
        """What `losses` are averaged over."""
        return {"selected": batch.num_selected, "instances": len(batch.lengths)}

    def sums(self, output: Any, batch: InstanceBatch) -> dict[str, float]:
        """Sums over a batch that `figures` are computed from."""
        return {
            "pieces": float(len(batch.piece_ids)),
            "selected": float(batch.num_selected),
            "mlm_loss": float(self.losses(output)["selected"].detach()) * batch.num_selected,
            "mlm_right": float(output.num_right),
        }

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """What is reported in training; `loss` is what is minimized."""
        mlm_loss = sums["mlm_loss"] / sums["selected"]
        return {"loss": mlm_loss, "mlm_loss": mlm_loss, "mlm_accuracy": sums["mlm_right"] / sums["selected"]}

    def heldout_figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """What is reported on held-out text."""
        figures = self.figures(sums)
        return {**figures, "perplexity": math.exp(min(figures["mlm_loss"], LARGEST_EXPONENT))}

    # Display

    def describe_figures(self, figures: Mapping[str, float]) -> list[str]:
        """Figures of training or of held-out text for a person, without `loss`."""
        texts = [f"{self.head_name} loss {figures['mlm_loss']:.3f} (accuracy {figures['mlm_accuracy']:.1%})"]
        if "perplexity" in figures:
            texts.append(f"perplexity {figures['perplexity']:,.1f}")
        return texts

    def describe_instance(self, instance: InstanceBatch) -> list[str]:
        """What `inspect --show` says about an instance besides its size."""
        return [f"{instance.num_selected} selected"]

    def describe_plan(self, facts: PlanFacts) -> list[str]:
        """What `inspect --show` adds to the number and size of an epoch's instances."""
        return []

    def plan_remarks(self, facts: PlanFacts, num_pieces: int) -> list[str]:
        """What the user should know about a plan; `num_pieces` are those of the corpus."""
        return []
