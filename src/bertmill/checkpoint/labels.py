"""Resolve the labels of a model from `num_labels`, `id2label`, `label2id` and the size of the head.

The names in `id2label` (or else `label2id`) take precedence over `num_labels`, unless a head has exactly `num_labels`
outputs. In that case the names are truncated, or extended with Hugging Face's default names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bertmill.errors import UsageError

MAX_LABELS = 1 << 20


def default_labels(count: int) -> dict[int, str]:
    """Hugging Face's default names: LABEL_0, LABEL_1, …"""
    return {index: f"LABEL_{index}" for index in range(count)}


def resolve_labels(
    settings: Mapping[str, Any], head_sizes: Collection[int] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Replace the three settings with `id2label`; also returns a note if `num_labels` and the names disagree.

    Values that cannot be names are kept; `BertConfig` rejects them.
    """
    resolved = {key: value for key, value in settings.items() if key not in ("num_labels", "label2id", "id2label")}
    names, count = _given_names(settings), settings.get("num_labels")
    remark = None
    if names is None and count is not None:
        names = default_labels(_checked(count))
    elif isinstance(names, dict) and isinstance(count, int) and len(names) != count:
        remark = f"num_labels is {count}, but there are {len(names)} label names; using "
        if count in head_sizes:
            names = {index: names.get(index, name) for index, name in default_labels(_checked(count)).items()}
            remark += "num_labels, the size of the head"
        else:
            remark += "the names"
    if names is not None:
        resolved["id2label"] = names
    return resolved, () if remark is None else (remark,)


def _checked(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_LABELS:
        raise UsageError(f"num_labels must be an integer from 1 to {MAX_LABELS:,}, not {count!r}")
    return count


def _given_names(settings: Mapping[str, Any]) -> Any:
    """The names in `id2label`, or else in `label2id`; None if there are none."""
    names, ids = settings.get("id2label"), settings.get("label2id")
    if names is None and isinstance(ids, Mapping):
        if not all(isinstance(index, int) for index in ids.values()) or len(set(ids.values())) != len(ids):
            raise UsageError("label2id must map every label to a different integer")
        names = {index: name for name, index in ids.items()}
    return _with_number_keys(names) if isinstance(names, Mapping) else names


def _with_number_keys(names: Mapping[Any, Any]) -> dict[Any, Any]:
    """Convert keys to integers: JSON writes `{"0": "negative"}`. Other keys are kept, and `BertConfig` rejects them."""
    return {
        int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10 else key: (
            str(name) if isinstance(name, int) else name
        )
        for key, name in names.items()
    }
