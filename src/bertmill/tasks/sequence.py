"""The base of tasks over whole sequences: rows with one text or a pair, and the mean over windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from bertmill.batching.windows import merge_windows
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.fields import read_fields
from bertmill.rows.row import Record, Row
from bertmill.rows.source import RowFile
from bertmill.tasks.base import Example, Task, run_windows

FIELDS = ("text", "pair")


@dataclass(frozen=True)
class TextRow(Row):
    """A text or a pair of texts."""

    def fields(self) -> dict[str, Any]:
        return dict(zip(FIELDS, self.texts, strict=False))


TextRowT = TypeVar("TextRowT", bound=TextRow)


class SequenceTask(Task[TextRowT, Example]):
    """A task with one output per sequence: the weighted mean of the outputs of its windows."""

    fields: ClassVar[tuple[str, ...]] = FIELDS
    model_inputs: ClassVar[Mapping[str, Any]] = {}  # passed to the model with the batch

    @staticmethod
    def unfold(content: Any, file: RowFile) -> Iterator[Record] | None:
        """Yield the records of a .json file in a structure specific to the task. Returns None for other content."""
        return None

    @classmethod
    @abstractmethod
    def parse(cls, fields: Mapping[str, Any], place: str, options: Any) -> TextRowT:
        """Return a row from its fields, which include `label` if labels are read. Raises BadRowError if invalid."""

    @classmethod
    def read(cls, file: RowFile, options: Any, *, labeled: bool) -> Iterator[TextRowT]:
        has_choices = "choices" in cls.fields

        def parse(record: Record) -> TextRowT:
            if record.fields.get("choices") and not has_choices:
                what = f"the row has choices, which the task {cls.name} does not read"
                raise BadRowError("has choices", what, "remove them")
            return cls.parse(record.fields, record.place, options)

        records = read_fields(
            file,
            labeled=labeled,
            optional_label=options.optional_label,
            choices=has_choices,
            unfold=cls.unfold,
        )
        return file.rows(records, parse)

    @classmethod
    def request(cls, fields: Mapping[str, Any], place: str = "request") -> TextRowT:
        refuse_other_fields(fields, cls.fields, cls.name)
        return cls.parse(fields, place, cls.Options())

    def outputs(self, model: nn.Module, examples: Sequence[Example], device: torch.device) -> Sequence[Tensor]:
        sequences = [windows for example in examples for windows in example.sequences]
        rows = [output.logits for output in run_windows(model, examples, device, **self.model_inputs)]
        return merge_windows(torch.cat(rows), sequences).unbind(0)


def read_texts(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the text, and the pair if there is one. Raises BadRowError if one of them is invalid."""
    return tuple(text_in(fields, name) for name in FIELDS if name == "text" or name in fields)


def text_in(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a non-empty string. Raises BadRowError otherwise."""
    if fields.get(name) is None:
        raise BadRowError(f"missing {name}", f"the field {name!r} is missing")
    value = fields[name]
    if not isinstance(value, str):
        raise BadRowError("wrong type", f"the field {name!r} must be a string, not {type(value).__name__}")
    if not value.strip():
        raise BadRowError(f"empty {name}", f"the field {name!r} is empty")
    return value


def refuse_other_fields(fields: Mapping[str, Any], known: Sequence[str], task: str) -> None:
    """Raise BadRowError if a request has fields that the task does not take."""
    others = [name for name in fields if name not in known]
    if others:
        what = f"the task {task} does not take the field {others[0]!r}"
        raise BadRowError("unknown field", what, f"use {', '.join(known)}")
