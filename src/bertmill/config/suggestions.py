"""Suggestions for unknown names.

In this order: our name for what other tools call by this name, the name with the smallest edit distance, a name with
the same beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

# Names in other tools → our names of settings, tasks and commands, of which at most one fits. Without leading dashes.
_OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "lr": ("learning-rate",),
    "peak-lr": ("learning-rate",),
    "bs": ("batch-size",),
    "batch": ("batch-size",),
    "b": ("batch-size",),
    "train-batch-size": ("batch-size",),
    "per-device-train-batch-size": ("batch-size",),
    "num-epochs": ("epochs",),
    "n-epochs": ("epochs",),
    "num-train-epochs": ("epochs",),
    "e": ("epochs",),
    "num-steps": ("steps",),
    "max-steps": ("steps",),
    "time": ("budget",),
    "max-time": ("budget",),
    "max-len": ("max-length", "length"),
    "maxlen": ("max-length", "length"),
    "max-length": ("length",),
    "length": ("max-length",),
    "seq-length": ("max-length", "length"),
    "seq-len": ("max-length", "length"),
    "max-seq-len": ("max-length", "length"),
    "max-seq-length": ("max-length", "length"),
    "max-sequence-length": ("max-length", "length"),
    "wd": ("weight-decay",),
    "model-name-or-path": ("model", "init"),
    "model-name": ("model", "init"),
    "pretrained": ("model", "init"),
    "base-model": ("model", "init"),
    "m": ("model", "init"),
    "train-file": ("train",),
    "train-data": ("train",),
    "training-data": ("train",),
    "data": ("train", "corpus"),
    "validation": ("dev", "heldout"),
    "validation-file": ("dev", "heldout"),
    "valid": ("dev", "heldout"),
    "val": ("dev", "heldout"),
    "eval": ("dev", "heldout"),
    "eval-file": ("dev", "heldout"),
    "output": ("out",),
    "output-dir": ("out",),
    "output-folder": ("out",),
    "output-file": ("out",),
    "o": ("out",),
    "save-dir": ("out",),
    "overwrite-output-dir": ("out",),
    "save-steps": ("save-every",),
    "eval-steps": ("eval-every",),
    "logging-steps": ("log-every",),
    "early-stopping-patience": ("patience",),
    "num-workers": ("workers",),
    "num-threads": ("threads",),
    **dict.fromkeys(("text-column", "text-col", "target", "target-column", "column"), ("columns",)),
    **dict.fromkeys(("label", "labels", "label-column", "label-col"), ("columns",)),
    "sep": ("separator",),
    "delimiter": ("separator",),
    "k": ("top-k",),
    "q": ("quiet",),
    "silent": ("quiet",),
    "resume-from-checkpoint": ("resume",),
    "continue": ("resume",),
    "train": ("finetune",),
    "test": ("evaluate",),
    **dict.fromkeys(("ner", "pos", "token-classification", "tagging"), ("tag",)),
    **dict.fromkeys(("qa", "squad", "question-answering"), ("answer",)),
    **dict.fromkeys(("text-classification", "sentiment", "multi-label"), ("classify",)),
    **dict.fromkeys(("regression", "similarity", "sts"), ("regress",)),
    "multiple-choice": ("choose",),
}
_LETTERS_PER_ERROR = 4  # a longer word may contain more typing errors
_MIN_PREFIX = 3
_MIN_PREFIX_SHARE = 0.75  # of the shorter name


def suggestion(word: str, known: Sequence[str]) -> str:
    """The end of a message about the unknown `word`: the name among `known` that was probably meant, or nothing."""
    names = {_bare(name): name for name in known}
    word = _bare(word)
    meant = [name for name in _OTHER_NAMES.get(word, ()) if name in names]
    meant += _similar(word, list(names))
    return f"; did you mean {names[meant[0]]}?" if meant else ""


def _similar(word: str, names: Sequence[str]) -> list[str]:
    """The names that `word` may be a misspelling of, then those with the same beginning; the most similar first."""
    max_distance = (len(word) + 1) // _LETTERS_PER_ERROR
    distances = {name: _distance(word, name) for name in names if abs(len(name) - len(word)) <= max_distance}
    misspelled = sorted((name for name in distances if distances[name] <= max_distance), key=lambda n: distances[n])
    prefixes = {name: _common_prefix(word, name) for name in names}
    enough = {name: max(_MIN_PREFIX, _MIN_PREFIX_SHARE * min(len(word), len(name))) for name in names}
    begun = sorted((name for name in names if prefixes[name] >= enough[name]), key=lambda n: -prefixes[n])
    return [*misspelled, *begun]


def _common_prefix(first: str, second: str) -> int:
    """The number of letters with which both words begin."""
    differing = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differing, min(len(first), len(second)))


def _distance(first: str, second: str) -> int:
    """The number of insertions, deletions, replacements and swaps of neighbors that turn one word into the other."""
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, start=1):
        rows.append([i])
        for j, other in enumerate(second, start=1):
            changes = [rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (letter != other)]
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                changes.append(rows[i - 2][j - 2] + 1)
            rows[i].append(min(changes))
    return rows[-1][-1]


def _bare(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
