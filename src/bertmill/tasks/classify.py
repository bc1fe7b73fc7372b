"""The task classify: one class, or several labels, for a text or a pair of texts.

- Single label: softmax and cross-entropy, optionally with class weights and label smoothing.
- Multi-label: an independent sigmoid and binary cross-entropy per label, with a threshold of 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from bertmill.batching.windows import Windows
from bertmill.errors import DataError, UsageError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError, UnknownLabelError
from bertmill.rows.labels import are_many_numbers, as_number, is_empty, label_text
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.base import Answer, Array, Example, FolderEntries, Score, Scores, TaskOptions, probabilities
from bertmill.tasks.metrics import ClassReport, class_metrics, label_set_metrics, report_classes, report_label_sets
from bertmill.tasks.sequence import SequenceTask, TextRow, read_texts
from bertmill.text.printable import counted, one_line
from bertmill.text.tokenizer import BertTokenizer

MULTI_LABEL = "multi_label_classification"
SINGLE_LABEL = "single_label_classification"
LABEL_SEPARATORS = "|;,"  # the first one that occurs in the labels of a file separates them

Label = str | tuple[str, ...]  # unparsed: one string, or a list of labels


class ClassifyOptions(TaskOptions):
    """Options of classify."""

    multi_label: bool = Field(False, description="allow any number of labels per text, separated by |, ; or ,")
    class_weights: str | None = Field(None, description="class weights in the loss: balanced, or ham=1,spam=5")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="fraction of each target to spread over all classes")

    @property
    def optional_label(self) -> bool:
        return self.multi_label

    @model_validator(mode="after")
    def _one_label_only(self) -> Self:
        if self.multi_label and (self.class_weights is not None or self.label_smoothing > 0):
            raise ValueError("class_weights and label_smoothing cannot be used with multi_label")
        return self


@dataclass(frozen=True)
class ClassRow(TextRow):
    """A text or a pair of texts with its label."""

    label: Label | None = None


@dataclass(frozen=True)
class Classify(SequenceTask[ClassRow]):
    """Assign a class, or several labels, to a text or a pair of texts.

    rows:     {"text": "A fine film.", "label": "good"}, optionally with a "pair"; .jsonl, .json,
              .parquet, or the same columns in a .tsv or .csv; write multiple labels as "a|b" or a list;
              also fastText's format (__label__good A fine film.), and a folder per class
    columns:  text, pair, label
    metrics:  accuracy (default), f1, matthews;
              with several labels: micro_f1 (default), macro_f1, subset_accuracy
    """

    class_names: tuple[str, ...]  # in the order of the model's outputs
    multi_label: bool = False
    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0

    name = "classify"
    head = "BertForSequenceClassification"
    Options = ClassifyOptions

    @classmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: ClassifyOptions) -> ClassRow:
        label = _label(fields["label"], options.multi_label) if "label" in fields else None
        return ClassRow(place, read_texts(fields), label)

    @classmethod
    def from_rows(
        cls, rows: Sequence[ClassRow], options: ClassifyOptions, tokenizer: BertTokenizer, file: RowFile
    ) -> Self:
        counts = count_labels(rows, options.multi_label, file.path)
        if options.multi_label and (num_without := sum(row.label == () for row in rows)):
            file.counts.notices.append(f"{num_without:,} of {counted(len(rows), 'row')} have no label")
        if not options.multi_label and are_many_numbers(counts):
            notice = f"all {len(counts):,} labels are numbers, and each is a class; use regress to predict a number"
            file.counts.notices.append(notice)
        weights = None if options.class_weights is None else parse_class_weights(options.class_weights, counts)
        return cls(tuple(counts), options.multi_label, weights, options.label_smoothing)

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self | None:
        is_number = config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)
        if is_number and metadata.get("task") != cls.name:
            return None
        names = tuple(config.id2label[number] for number in range(config.num_labels))
        return cls(names, config.problem_type == MULTI_LABEL)

    def folder_entries(self) -> FolderEntries:
        problem_type = MULTI_LABEL if self.multi_label else SINGLE_LABEL
        return FolderEntries({"id2label": dict(enumerate(self.class_names)), "problem_type": problem_type})

    def labels(self, row: ClassRow) -> tuple[str, ...]:
        if row.label is None:
            return ()
        is_whole = not self.multi_label or row.label in self._numbers  # a label may contain a comma
        return _split_label(row.label, None if is_whole else _separator([row.label]))

    def split_key(self, row: ClassRow) -> SplitKey:
        return SplitKey(row.texts[0], "" if self.multi_label else str(row.label))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.class_names)}

    def encode(self, row: ClassRow, windows: Windows) -> Example:
        sequences = windows.cut([row.texts])
        target, weight = (None, 1.0) if row.label is None else self._target(row)
        return Example(row, sequences, target, weight=weight)

    def _target(self, row: ClassRow) -> tuple[int | tuple[float, ...], float]:
        """Return the class index, or a flag per label, and the weight."""
        labels = self.labels(row)
        if len(labels) != 1 and not self.multi_label:
            what = f"the row has {len(labels)} labels"
            raise BadRowError("several labels", what, "set multi_label", where=row.place)
        unknown = [label for label in labels if label not in self._numbers]
        if unknown:
            raise UnknownLabelError("label", dict.fromkeys(unknown, 1), self.class_names, row.place)
        if self.multi_label:
            return tuple(float(label in labels) for label in self.class_names), float(len(self.class_names))
        number = self._numbers[labels[0]]
        return number, 1.0 if self.class_weights is None else self.class_weights[number]

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[Example]) -> Tensor:
        logits = torch.stack(list(outputs))  # [B, labels]
        targets = [example.target for example in examples]
        if self.multi_label:
            return F.binary_cross_entropy_with_logits(logits, torch.tensor(targets).to(logits), reduction="sum")
        weights = None if self.class_weights is None else torch.tensor(self.class_weights).to(logits)
        expected = torch.tensor(targets, device=logits.device)
        return F.cross_entropy(logits, expected, weights, reduction="sum", label_smoothing=self.label_smoothing)

    def decode(self, examples: Sequence[Example], outputs: Sequence[Array]) -> list[Answer]:
        return list(map(self._prediction, outputs))

    def _prediction(self, output: Array) -> Answer:
        if self.multi_label:
            likely = torch.from_numpy(np.asarray(output, dtype=np.float64)).sigmoid()
            scores = dict(zip(self.class_names, likely.tolist(), strict=True))
            return {"labels": [label for label, score in scores.items() if score > 0.5], "scores": scores}
        scores = dict(zip(self.class_names, probabilities(output).tolist(), strict=True))
        best = max(scores, key=scores.__getitem__)
        return {"label": best, "score": scores[best], "scores": scores}

    def show(self, answer: Answer) -> str:
        labels = answer["labels"] if self.multi_label else [answer["label"]]
        return ", ".join(f"{one_line(label)} {answer['scores'][label]:.4f}" for label in labels) or "none"

    @property
    def selection_metrics(self) -> tuple[str, ...]:
        return ("micro_f1", "macro_f1", "subset_accuracy") if self.multi_label else ("accuracy", "f1", "matthews")

    def score(self, example: Example, output: Array) -> Score:
        """The predicted and the expected class, or with multi-label a flag per label for each of them."""
        if self.multi_label:
            return np.stack([output > 0, np.array(example.target, dtype=bool)])
        return np.array([output.argmax(), example.target])

    def metrics(self, scores: Scores) -> dict[str, float]:
        predicted, expected = scores[:, 0], scores[:, 1]
        if self.multi_label:
            return label_set_metrics(predicted, expected)
        return class_metrics(predicted, expected, len(self.class_names))

    def class_report(self, scores: Scores) -> ClassReport:
        predicted, expected = scores[:, 0], scores[:, 1]
        report = report_label_sets if self.multi_label else report_classes
        return report(self.class_names, predicted, expected)

    def baseline(self, examples: Sequence[Example]) -> tuple[str, Scores]:
        targets = np.array([example.target for example in examples])
        if self.multi_label:
            return self._constant_labels(targets.astype(bool))
        majority = np.bincount(targets).argmax()
        return f"always {self.class_names[majority]}", np.stack([np.full_like(targets, majority), targets], 1)

    def _constant_labels(self, expected: NDArray[np.bool_]) -> tuple[str, Scores]:
        """The k most frequent labels, with k chosen for the best micro F1."""
        counts = expected.sum(0)
        order = np.argsort(-counts, kind="stable")
        num_right = np.concatenate([[0], np.cumsum(counts[order])])
        f1 = 2 * num_right / np.maximum(len(expected) * np.arange(len(order) + 1) + counts.sum(), 1)
        chosen = order[: int(f1.argmax())]
        predicted = np.zeros_like(expected)
        predicted[:, chosen] = True
        names = ", ".join(self.class_names[number] for number in chosen)
        return f"always {names}" if names else "no label", np.stack([predicted, expected], 1)

    def confidences(self, example: Example, output: Array) -> Iterator[tuple[float, bool]]:
        if self.multi_label:
            is_likely, expected = output > 0, np.array(example.target, dtype=bool)
            confidences = 1 / (1 + np.exp(-np.abs(output.astype(np.float64))))
            yield from zip(confidences.tolist(), (is_likely == expected).tolist(), strict=True)
        else:
            yield float(probabilities(output).max()), int(output.argmax()) == example.target

    def mistake(self, example: Example, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        if self.multi_label:
            predicted, expected = score
            confidence = float(np.abs(output[predicted != expected]).sum())
        else:
            confidence = float(output.max() - output[example.target])
        return confidence, self.labels(example.row)


def _label(value: Any, may_be_empty: bool) -> Label:
    """Convert a label from a file: numbers and booleans to text, a list to several labels."""
    if isinstance(value, list):
        return tuple(map(label_text, value))
    return () if may_be_empty and is_empty(value) else label_text(value)


def _separator(labels: Iterable[Iterable[str]]) -> str:
    """Return the character that separates several labels in one field: the first of LABEL_SEPARATORS that occurs."""
    characters = set(chain.from_iterable(labels))
    return next((each for each in LABEL_SEPARATORS if each in characters), LABEL_SEPARATORS[0])


def _split_label(label: Label, separator: str | None) -> tuple[str, ...]:
    if isinstance(label, tuple):
        return label
    if separator is None:
        return (label,)
    return tuple(part.strip() for part in label.split(separator) if part.strip())


def count_labels(rows: Iterable[ClassRow], multi_label: bool, where: str) -> Counter[str]:
    """Count each label, in the order of the model's outputs: numbers by value, then other labels by name.

    Raises DataError if there are fewer than two different labels.
    """
    labels = [row.label for row in rows if row.label is not None]
    separator = _separator(label for label in labels if isinstance(label, str)) if multi_label else None
    counts: Counter[str] = Counter()
    for label in labels:
        given = _split_label(label, separator)
        if multi_label or len(given) == 1:  # other rows are bad rows, which `encode` reports
            counts.update(given)
    if len(counts) < 2:
        what = f"all rows have the same label {next(iter(counts))!r}" if counts else "no row has a label"
        remedy = "classify needs at least two different labels; set multi_label if labels are lists"
        raise DataError(what, where=where, remedy=remedy)
    return Counter({label: counts[label] for label in sorted(counts, key=_by_value)})


def _by_value(label: str) -> tuple[bool, float, str]:
    number = as_number(label)
    return (False, number, label) if math.isfinite(number) else (True, 0.0, label)


def parse_class_weights(text: str, counts: Counter[str]) -> tuple[float, ...]:
    """Parse `balanced` (inverse frequency) or `ham=1,spam=5`. Labels that are not named have the weight 1."""
    if text == "balanced":
        mean = sum(counts.values()) / len(counts)
        return tuple(mean / count for count in counts.values())
    weights: dict[str, float] = {}
    for part in text.split(","):
        label, _, weight = (word.strip() for word in part.rpartition("="))
        if "=" not in part or not 0 < as_number(weight) < math.inf:
            what = f"class_weights: expected LABEL=NUMBER with a positive number, got {part!r}"
            raise UsageError(what, remedy="correct it, or use balanced")
        if label not in counts or label in weights:
            remedy = f"the labels are {', '.join(counts)}"
            raise UsageError(f"class_weights: {part!r} names an unknown or repeated label", remedy=remedy)
        weights[label] = as_number(weight)
    return tuple(weights.get(label, 1.0) for label in counts)
