"""The task tag: part-of-speech tagging, entity recognition, Chinese word segmentation.

A linear layer classifies the first piece of each word; the other pieces have no label. A word without pieces becomes
[UNK], so every word has a first piece and gets a tag. A sentence longer than a window is read in overlapping windows;
training and prediction read each word in the window where it has the widest context. Tags that mark spans of words are
learned as IOB2 (schemes.py) and evaluated by spans: F1 as computed by the CoNLL scorer, and strict F1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from bertmill.batching.windows import Windows, widest_context
from bertmill.errors import DataError
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError, UnknownLabelError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Answer, Array, Example, FolderEntries, Score, Scores, Task, probabilities, run_windows
from bertmill.tasks.metrics import ClassReport, Counts, class_table, precision_recall_f1, ratio
from bertmill.tasks.sequence import refuse_other_fields, text_in
from bertmill.tasks.tag import schemes
from bertmill.tasks.tag.rows import TagOptions, WordsRow, parse_words, read_words
from bertmill.text.printable import escaped, one_line
from bertmill.text.tokenizer import BertTokenizer

_BREAKS = re.compile("[\t\n\r]")  # characters that end a cell or a line
_NUM_CONSTANTS = 10  # frequent tags that are tried as the baseline


@dataclass(frozen=True)
class TagExample(Example):
    """An encoded sentence. `firsts` are the positions of the words' first pieces among the pieces of all windows."""

    firsts: NDArray[np.int64]


def conll_lines(answer: Answer) -> str:
    """Format a prediction as CoNLL: one line per word with its tag, then an empty line."""
    lines = zip(answer["words"], answer["tags"], strict=True)
    return "".join(f"{escaped(_BREAKS.sub(' ', word))}\t{escaped(tag)}\n" for word, tag in lines) + "\n"


@dataclass(frozen=True)
class Tag(Task[WordsRow, TagExample]):
    """Tag every word: parts of speech, entities, Chinese word segmentation.

    rows:     {"words": ["in", "Paris"], "tags": ["O", "B-LOC"]}, or a "text" with "entities"
              (start, end, label); .jsonl, .json, .parquet;
              other files have one word per line with its tag in the last column, and an empty line
              after each sentence (conll); or one sentence per line: its words, a tab and its tags
              (sentences), which may be in another file (--tags)
    columns:  text (the words), label (the tags)
    metrics:  f1 (default), strict_f1, accuracy; only accuracy for tags that do not mark spans
    """

    tags: tuple[str, ...]  # in the order of the model's outputs
    has_spans: bool  # whether tags mark spans of words
    scheme: str | None = None  # of the training data

    name = "tag"
    head = "BertForTokenClassification"
    probe = "BertForWordProbe"
    Options = TagOptions
    fields: ClassVar[tuple[str, ...]] = ("text",)
    output_formats: ClassVar[Mapping[str, Callable[[Answer], str]]] = {"conll": conll_lines}

    @classmethod
    def read(cls, file: RowFile, options: TagOptions, *, labeled: bool) -> Iterator[WordsRow]:
        return read_words(file, labeled)

    @classmethod
    def request(cls, fields: Mapping[str, Any], place: str = "request") -> WordsRow:
        refuse_other_fields(fields, ("text", "words"), cls.name)
        if len(fields) != 1:
            raise BadRowError("no text", "the task tag takes either 'text' or 'words'")
        if "text" in fields:
            return parse_words({"words": text_in(fields, "text")}, place)
        if isinstance(fields["words"], str):
            raise BadRowError("wrong type", "the field 'words' must be a list of strings")
        return parse_words(fields, place)

    @classmethod
    def from_rows(cls, rows: Sequence[WordsRow], options: TagOptions, tokenizer: BertTokenizer, file: RowFile) -> Self:
        sentences = [row.tags for row in rows if row.tags is not None]
        odd = schemes.odd_tags({tag for sentence in sentences for tag in sentence})
        sentences = [sentence for sentence in sentences if odd.isdisjoint(sentence)]  # others are bad rows in `encode`
        found = {tag for sentence in sentences for tag in sentence}
        scheme = schemes.scheme_of(sentences)
        if scheme is not None:
            kinds = sorted(schemes.kinds(found))
            tags = [schemes.OUTSIDE, *(tag for kind in kinds for tag in schemes.iob2_tags(kind))]
        else:
            tags = sorted(found)
        if len(tags) < 2:
            remedy = "set `columns` to the word and tag columns"
            raise DataError("there are fewer than two different tags", where=file.path, remedy=remedy)
        if scheme is not None:
            learned = "" if scheme == "IOB2" else ", learned as IOB2"
            file.counts.notices.append(f"tags mark spans of words ({scheme}{learned})")
        return cls(tuple(tags), scheme is not None, scheme)

    @classmethod
    def from_folder(cls, config: BertConfig, metadata: Mapping[str, Any]) -> Self:
        tags = tuple(config.id2label[number] for number in range(config.num_labels))
        return cls(tags, schemes.scheme_of([tags]) is not None)

    def folder_entries(self) -> FolderEntries:
        return FolderEntries({"id2label": dict(enumerate(self.tags))}, {"scheme": self.scheme})

    def labels(self, row: WordsRow) -> tuple[str, ...]:
        """The kinds of spans in the row, or its tags if they do not mark spans."""
        if row.tags is None:
            return ()
        tags = self._as_learned(row.tags)
        return tuple(sorted(schemes.kinds(tags) if self.has_spans else set(tags)))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.tags)}

    @cached_property
    def _is_iob2(self) -> bool:
        """Whether the model's tags are IOB2. Models from other programs may use another scheme."""
        expected = {tag for kind in self._kinds for tag in schemes.iob2_tags(kind)}
        return self.has_spans and set(self.tags) - {schemes.OUTSIDE} == expected

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """The classes of the report: kinds of spans, or tags."""
        return schemes.kinds(self.tags) if self.has_spans else self.tags

    def _target(self, row: WordsRow) -> tuple[int, ...]:
        assert row.tags is not None
        tags = self._as_learned(row.tags)
        unknown = [number for number, tag in enumerate(tags) if tag not in self._numbers]
        if unknown:
            # A tag of no scheme is why the tags of this row are not converted, so others may only look unknown.
            unknown = [number for number in unknown if not schemes.means_span(tags[number])] or unknown
            num_rows = dict.fromkeys((row.tags[number] for number in unknown), 1)
            raise UnknownLabelError("tag", num_rows, self.tags, f"{row.place}, word {unknown[0] + 1}")
        return tuple(self._numbers[tag] for tag in tags)

    def _as_learned(self, tags: Sequence[str]) -> Sequence[str]:
        """Convert tags to IOB2 if the model uses it. Tags that belong to no scheme stay unchanged."""
        if self._is_iob2 and all(map(schemes.means_span, tags)):
            return schemes.iob2(schemes.entities(tags), len(tags))
        return tags

    @property
    def reads_cls(self) -> bool:
        return False

    def encode(self, row: WordsRow, windows: Windows) -> TagExample:
        tokenizer = windows.tokenizer
        (text,) = row.texts
        unknown = np.array([tokenizer.unk_token_id], np.uint32).tobytes()
        of_words = [
            tokenizer.wordpiece.ids(text[start:end], split_special=True).tobytes() or unknown
            for start, end in row.words
        ]
        ids = np.frombuffer(b"".join(of_words), np.uint32)
        firsts = np.fromiter(accumulate((len(part) // 4 for part in of_words), initial=0), np.int64)[:-1]
        ranges = windows.slide(len(ids), windows.max_length - tokenizer.num_special_tokens_to_add())
        parts = tuple(windows.window(ids[start:end]) for start, end in ranges)
        # The pieces of a window follow those of the previous windows, after [CLS].
        begins = accumulate((len(part.ids) for part in parts), initial=0)
        shifts = np.array([begin + 1 - start for begin, (start, _) in zip(begins, ranges, strict=False)])
        firsts = firsts + shifts[widest_context(ranges, len(ids))[firsts]]
        target = None if row.tags is None else self._target(row)
        return TagExample(row, (parts,), target, firsts, weight=float(len(firsts)))

    def outputs(self, model: nn.Module, examples: Sequence[TagExample], device: torch.device) -> Sequence[Tensor]:
        rows = torch.cat([output.logits for output in run_windows(model, examples, device)])  # [pieces, labels]
        begins = accumulate((example.num_pieces for example in examples), initial=0)
        firsts = [begin + example.firsts for begin, example in zip(begins, examples, strict=False)]
        words = rows.index_select(0, torch.from_numpy(np.concatenate(firsts)).to(device))
        split: tuple[Tensor, ...] = words.split(list(map(len, firsts)))
        return split

    def num_targets(self, row: WordsRow) -> int:
        return len(row.words)

    def loss(self, outputs: Sequence[Tensor], examples: Sequence[TagExample]) -> Tensor:
        logits = torch.cat(list(outputs))  # [words, labels]
        targets = [number for example in examples for number in example.target]
        return F.cross_entropy(logits, torch.tensor(targets, device=logits.device), reduction="sum")

    def decode(self, examples: Sequence[TagExample], outputs: Sequence[Array]) -> list[Answer]:
        return [self._answer(example.row, output) for example, output in zip(examples, outputs, strict=True)]

    def _answer(self, row: WordsRow, output: Array) -> Answer:
        (text,) = row.texts
        of_tags = probabilities(output)  # [words, tags]
        tags = self._tags(of_tags.argmax(1))
        scores = of_tags.max(1)
        answer: Answer = {
            "words": [text[start:end] for start, end in row.words],
            "offsets": [list(span) for span in row.words],
            "tags": tags,
            "scores": scores.tolist(),
        }
        if self.has_spans:
            answer["entities"] = []
            for kind, first, end in schemes.entities(tags):
                start, stop = row.words[first][0], row.words[end - 1][1]
                score = float(scores[first:end].mean())
                found = {"type": kind, "text": text[start:stop], "start": start, "end": stop, "score": score}
                answer["entities"].append(found)
        return answer

    def show(self, answer: Answer) -> str:
        if self.has_spans:
            return ", ".join(f"{each['type']} {one_line(each['text'])}" for each in answer["entities"]) or "none"
        return one_line(" ".join(answer["tags"]))

    @property
    def selection_metrics(self) -> tuple[str, ...]:
        return ("f1", "strict_f1", "accuracy") if self.has_spans else ("accuracy",)

    def score(self, example: TagExample, output: Array) -> Score:
        """Number of words and correct words; then correct, predicted and expected spans per reading and kind."""
        predicted, expected = self._tags(output.argmax(1)), self._tags(example.target)
        num_right = sum(one == other for one, other in zip(predicted, expected, strict=True))
        counts = [self._counts(read(predicted), read(expected)) for read in self._ways_to_read.values()]
        return np.array([len(expected), num_right, *np.concatenate(counts)])

    @cached_property
    def _ways_to_read(self) -> Mapping[str, Callable[[Iterable[str]], list[schemes.Entity]]]:
        """Functions that read tags as spans, by the prefix of the metric names."""
        if not self.has_spans:
            return {"": lambda tags: [schemes.Entity(tag, place, place + 1) for place, tag in enumerate(tags)]}
        return {"": schemes.entities} | ({"strict_": schemes.strict_entities} if self._is_iob2 else {})

    def _tags(self, numbers: Iterable[int]) -> list[str]:
        return [self.tags[number] for number in numbers]

    def _counts(self, predicted: list[schemes.Entity], expected: list[schemes.Entity]) -> Counts:
        """Return the number of correct, predicted and expected spans of each kind."""
        groups = (set(predicted) & set(expected), predicted, expected)
        counts = [Counter(entity.kind for entity in group) for group in groups]
        return np.array([of[kind] for kind in self._kinds for of in counts], np.int64)

    def metrics(self, scores: Scores) -> dict[str, float]:
        num_words, num_right, *counts = scores.sum(0).tolist()
        metrics = {"accuracy": ratio(num_right, num_words)}
        if self.has_spans:
            ways = np.array(counts).reshape(len(self._ways_to_read), -1, 3)
            for prefix, of_kinds in zip(self._ways_to_read, ways, strict=True):
                named = zip(("precision", "recall", "f1"), precision_recall_f1(*of_kinds.sum(0)), strict=True)
                metrics |= {prefix + name: value for name, value in named}
        return metrics

    def class_report(self, scores: Scores) -> ClassReport:
        counts = scores.sum(0)[2 : 2 + 3 * len(self._kinds)].reshape(-1, 3)
        return ClassReport(class_table(self._kinds, counts))

    def baseline(self, examples: Sequence[TagExample], metric: str) -> tuple[str, Scores]:
        counts = Counter(number for example in examples for number in example.target)
        constants = [(self.tags[tag], self._scores_of(tag, examples)) for tag, _ in counts.most_common(_NUM_CONSTANTS)]
        tag, scores = max(constants, key=lambda each: self.metrics(each[1])[metric])
        return f"always {tag}", scores

    def _scores_of(self, tag: int, examples: Sequence[TagExample]) -> Scores:
        """The scores if every word has this tag."""
        answer = np.eye(1, len(self.tags), tag, dtype=np.float32)
        return np.stack([self.score(example, answer.repeat(len(example.target), 0)) for example in examples])

    def confidences(self, example: TagExample, output: Array) -> Iterator[tuple[float, bool]]:
        is_right = output.argmax(1) == np.array(example.target)
        yield from zip(probabilities(output).max(1).tolist(), is_right.tolist(), strict=True)

    def mistake(self, example: TagExample, output: Array, score: Score) -> tuple[float, tuple[str, ...]]:
        surplus = float((output.max(1) - output[np.arange(len(output)), list(example.target)]).sum())
        tags, words, (text,) = example.row.tags, example.row.words, example.row.texts
        if not self.has_spans or not all(map(schemes.means_span, tags)):
            return surplus, tags
        spans = ((kind, words[first][0], words[end - 1][1]) for kind, first, end in schemes.entities(tags))
        return surplus, tuple(f"{kind} {text[start:end]}" for kind, start, end in spans)
