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

from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgement, Judgements, Sequences, probabilities
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import BadRowError
from bertmill.tasks.windows import Texts


@dataclass(frozen=True)
class Choose(Sequences):
    name = "choose"
    head = "BertForMultipleChoice"
    goals = ("accuracy",)

    def example(self, row: LabelledRow) -> Example:
        if len(row.choices) < 2:
            what = "has one choice only" if row.choices else "has no choices"
            remedy = "a row needs a text and at least two choices"
            raise BadRowError("no choices", what, remedy, where=row.place)
        return Example(row, None if row.label is None else row.choices.index(str(row.label)))

    def sequences_of(self, row: LabelledRow) -> tuple[Texts, ...]:
        context, *stem = row.texts
        return tuple((context, " ".join([*stem, choice])) for choice in row.choices)

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        """The number of the right choice, since texts are different in every row."""
        return () if row.label is None else (f"choice {row.choices.index(str(row.label))}",)

    def settings(self) -> dict[str, Any]:
        return {}

    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        of_sequences = torch.cat(list(super().outputs(model, examples, device)))
        split: tuple[Tensor, ...] = of_sequences.split([len(example.sequences) for example in examples])
        return split

    def _asked(self) -> Mapping[str, Any]:
        return {"num_choices": 1}  # sequences are put together here, after their windows

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        rows = nn.utils.rnn.pad_sequence(list(outputs), batch_first=True, padding_value=float("-inf"))
        targets = torch.tensor([example.target for example in examples], device=rows.device)
        return F.cross_entropy(rows, targets, reduction="sum")

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """Whether the choice is right."""
        return np.array([output.argmax() == example.target])

    def metrics(self, judgements: Judgements) -> dict[str, float]:
        return {"accuracy": float(judgements.mean())}

    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        return float(output.max() - output[example.target])

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        scores = probabilities(output).tolist()
        best = int(np.argmax(scores))
        chosen = example.example.row.choices[best]
        return {"choice": best, "answer": chosen, "score": scores[best], "scores": scores}
