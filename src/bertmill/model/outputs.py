"""The outputs of the models: the same values as attributes, keys and indices, like Hugging Face's.

A field that was not computed is None as an attribute and absent as a key or index. `PER_PIECE` names the fields
with one row per piece: flat in a packed call, padded in a padded one. `BESIDE` names fields that are attributes
only, because Hugging Face's tuples do not have them. `FILL` is the value at padding.

`hidden_states` are the embeddings and the output of every layer; `attentions`, per layer, one tensor of weights
[B, heads, T, T] in a padded call and a tuple of one [heads, T, T] per sequence in a packed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from bertmill.model.padding import Padding

NOWHERE = torch.finfo(torch.float16).min  # low enough in every float type


@dataclass(eq=False)
class ModelOutput(Mapping[str, Any]):
    PER_PIECE: ClassVar[tuple[str, ...]] = ()
    BESIDE: ClassVar[tuple[str, ...]] = ()
    FILL: ClassVar[float] = 0.0

    hidden_states: tuple[Tensor, ...] | None = field(default=None, kw_only=True)
    attentions: tuple[Any, ...] | None = field(default=None, kw_only=True)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._present()[key]
        return self.to_tuple()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._present())

    def __len__(self) -> int:
        return len(self._present())

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self._present().values())

    def padded(self, padding: Padding) -> Self:
        """The same output with rows of pieces [n, …] padded to [B, T, …]."""
        changed: dict[str, Any] = {
            name: padding.padded(value, self.FILL)
            for name in self.PER_PIECE
            if (value := getattr(self, name)) is not None
        }
        for name, pad in (("hidden_states", padding.padded), ("attentions", padding.padded_weights)):
            if (value := getattr(self, name)) is not None:
                changed[name] = tuple(map(pad, value))
        return replace(self, **changed)

    def _present(self) -> dict[str, Any]:
        hidden_states, attentions, *own = (field.name for field in fields(self) if field.name not in self.BESIDE)
        named = ((name, getattr(self, name)) for name in (*own, hidden_states, attentions))
        return {name: value for name, value in named if value is not None}


Result = ModelOutput | tuple[Any, ...]  # a tuple if `return_dict` is False


@dataclass(eq=False)
class BodyOutput(ModelOutput):
    """Of `BertModel`."""

    PER_PIECE = ("last_hidden_state",)

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None


@dataclass(eq=False)
class PreTrainingOutput(ModelOutput):
    """`loss` is the sum of `mlm_loss` and `nsp_loss`, or the one whose labels were given.

    `num_right` is the number of labels whose piece has the largest logit.
    """

    PER_PIECE = ("prediction_logits",)
    BESIDE = ("mlm_loss", "nsp_loss", "num_right")

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    mlm_loss: Tensor | None = None
    nsp_loss: Tensor | None = None
    num_right: Tensor | None = None


@dataclass(eq=False)
class SequenceOutput(ModelOutput):
    """One row of logits per sequence (or, for multiple choice, per question)."""

    loss: Tensor | None = None
    logits: Tensor | None = None


@dataclass(eq=False)
class PieceOutput(SequenceOutput):
    """One row of logits per piece."""

    PER_PIECE = ("logits",)


@dataclass(eq=False)
class MaskedLMOutput(PieceOutput):
    """`num_right` is the number of labels whose piece has the largest logit."""

    BESIDE = ("num_right",)

    num_right: Tensor | None = None


@dataclass(eq=False)
class SpanOutput(ModelOutput):
    """At padding, the logits are so low that they change neither a softmax nor a maximum."""

    PER_PIECE = ("start_logits", "end_logits")
    FILL = NOWHERE

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
