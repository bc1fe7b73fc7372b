"""Names by which data sets call their columns, and what can be told from them.

Names are compared without case and without blanks around them. A pair of names counts before a single one. Where two
answers are possible (`text` and `review`, `label` and `score`), there is none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

_PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("text", "pair"),
    ("text", "text_pair"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
    ("sent1", "sent2"),
    ("context", "question"),
    ("passage", "question"),
    ("article", "question"),
)
_TEXTS = (
    *("text", "sentence", "sms", "review", "content", "comment", "message", "tweet", "utterance", "document", "body"),
    *("sentence1", "premise", "question", "context"),
)
_LABELS = (
    *("label", "labels", "gold_label", "gold", "class", "category", "sentiment", "intent", "target"),
    *("score", "similarity", "quality", "is_duplicate", "answer"),
)
_LISTS_OF_CHOICES = ("choices", "options", "endings", "candidates")
_ONE_CHOICE = re.compile(r"(choice|option|ending)[ _-]?([0-9]|[a-h])")
_KNOWN = {name for pair in _PAIRS for name in pair} | set(_TEXTS) | set(_LABELS) | set(_LISTS_OF_CHOICES)


class KnownNames(NamedTuple):
    """The columns that could be told, as they are written in the file."""

    text: str | None
    pair: str | None
    label: str | None
    choices: tuple[str, ...]


def find_known_names(names: Sequence[str], lists: Collection[str] = ()) -> KnownNames:
    """What `names` are for, as far as they tell. `lists` are those that hold lists of values."""

    def only_one(known: Sequence[str], among: Sequence[str] = names) -> str | None:
        found = [name for name in among if name.strip().casefold() in known]
        return found[0] if len(found) == 1 else None

    written = {name.strip().casefold() for name in names}
    pairs = [pair for pair in _PAIRS if written >= set(pair)]
    text, pair = (only_one(pairs[0][:1]), only_one(pairs[0][1:])) if len(pairs) == 1 else (None, None)
    choices = only_one(_LISTS_OF_CHOICES, [name for name in names if name in lists])
    return KnownNames(
        text=text if pairs else only_one(_TEXTS),
        pair=pair,
        label=only_one(_LABELS),
        choices=_columns_of_choices(names) if choices is None else (choices,),
    )


def is_known_name(cell: str) -> bool:
    return cell.strip().casefold() in _KNOWN


def _columns_of_choices(names: Sequence[str]) -> tuple[str, ...]:
    """Columns like ending0, ending1, … in their order in the file; fewer than two are none."""
    found = tuple(name for name in names if _ONE_CHOICE.fullmatch(name.strip().casefold()))
    return found if len(found) > 1 else ()
