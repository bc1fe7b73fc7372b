"""Pad sequences that are already encoded, as `transformers` data collators ask a tokenizer to do.

Only the columns that a tokenizer makes are padded; others, such as one label per row, are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from bertmill.errors import UsageError
from bertmill.text.truncation import Side

Padding = bool | Literal["longest", "max_length", "do_not_pad"]
NO_LIMIT = int(1e30)  # as in Hugging Face: the tokenizer does not know the length of its model


def padded_length(
    longest: int, padding: Padding, max_length: int | None, multiple: int | None, model_max_length: int
) -> int | None:
    """The length to pad to, rounded up to a multiple of `multiple`; None for no padding."""
    padding = getattr(padding, "value", padding)  # a `transformers` enum
    if padding not in (True, False, "longest", "max_length", "do_not_pad"):
        raise UsageError(f"unknown padding {padding!r}", remedy="use longest, max_length or do_not_pad")
    if padding in (False, "do_not_pad"):
        return None
    if padding == "max_length":
        length = model_max_length if max_length is None else max_length
        if length >= NO_LIMIT:
            raise UsageError("padding to max_length needs a max_length", remedy="pass max_length")
    else:
        length = longest
    return -(-length // multiple) * multiple if multiple else length


def check_side(side: str) -> None:
    """Raise UsageError unless `side` is left or right."""
    if side not in get_args(Side):
        raise UsageError(f"unknown padding_side {side!r}", remedy="use left or right")


def as_columns(inputs: Any) -> dict[str, Any]:
    """The columns of a batch, given as a mapping or as a list of rows, which are mappings."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if not isinstance(inputs, list | tuple) or not all(isinstance(row, Mapping) for row in inputs):
        raise UsageError(f"pad expects encoded inputs or a list of them, not {type(inputs).__name__}")
    return {name: [row[name] for row in inputs] for name in inputs[0]} if inputs else {}


def as_lists(value: Any) -> Any:
    """Convert tensors and arrays, also inside a list, to lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [as_lists(each) for each in value] if isinstance(value, list | tuple) else value


def pad_columns(columns: Mapping[str, Any], length: int | None, side: Side, fills: Mapping[str, int]) -> dict[str, Any]:
    """Pad the rows of each column in `fills` to `length`; longer rows are kept."""

    def padded(row: Sequence[int], fill: int) -> list[int]:
        pads = [fill] * max(0, (length or 0) - len(row))
        return [*row, *pads] if side == "right" else [*pads, *row]

    return {
        name: [padded(row, fills[name]) for row in rows] if name in fills and length is not None else rows
        for name, rows in columns.items()
    }
