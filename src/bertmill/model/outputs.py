"""Outputs of the models: the same values as attributes, keys and indices, as in Hugging Face. They are also pytrees.

A field that was not computed is None as an attribute and absent as a key or index. Class variables describe fields:

- `PER_PIECE`: fields with one row per piece, which is flat in a packed call and padded in a padded one.
- `ATTRIBUTES_ONLY`: fields that are attributes only, because Hugging Face's tuples do not have them.
- `FILL`: the value at padding.

`hidden_states` contains the embeddings and the output of every layer. `attentions` has one entry per layer: a tensor
[B, heads, T, T] in a padded call, a tuple with one tensor [heads, T, T] per sequence in a packed call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node

from bertmill.model.padding import Padding

MASKED_LOGIT = torch.finfo(torch.float16).min  # a logit that is low enough in every float type


@dataclass(eq=False)
class ModelOutput(Mapping[str, Any]):
    """Base class of outputs: a mapping of the fields that were computed."""

    PER_PIECE: ClassVar[tuple[str, ...]] = ()
    ATTRIBUTES_ONLY: ClassVar[tuple[str, ...]] = ()
    FILL: ClassVar[float] = 0.0

    hidden_states: tuple[Tensor, ...] | None = field(default=None, kw_only=True)
    attentions: tuple[Any, ...] | None = field(default=None, kw_only=True)

    def __init_subclass__(cls) -> None:
        register_pytree_node(
            cls, _flattened, partial(_unflattened, cls), serialized_type_name=f"bertmill.{cls.__name__}"
        )

    def __post_init__(self) -> None:
        first = next(each.name for each in fields(self) if not each.kw_only)
        given = getattr(self, first)
        if isinstance(given, Mapping):  # `type(output)(dict)`: how accelerate copies an output
            for name in (first, *given):
                setattr(self, name, given.get(name))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._present()[key]
        return self.to_tuple()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._present())

    def __len__(self) -> int:
        return len(self._present())

    def to_tuple(self) -> tuple[Any, ...]:
        """As in Hugging Face: the fields that were computed."""
        return tuple(self._present().values())

    def padded(self, padding: Padding) -> Self:
        """Return a copy whose fields with one row per piece [n, …] are padded to [B, T, …].

        `hidden_states` are padded already, because gradients must reach what the caller sees.
        """
        changed: dict[str, Any] = {
            name: padding.padded(value, self.FILL)
            for name in self.PER_PIECE
            if (value := getattr(self, name)) is not None
        }
        if self.attentions is not None:
            changed["attentions"] = tuple(map(padding.padded_weights, self.attentions))
        return replace(self, **changed)

    def _present(self) -> dict[str, Any]:
        own_first = sorted(fields(self), key=lambda each: bool(each.kw_only))  # hidden states and attentions last
        named = ((each.name, getattr(self, each.name)) for each in own_first if each.name not in self.ATTRIBUTES_ONLY)
        return {name: value for name, value in named if value is not None}


def _flattened(output: ModelOutput) -> tuple[list[Any], list[str]]:
    named = {each.name: getattr(output, each.name) for each in fields(output)}
    present = {name: value for name, value in named.items() if value is not None}
    return list(present.values()), list(present)


def _unflattened(kind: type[ModelOutput], values: Iterable[Any], names: list[str]) -> ModelOutput:
    output = kind.__new__(kind)
    for each in fields(kind):
        setattr(output, each.name, None)
    for name, value in zip(names, values, strict=True):
        setattr(output, name, value)
    return output


Result = ModelOutput | tuple[Any, ...]  # a tuple if `return_dict` is False


@dataclass(eq=False)
class BodyOutput(ModelOutput):
    """Output of `BertModel`."""

    PER_PIECE = ("last_hidden_state",)

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None


@dataclass(eq=False)
class PreTrainingOutput(ModelOutput):
    """Output of `BertForPreTraining`.

    `loss` is the sum of `mlm_loss` and `nsp_loss`, or the one whose labels were given. `num_right` is the number of
    labels whose piece has the largest logit.
    """

    PER_PIECE = ("prediction_logits",)
    ATTRIBUTES_ONLY = ("mlm_loss", "nsp_loss", "num_right")

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None
    num_right: Tensor | None = None


@dataclass(eq=False)
class SequenceOutput(ModelOutput):
    """Output with one row of logits per sequence (multiple choice: per question)."""

    loss: Tensor | None = None
    logits: Tensor | None = None


@dataclass(eq=False)
class PieceOutput(SequenceOutput):
    """Output with one row of logits per piece."""

    PER_PIECE = ("logits",)


@dataclass(eq=False)
class MaskedLMOutput(PieceOutput):
    """Output of `BertForMaskedLM`. `num_right` is the number of labels whose piece has the largest logit."""

    ATTRIBUTES_ONLY = ("num_right",)

    num_right: Tensor | None = None


@dataclass(eq=False)
class SpanOutput(ModelOutput):
    """Output of `BertForQuestionAnswering`. Logits at padding are too low to affect a softmax or a maximum."""

    PER_PIECE = ("start_logits", "end_logits")
    FILL = MASKED_LOGIT

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
