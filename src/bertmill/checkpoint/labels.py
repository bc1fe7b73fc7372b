"""The labels of a model: one truth out of `num_labels`, `id2label`, `label2id` and the size of the head.

The names in `id2label` (or else `label2id`) win over the number in `num_labels`, unless a head has exactly that number
of outputs: then the names are cut, or filled up with Hugging Face's default names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bertmill.errors import UsageError

MAX_LABELS = 1 << 20


def default_labels(count: int) -> dict[int, str]:
    """Hugging Face's names of labels without names."""
    return {index: f"LABEL_{index}" for index in range(count)}


def settle_labels(
    settings: Mapping[str, Any], head_sizes: Collection[int] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings with `id2label` instead of all three, and a remark if number and names disagree.

    Values that cannot be names are kept; `BertConfig` rejects them.
    """
    settled = {key: value for key, value in settings.items() if key not in ("num_labels", "label2id", "id2label")}
    names, count = _given_names(settings), settings.get("num_labels")
    remark = None
    if names is None and count is not None:
        names = default_labels(_checked(count))
    elif isinstance(names, dict) and isinstance(count, int) and len(names) != count:
        remark = f"num_labels is {count} and id2label names {len(names)}: using the "
        if count in head_sizes:
            names = {index: names.get(index, name) for index, name in default_labels(_checked(count)).items()}
            remark += f"{count} labels of the head"
        else:
            remark += f"{len(names)} labels of the names"
    if names is not None:
        settled["id2label"] = names
    return settled, () if remark is None else (remark,)


def _checked(count: Any) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_LABELS:
        raise UsageError(f"num_labels is {count!r}, not a number from 1 to {MAX_LABELS:,}")
    return count


def _given_names(settings: Mapping[str, Any]) -> Any:
    """The names in `id2label` or, without it, in `label2id`; None if there are none."""
    names, ids = settings.get("id2label"), settings.get("label2id")
    if names is None and isinstance(ids, Mapping):
        if not all(isinstance(index, int) for index in ids.values()) or len(set(ids.values())) != len(ids):
            raise UsageError("label2id does not give every label a number of its own")
        names = {index: name for name, index in ids.items()}
    return _with_number_keys(names) if isinstance(names, Mapping) else names


def _with_number_keys(names: Mapping[Any, Any]) -> dict[Any, Any]:
    """JSON has no number keys: `{"0": "negative"}`. Other keys stay, and `BertConfig` rejects them."""
    return {
        int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10 else key: (
            str(name) if isinstance(name, int) else name
        )
        for key, name in names.items()
    }
