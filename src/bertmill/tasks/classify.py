"""The task classify: one class, or several labels, for a text or a pair of texts.

- Single label: softmax and cross-entropy, optionally with class weights and label smoothing.
- Multi-label: an independent sigmoid and binary cross-entropy per label. A label is predicted if its probability
  exceeds its threshold: 0.5, or after fine-tuning the one with the best F1 on the dev rows (label_sets.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nlargest
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from bertmill.batching.windows import Windows
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError, UnknownLabelError
from bertmill.rows.labels import are_many_numbers
from bertmill.rows.source import RowFile
from bertmill.rows.split import SplitKey
from bertmill.tasks.base import (
    Answer,
    Array,
    Example,
    FolderEntries,
    Score,
    Scores,
    TargetKind,
    Targets,
    TaskOptions,
    probabilities,
)
from bertmill.tasks.class_labels import (
    Label,
    count_labels,
    label_separator,
    parse_class_weights,
    parse_label,
    split_label,
)
from bertmill.tasks.label_sets import (
    DEFAULT_THRESHOLD,
    THRESHOLDS,
    best_constant,
    best_thresholds,
    log_odds,
    recorded_thresholds,
    sigmoid,
)
from bertmill.tasks.metrics import ClassReport, class_metrics, label_set_metrics, report_classes, report_label_sets
from bertmill.tasks.sequence import SequenceTask, TextRow, read_texts
from bertmill.text.printable import counted, one_line
from bertmill.text.tokenizer import BertTokenizer

MULTI_LABEL = "multi_label_classification"
SINGLE_LABEL = "single_label_classification"


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
            raise ValueError("`class_weights` and `label_smoothing` cannot be used with `multi_label`")
        return self


class ClassifyPredictOptions(TaskOptions):
    """Options of classify for `predict`."""

    top_k: int | None = Field(None, ge=1, description="list the N most likely classes instead of all scores")


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
    thresholds: tuple[float, ...] | None = None  # of the labels, with multi_label; None: DEFAULT_THRESHOLD for all
    top_k: int | None = None  # if set, a prediction has the most likely classes instead of the scores of all

    name = "classify"
    head = "BertForSequenceClassification"
    probe = "BertForSequenceProbe"
    starts_from_probe = True
    Options = ClassifyOptions
    PredictOptions = ClassifyPredictOptions

    @classmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: ClassifyOptions) -> ClassRow:
        label = parse_label(fields["label"], options.multi_label) if "label" in fields else None
        return ClassRow(place, read_texts(fields), label)

    @classmethod
    def from_rows(
        cls, rows: Sequence[ClassRow], options: ClassifyOptions, tokenizer: BertTokenizer, file: RowFile
    ) -> Self:
        counts = count_labels((row.label for row in rows), options.multi_label, file.path)
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
        if config.problem_type != MULTI_LABEL:
            return cls(names)
        return cls(names, multi_label=True, thresholds=recorded_thresholds(metadata, names))

    def folder_entries(self) -> FolderEntries:
        problem_type = MULTI_LABEL if self.multi_label else SINGLE_LABEL
        config = {"id2label": dict(enumerate(self.class_names)), "problem_type": problem_type}
        if self.thresholds is None:
            return FolderEntries(config)
        return FolderEntries(config, {THRESHOLDS: dict(zip(self.class_names, self.thresholds, strict=True))})

    def labels(self, row: ClassRow) -> tuple[str, ...]:
        if row.label is None:
            return ()
        is_whole = not self.multi_label or row.label in self._numbers  # a label may contain a comma
        return split_label(row.label, None if is_whole else label_separator([row.label]))

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
            raise BadRowError("several labels", what, "set `multi_label=True`", where=row.place)
        unknown = [label for label in labels if label not in self._numbers]
        if unknown:
            raise UnknownLabelError("label", dict.fromkeys(unknown, 1), self.class_names, row.place)
        if self.multi_label:
            return tuple(float(label in labels) for label in self.class_names), float(len(self.class_names))
        number = self._numbers[labels[0]]
        return number, 1.0 if self.class_weights is None else self.class_weights[number]

    @property
    def target_kind(self) -> TargetKind:
        return "labels" if self.multi_label else "class"

    def targets(self, example: Example) -> Targets:
        return np.array([example.target])

    def target_weights(self, examples: Sequence[Example]) -> Targets | None:
        return None if self.class_weights is None else np.array([example.weight for example in examples])

    def guessing_loss(self, examples: Sequence[Example]) -> float:
        return math.nan if self.label_smoothing else super().guessing_loss(examples)  # smoothing changes the loss

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
        likely = sigmoid(output) if self.multi_label else probabilities(output)
        scores = dict(zip(self.class_names, likely.tolist(), strict=True))
        ranked = nlargest(self.top_k or 1, scores, key=scores.__getitem__)
        if self.multi_label:
            is_predicted = (likely > self._limits).tolist()
            answer: Answer = {"labels": [each for each, flag in zip(scores, is_predicted, strict=True) if flag]}
        else:
            answer = {"label": ranked[0], "score": scores[ranked[0]]}
        if self.top_k is None:
            return {**answer, "scores": scores}
        return {**answer, "top": [{"label": label, "score": scores[label]} for label in ranked]}

    @cached_property
    def _limits(self) -> NDArray[np.float64]:
        """The threshold of each label."""
        return np.array(self.thresholds or [DEFAULT_THRESHOLD] * len(self.class_names))

    def show(self, answer: Answer) -> str:
        if "top" in answer:
            scores = {each["label"]: each["score"] for each in answer["top"]}
        else:
            labels = answer["labels"] if self.multi_label else [answer["label"]]
            scores = {label: answer["scores"][label] for label in labels}
        return ", ".join(f"{one_line(label)} {score:.4f}" for label, score in scores.items()) or "none"

    @property
    def selection_metrics(self) -> tuple[str, ...]:
        return ("micro_f1", "macro_f1", "subset_accuracy") if self.multi_label else ("accuracy", "f1", "matthews")

    def score(self, example: Example, output: Array) -> Score:
        """The predicted and the expected class, or with multi-label the probability and the target of each label."""
        if self.multi_label:
            return np.stack([sigmoid(output), np.array(example.target)])
        return np.array([output.argmax(), example.target])

    def metrics(self, scores: Scores) -> dict[str, float]:
        predicted, expected = scores[:, 0], scores[:, 1]
        if self.multi_label:
            return label_set_metrics(predicted > self._limits, expected > 0)
        return class_metrics(predicted, expected, len(self.class_names))

    def tuned(self, scores: Callable[[], Scores], metric: str) -> tuple[Self, str]:
        """Return the task with the thresholds that maximize micro or macro F1 on these scores.

        Subset accuracy needs no others than 0.5: a set is most likely if each of its decisions is.
        """
        if not self.multi_label or metric == "subset_accuracy":
            return self, ""
        of_rows = scores()
        limits = best_thresholds(of_rows[:, 0], of_rows[:, 1] > 0, is_macro=metric == "macro_f1")
        description = f"thresholds of {len(limits)} labels, from {limits.min():.4f} to {limits.max():.4f}"
        return replace(self, thresholds=tuple(limits.tolist())), description

    def class_report(self, scores: Scores) -> ClassReport:
        predicted, expected = scores[:, 0], scores[:, 1]
        if self.multi_label:
            return report_label_sets(self.class_names, predicted > self._limits, expected > 0)
        return report_classes(self.class_names, predicted, expected)

    def baseline(self, examples: Sequence[Example], metric: str) -> tuple[str, Scores]:
        targets = np.array([example.target for example in examples])
        if self.multi_label:
            chosen = best_constant(targets > 0, metric)
            names = ", ".join(name for name, flag in zip(self.class_names, chosen, strict=True) if flag)
            answer = "every label" if chosen.all() else one_line(f"always {names}" if names else "no label")
            return answer, np.stack([np.where(chosen, np.inf, np.zeros_like(targets)), targets], 1)
        # The F1 of two classes is that of the second one, and 0 if it is never predicted.
        constant = 1 if metric == "f1" and len(self.class_names) == 2 else int(np.bincount(targets).argmax())
        return f"always {self.class_names[constant]}", np.stack([np.full_like(targets, constant), targets], 1)

    def confidences(self, example: Example, output: Array) -> Iterator[tuple[float, bool]]:
        if self.multi_label:
            likely, expected = sigmoid(output), np.array(example.target) > 0
            is_predicted = likely > self._limits
            confidences = np.where(is_predicted, likely, 1 - likely)
            yield from zip(confidences.tolist(), (is_predicted == expected).tolist(), strict=True)
        else:
            yield float(probabilities(output).max()), int(output.argmax()) == example.target

    def mistake(self, example: Example, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        if self.multi_label:
            likely, expected = score
            is_wrong = (likely > self._limits) != (expected > 0)
            confidence = float(np.abs(log_odds(likely) - log_odds(self._limits))[is_wrong].sum())
        else:
            confidence = float(output.max() - output[example.target])
        return confidence, self.labels(example.row)
