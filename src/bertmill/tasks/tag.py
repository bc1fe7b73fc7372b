"""A tag for every word: parts of speech, entities, the words of Chinese text.

A linear layer on the first piece of each word; the other pieces carry no label. A word that yields no piece stands as
one [UNK], so every word has a first piece, and a tag. A sentence that is longer than a window slides through several,
and each word is read, in training too, where it has the widest context. Tags that mean spans of words are learnt as
IOB2 (tag_schemes.py), and measured by spans: F1 as the CoNLL scorer counts, and strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertmill.errors import DataError
from bertmill.tasks.base import (
    Answer,
    Array,
    EncodedExample,
    Example,
    Judgement,
    Judgements,
    Task,
    probabilities,
    run_windows,
)
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.metrics import ByClass, Counts, class_table, precision_recall_f1, ratio
from bertmill.tasks.raw_rows import BadRowError, unknown_label
from bertmill.tasks.tag_schemes import (
    OUTSIDE,
    Entity,
    entities,
    iob2,
    iob2_tags,
    means_span,
    odd_tags,
    scheme_of,
    split_tag,
    strict_entities,
)
from bertmill.tasks.windows import Window, WindowMaker, widest_context
from bertmill.text.words import Span, find_words


@dataclass(frozen=True)
class EncodedWords(EncodedExample):
    """A sentence as pieces; `firsts` are the places of the first pieces of its words among those of all windows."""

    firsts: NDArray[np.int64]


@dataclass(frozen=True)
class Tag(Task):
    """`labels` in the order of the model's outputs; `scheme` is how the data wrote them, where that is known."""

    labels: tuple[str, ...]
    has_spans: bool  # whether tags mean spans of words; their labels are IOB2 then
    scheme: str | None = None

    name = "tag"
    head = "BertForTokenClassification"

    @property
    def goals(self) -> tuple[str, ...]:
        return ("f1", "strict_f1", "accuracy") if self.has_spans else ("accuracy",)

    @classmethod
    def for_rows(cls, rows: Iterable[LabelledRow], file: str) -> Tag:
        """With all tags that are in the rows."""
        sentences = [row.label for row in rows if isinstance(row.label, tuple)]
        odd = odd_tags({tag for sentence in sentences for tag in sentence})
        sentences = [sentence for sentence in sentences if odd.isdisjoint(sentence)]  # others will be bad rows
        tags = {tag for sentence in sentences for tag in sentence}
        scheme = scheme_of(sentences)
        if scheme is not None:
            kinds = sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE})
            labels = [OUTSIDE, *(tag for kind in kinds for tag in iob2_tags(kind))]
        else:
            labels = sorted(tags)
        if len(labels) < 2:
            raise DataError("there are no two different tags", where=file, remedy="say with --columns where they are")
        return cls(tuple(labels), scheme is not None, scheme)

    @classmethod
    def of_labels(cls, labels: Sequence[str]) -> Tag:
        """Of a model folder, whoever has made it."""
        return cls(tuple(labels), scheme_of([labels]) is not None)

    @property
    def reads_first_piece(self) -> bool:
        return False

    def remarks(self) -> list[str]:
        if not self.has_spans:
            return []
        learnt = "" if self.scheme == "IOB2" else ", learnt as IOB2"
        return [f"tags mean spans of words ({self.scheme}{learnt})"]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    @cached_property
    def _is_iob2(self) -> bool:
        """Whether spans are written as we write them; models of others may have learnt another scheme."""
        wanted = {tag for kind in self._kinds for tag in iob2_tags(kind)}
        return self.has_spans and set(self.labels) - {OUTSIDE} == wanted

    @cached_property
    def _places(self) -> dict[str, int]:
        return {kind: number for number, kind in enumerate(self._kinds)}

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """What is counted apart: kinds of spans, or tags."""
        if not self.has_spans:
            return self.labels
        return tuple(dict.fromkeys(split_tag(label)[1] for label in self.labels if label != OUTSIDE))

    def example(self, row: LabelledRow) -> Example:
        if len(row.texts) != 1 or row.choices:
            raise BadRowError("more than one text", "has more than one text to tag", where=row.place)
        spans = row.spans or tuple(find_words(row.texts[0]))
        row = replace(row, spans=spans)
        return Example(row, None if row.label is None else self._target(row))

    def _target(self, row: LabelledRow) -> tuple[int, ...]:
        assert isinstance(row.label, tuple)
        tags = self._as_learnt(row.label)
        unknown = [number for number, tag in enumerate(tags) if tag not in self._numbers]
        if unknown:
            number = min(unknown, key=lambda number: means_span(tags[number]))
            raise unknown_label("tag", row.label[number], self.labels, f"{row.place}, word {number + 1}")
        return tuple(self._numbers[tag] for tag in tags)

    def _as_learnt(self, tags: Any) -> Sequence[str]:
        """The tags of a row as IOB2, where that is what was learnt; what is no tag of any scheme stays as it is."""
        if self._is_iob2 and all(map(means_span, tags)):
            return iob2(entities(tags), len(tags))
        return tuple(tags)

    def labels_of(self, row: LabelledRow) -> tuple[str, ...]:
        """The kinds of spans, or the tags, that the row has."""
        if row.label is None:
            return ()
        tags = self._as_learnt(row.label)
        return tuple(sorted({split_tag(tag)[1] for tag in tags if tag != OUTSIDE} if self.has_spans else set(tags)))

    def settings(self) -> dict[str, Any]:
        return {"id2label": dict(enumerate(self.labels))}

    def note(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "scheme": self.scheme}

    def encode(self, example: Example, make_windows: WindowMaker) -> EncodedWords:
        tokenizer = make_windows.tokenizer
        (text,) = example.row.texts
        unknown = np.array([tokenizer.unk_token_id], np.uint32).tobytes()
        of_words = [
            tokenizer.wordpiece.ids(text[start:end], split_special=True).tobytes() or unknown
            for start, end in example.row.spans
        ]
        ids = np.frombuffer(b"".join(of_words), np.uint32)
        firsts = np.fromiter(accumulate((len(part) // 4 for part in of_words), initial=0), np.int64)[:-1]
        ranges = make_windows.slide(len(ids), make_windows.max_length - tokenizer.num_special_tokens_to_add())
        windows = tuple(make_windows.window(ids[start:end]) for start, end in ranges)
        # A window begins where those before it end, with [CLS].
        shifts = np.array([begin + 1 - start for begin, (start, _) in zip(_begins(windows), ranges, strict=True)])
        return EncodedWords(example, (windows,), firsts + shifts[widest_context(ranges, len(ids))[firsts]])

    def outputs(self, model: nn.Module, examples: Sequence[EncodedExample], device: torch.device) -> Sequence[Tensor]:
        rows = torch.cat([output.logits for output in run_windows(model, examples, device)])  # [pieces, labels]
        begins = accumulate((example.num_pieces for example in examples), initial=0)
        firsts = [begin + _firsts(example) for begin, example in zip(begins, examples, strict=False)]
        words = rows.index_select(0, torch.from_numpy(np.concatenate(firsts)).to(device))
        split: tuple[Tensor, ...] = words.split(list(map(len, firsts)))
        return split

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[EncodedExample]) -> Tensor:
        logits = torch.cat(list(outputs))  # [words, labels]
        targets = [number for example in examples for number in example.target]
        return F.cross_entropy(logits, torch.tensor(targets, device=logits.device), reduction="sum")

    def weight(self, example: EncodedExample) -> float:
        return float(len(example.target))

    def judge(self, example: EncodedExample, output: Array) -> Judgement:
        """Words, words that are right; then of each kind how many are right, given and wanted, in each way to read."""
        given, wanted = self._tags(output.argmax(1)), self._tags(example.target)
        num_right = sum(one == other for one, other in zip(given, wanted, strict=True))
        counts = [self._counts(read(given), read(wanted)) for read in self._ways_to_read.values()]
        return np.array([len(wanted), num_right, *np.concatenate(counts)])

    @cached_property
    def _ways_to_read(self) -> Mapping[str, Callable[[Iterable[str]], list[Entity]]]:
        """How tags become things to be counted, by what stands before the names of the figures."""
        if not self.has_spans:
            return {"": lambda tags: [Entity(tag, place, place + 1) for place, tag in enumerate(tags)]}
        return {"": entities} | ({"strict_": strict_entities} if self._is_iob2 else {})

    def _tags(self, numbers: Iterable[int]) -> list[str]:
        return [self.labels[number] for number in numbers]

    def _counts(self, given: list[Entity], wanted: list[Entity]) -> Counts:
        """Of each kind: how many are right, given and wanted."""
        counts = np.zeros((len(self._kinds), 3), np.int64)
        for column, found in enumerate((set(given) & set(wanted), given, wanted)):
            for entity in found:
                counts[self._places[entity.kind], column] += 1
        return counts.ravel()

    def metrics(self, judgements: Judgements) -> dict[str, float]:
        num_words, num_right, *counts = judgements.sum(0).tolist()
        figures = {"accuracy": ratio(num_right, num_words)}
        if self.has_spans:
            ways = np.array(counts).reshape(len(self._ways_to_read), -1, 3)
            for prefix, of_kinds in zip(self._ways_to_read, ways, strict=True):
                named = zip(("precision", "recall", "f1"), precision_recall_f1(*of_kinds.sum(0)), strict=True)
                figures |= {prefix + name: value for name, value in named}
        return figures

    def by_class(self, judgements: Judgements) -> ByClass:
        counts = judgements.sum(0)[2 : 2 + 3 * len(self._kinds)].reshape(-1, 3)
        return ByClass(class_table(self._kinds, counts))

    def error(self, example: EncodedExample, output: Array, judgement: Judgement) -> float:
        return float((output.max(1) - output[np.arange(len(output)), list(example.target)]).sum())

    def decode(self, example: EncodedExample, output: Array) -> Answer:
        row = example.example.row
        (text,) = row.texts
        of_tags = probabilities(output)  # [words, tags]
        tags = self._tags(of_tags.argmax(1))
        scores = of_tags.max(1)
        answer: Answer = {
            "words": [text[start:end] for start, end in row.spans],
            "offsets": [list(span) for span in row.spans],
            "tags": tags,
            "scores": scores.tolist(),
        }
        if self.has_spans:
            answer["entities"] = [_as_answer(entity, text, row.spans, scores) for entity in entities(tags)]
        return answer


def _begins(windows: Sequence[Window]) -> list[int]:
    return list(accumulate((len(window.ids) for window in windows[:-1]), initial=0))


def _firsts(example: EncodedExample) -> NDArray[np.int64]:
    assert isinstance(example, EncodedWords)
    return example.firsts


def _as_answer(entity: Entity, text: str, spans: Sequence[Span], scores: NDArray[np.float64]) -> Answer:
    start, end = spans[entity.first][0], spans[entity.end - 1][1]
    return {
        "type": entity.kind,
        "text": text[start:end],
        "start": start,
        "end": end,
        "score": float(scores[entity.first : entity.end].mean()),
    }
