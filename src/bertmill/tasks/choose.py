"""Which of several continuations fits: each is a sequence of its own, `[CLS] context [SEP] question choice [SEP]`.

One output per sequence, softmax over the choices of an example; examples may have different numbers of choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Sequences
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import accuracy
from bertmill.tasks.rows import BadRowError


@dataclass(frozen=True)
class Choose(Sequences):
    metric: str = "accuracy"

    name = "choose"
    head = "BertForMultipleChoice"

    def example(self, row: LabelledRow) -> Example:
        if len(row.choices) < 2:
            remedy = "a row needs a text and at least two choices"
            raise BadRowError("no choices", "has no choices", remedy, where=row.place)
        context, *stem = row.texts
        sequences = tuple((context, " ".join([*stem, choice])) for choice in row.choices)
        return Example(sequences, None if row.label is None else row.choices.index(str(row.label)))

    def settings(self) -> dict[str, Any]:
        return {}

    def note(self) -> dict[str, Any]:
        return {"task": self.name, "metric": self.metric}

    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        of_sequences = torch.cat(list(super().outputs(model, examples, device)))
        split: tuple[Tensor, ...] = of_sequences.split([len(example.sequences) for example in examples])
        return split

    def _asked(self) -> Mapping[str, Any]:
        return {"num_choices": 1}  # sequences are put together here, after their windows

    def loss(self, outputs: Sequence[Tensor], targets: Sequence[Any]) -> Tensor:
        rows = nn.utils.rnn.pad_sequence(list(outputs), batch_first=True, padding_value=float("-inf"))
        return F.cross_entropy(rows, torch.tensor(targets, device=rows.device), reduction="sum")

    def metrics(self, outputs: Sequence[Array], targets: Sequence[Any]) -> dict[str, float]:
        return {"accuracy": accuracy(np.array([output.argmax() for output in outputs]), np.array(targets))}

    def error(self, output: Array, target: Any) -> float:
        return float(output.max() - output[target])

    def decode(self, output: Array) -> Answer:
        scores = torch.from_numpy(np.asarray(output, dtype=np.float64)).softmax(0).tolist()
        best = int(np.argmax(scores))
        return {"choice": best, "score": scores[best], "scores": scores}
