"""A class for a text or a pair of texts, or several labels at once.

One label: softmax and cross-entropy, with weights per class and label smoothing if wished. Several labels per text:
a yes or no for each, and every one that is likelier than not is given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertmill.errors import DataError, UsageError
from bertmill.tasks.base import Answer, Array, EncodedExample, Example, Judgement, Judgements, Sequences, probabilities
from bertmill.tasks.labelled import LabelledRow, are_many_numbers, as_number
from bertmill.tasks.metrics import (
    ByClass,
    class_counts,
    class_metrics,
    class_table,
    confusion_matrix,
    label_counts,
    label_set_metrics,
)
from bertmill.tasks.raw_rows import BadRowError, unknown_label

MULTI_LABEL = "multi_label_classification"
SINGLE_LABEL = "single_label_classification"
LABEL_SEPARATORS = "|;,"  # the first that a file has separates


@dataclass(frozen=True)
class Classify(Sequences):
    """`labels` in the order of the model's outputs."""

    labels: tuple[str, ...]
    multi_label: bool = False
    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0

    name = "classify"
    head = "BertForSequenceClassification"

    @property
    def goals(self) -> tuple[str, ...]:
        return ("micro_f1", "macro_f1", "all_right") if self.multi_label else ("accuracy", "f1", "matthews")

    @property
    def may_have_no_label(self) -> bool:
        return self.multi_label

    @property
    def keeps_proportions(self) -> bool:
        return not self.multi_label

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def example(self, row: LabelledRow) -> Example:
        self.refuse_choices(row)
        return Example(row, None if row.label is None else self._target(row))

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        """The labels of a row: one, or for several per text a list or a text such as `toxic|insult`; maybe none."""
        if row.label is None:
            return ()
        is_whole = not self.multi_label or row.label in self._numbers  # a label may have a comma in it
        return _parts(row.label, None if is_whole else _separator([row.label]))

    def _target(self, row: LabelledRow) -> int | tuple[float, ...]:
        given = self.labels_of(row)
        if len(given) != 1 and not self.multi_label:
            raise BadRowError("several labels", f"has {len(given)} labels", "use --multi-label", where=row.place)
        unknown = [label for label in given if label not in self._numbers]
        if unknown:
            raise unknown_label("label", unknown[0], self.labels, row.place)
        if self.multi_label:
            return tuple(float(label in given) for label in self.labels)
        return self._numbers[given[0]]

    def remarks(self) -> list[str]:
        if self.multi_label or not are_many_numbers(self.labels):
            return []
        return [f"labels are {len(self.labels):,} numbers, each a class of its own: regress learns values"]

    def settings(self) -> dict[str, Any]:
        kind = MULTI_LABEL if self.multi_label else SINGLE_LABEL
        return {"id2label": dict(enumerate(self.labels)), "problem_type": kind}

    def note(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "multi_label": self.multi_label}

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        logits = torch.stack(list(outputs))  # [B, labels]
        targets = [example.target for example in examples]
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, torch.tensor(targets).to(logits), reduction="sum")
        weights = None if self.class_weights is None else torch.tensor(self.class_weights).to(logits)
        wanted = torch.tensor(targets, device=logits.device)
        return F.cross_entropy(logits, wanted, weights, reduction="sum", label_smoothing=self.label_smoothing)

    def weight(self, example: EncodedExample) -> float:
        if self.multi_label:
            return float(len(self.labels))
        return 1.0 if self.class_weights is None else self.class_weights[example.target]

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """The class that is given and the wanted one; of several labels a yes or no for each that is given, wanted."""
        if self.multi_label:
            return np.stack([output > 0, np.array(example.target, dtype=bool)])
        return np.array([output.argmax(), example.target])

    def metrics(self, judgements: Judgements) -> dict[str, float]:
        given, wanted = judgements[:, 0], judgements[:, 1]
        if self.multi_label:
            return label_set_metrics(given, wanted)
        return class_metrics(given, wanted, len(self.labels))

    def by_class(self, judgements: Judgements) -> ByClass:
        given, wanted = judgements[:, 0], judgements[:, 1]
        if self.multi_label:
            return ByClass(class_table(self.labels, label_counts(given, wanted)))
        count = len(self.labels)
        figures = class_table(self.labels, class_counts(given, wanted, count))
        return ByClass(figures, confusion_matrix(given, wanted, count))

    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        if self.multi_label:
            given, wanted = judgement
            return float(np.abs(output[given != wanted]).sum())
        return float(output.max() - output[example.target])

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        if self.multi_label:
            likely = torch.from_numpy(np.asarray(output, dtype=np.float64)).sigmoid()
            scores = dict(zip(self.labels, likely.tolist(), strict=True))
            return {"labels": [label for label, score in scores.items() if score > 0.5], "scores": scores}
        scores = dict(zip(self.labels, probabilities(output).tolist(), strict=True))
        best = max(scores, key=scores.__getitem__)
        return {"label": best, "score": scores[best], "scores": scores}


def _separator(labels: Iterable[Iterable[str]]) -> str:
    """What stands between several labels in one field: the first of the usual characters that any of them has."""
    characters = set(chain.from_iterable(labels))
    return next((each for each in LABEL_SEPARATORS if each in characters), LABEL_SEPARATORS[0])


def _parts(label: str | tuple[str, ...], separator: str | None) -> tuple[str, ...]:
    if isinstance(label, tuple):
        return label
    if separator is None:
        return (label,)
    return tuple(part.strip() for part in label.split(separator) if part.strip())


def labels_in(rows: Iterable[LabelledRow], multi_label: bool, file: str) -> Counter[str]:
    """How often each label occurs, in the order that the model's outputs will have: numbers by value, then words."""
    labels = [row.label for row in rows if row.label is not None]
    separator = _separator(label for label in labels if isinstance(label, str)) if multi_label else None
    counts: Counter[str] = Counter()
    for label in labels:
        given = _parts(label, separator)
        if multi_label or len(given) == 1:  # others are bad rows, which are told one by one
            counts.update(given)
    if len(counts) < 2:
        known = f"the same label {next(iter(counts))!r}" if counts else "no label"
        raise DataError(
            f"all rows have {known}",
            where=file,
            remedy="there must be at least two different ones; lists of labels need --multi-label",
        )
    return Counter({label: counts[label] for label in sorted(counts, key=_by_value)})


def _by_value(label: str) -> tuple[bool, float, str]:
    number = as_number(label)
    return (False, number, label) if math.isfinite(number) else (True, 0.0, label)


def parse_class_weights(text: str, counts: Counter[str]) -> tuple[float, ...]:
    """`balanced` (as rare, as heavy) or `ham=1,spam=5`; a label that is not named counts 1."""
    if text == "balanced":
        mean = sum(counts.values()) / len(counts)
        return tuple(mean / count for count in counts.values())
    weights: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = (word.strip() for word in part.rpartition("="))
        if "=" not in part or not 0 < as_number(weight) < math.inf:
            raise UsageError(f"--class-weights: {part!r} is not LABEL=NUMBER above 0", remedy="or say balanced")
        if label not in counts or label in weights:
            remedy = f"the labels are {', '.join(counts)}"
            raise UsageError(f"--class-weights: {part!r} names no label of the data, or one again", remedy=remedy)
        weights[label] = as_number(weight)
    return tuple(weights.get(label, 1.0) for label in counts)
