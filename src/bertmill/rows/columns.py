"""The columns of the fields `text`, `pair`, `label` and `choices`: given, or recognized by common names.

The setting `columns` is a list such as `text=premise,pair=hypothesis,label=gold`. Only `text` is required.

- Values are header names, or keys of records. If all values are numbers, the table has no header and columns are
  numbered from 1: `text=4,label=2`.
- Choices in several columns are joined with plus signs: `choices=a+b+c`. A single column of choices holds a list.

The setting `preset` selects the columns of a known dataset. Without either setting, common column names are looked up
in the header or in the keys of the first record, ignoring case and surrounding spaces:

- A pair of names takes precedence over a single name.
- An ambiguous match (`text` and `review`, `label` and `score`) is not used.
- If there are two columns and one is a known label, the other one is the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bertmill.config.commands import RowSettings
from bertmill.config.notation import setting
from bertmill.config.reading import unknown_name
from bertmill.errors import UsageError

_KEYS = ("text", "pair", "label", "choices")

# Common column names of datasets, in lower case.
PAIR_NAMES = (
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
TEXT_NAMES = (
    *("text", "sentence", "sms", "review", "content", "comment", "message", "tweet", "utterance", "document", "body"),
    *("sentence1", "premise", "question", "context"),
)
LABEL_NAMES = (
    *("label", "labels", "gold_label", "gold", "class", "category", "sentiment", "intent", "target"),
    *("score", "similarity", "quality", "is_duplicate", "answer"),
)
LIST_NAMES = ("choices", "options", "endings", "candidates")
_ONE_CHOICE = re.compile(r"(choice|option|ending)[ _-]?([0-9]|[a-h])")
_KNOWN = {name for pair in PAIR_NAMES for name in pair} | set(TEXT_NAMES) | set(LABEL_NAMES) | set(LIST_NAMES)


@dataclass(frozen=True)
class Columns:
    """The column of each field, by name, or by number ("1", "2", …) in a table without a header."""

    text: str
    pair: str | None = None
    label: str | None = None
    choices: tuple[str, ...] = ()  # one column that holds a list, or one column per choice
    has_header: bool = True

    @property
    def names(self) -> list[str]:
        """The names of all columns in use."""
        return [name for name in (self.text, self.pair, self.label, *self.choices) if name is not None]

    @property
    def setting(self) -> str:
        """The value of the setting `columns`."""
        named = {"text": self.text, "pair": self.pair, "label": self.label, "choices": "+".join(self.choices) or None}
        return ",".join(f"{field}={name}" for field, name in named.items() if name is not None)

    def for_rows(self, *, labeled: bool) -> Columns:
        """These columns, without the label if labels are not read."""
        return self if labeled else replace(self, label=None)

    def has_fields_of(self, other: Columns) -> bool:
        """Whether both have a pair and choices, or neither does."""
        return (self.pair is None, not self.choices) == (other.pair is None, not other.choices)


PRESETS = {
    "sst2": Columns("sentence", label="label"),
    "cola": Columns("4", label="2", has_header=False),
    "mrpc": Columns("#1 String", "#2 String", "Quality"),
    "rte": Columns("sentence1", "sentence2", "label"),
    "wnli": Columns("sentence1", "sentence2", "label"),
    "stsb": Columns("sentence1", "sentence2", "score"),
    "qnli": Columns("question", "sentence", "label"),
    "mnli": Columns("sentence1", "sentence2", "gold_label"),
    "qqp": Columns("question1", "question2", "is_duplicate"),
    "swag": Columns("sent1", "sent2", "label", ("ending0", "ending1", "ending2", "ending3")),
}
PRESET_METRICS = {"cola": "matthews"}  # where the usual metric is not the task's default


def given_columns(settings: RowSettings) -> Columns | None:
    """Return the columns selected by the `columns` or `preset` setting, or None."""
    if settings.preset is None:
        return None if settings.columns is None else parse_columns(settings.columns)
    if settings.columns is not None:
        raise UsageError("`columns` and `preset` cannot be used together")
    if settings.preset not in PRESETS:
        raise unknown_name("preset", settings.preset, list(PRESETS))
    return PRESETS[settings.preset]


def parse_columns(text: str) -> Columns:
    """Parse a setting such as `text=premise,pair=hypothesis,label=gold`."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or key not in _KEYS or key in found or not name:
            what = f"{setting('columns', text)} is invalid at {part.strip()!r}"
            raise UsageError(what, remedy=f"write KEY=COLUMN,… with each of {', '.join(_KEYS)} at most once")
        found[key] = name
    if "text" not in found:
        raise UsageError(f"{setting('columns', text)} does not name a text", remedy="add text=COLUMN")
    choices = tuple(name.strip() for name in found["choices"].split("+")) if "choices" in found else ()
    columns = Columns(found["text"], found.get("pair"), found.get("label"), choices)
    if len(set(columns.names)) < len(columns.names) or "" in columns.names:
        what = f"{setting('columns', text)} repeats a column or has an empty name"
        raise UsageError(what, remedy="name each column once")
    are_numbers = all(name.isdecimal() for name in columns.names)
    if are_numbers and "0" in columns.names:
        raise UsageError(f"{setting('columns', text)} is invalid: column numbers start at 1")
    return replace(columns, has_header=not are_numbers)


def recognize_columns(names: Sequence[str], lists: Collection[str] = (), labeled: bool = False) -> Columns | None:
    """Find the columns by their common names. Returns None if the text, or a required label, cannot be recognized.

    `lists` are the columns that hold lists of values.
    """

    def only_one(known: Collection[str], among: Sequence[str] = names) -> str | None:
        found = [name for name in among if plain_name(name) in known]
        return found[0] if len(found) == 1 else None

    pairs = [pair for pair in PAIR_NAMES if set(map(plain_name, names)) >= set(pair)]
    text, pair = map(only_one, zip(pairs[0])) if len(pairs) == 1 else (None, None)
    text = text if pairs else only_one(TEXT_NAMES)
    label = only_one(LABEL_NAMES)
    if text is None and label is not None and len(names) == 2:
        text = names[1 - names.index(label)]
    if text is None or (labeled and label is None):
        return None
    choices = only_one(LIST_NAMES, [name for name in names if name in lists])
    several = tuple(name for name in names if _ONE_CHOICE.fullmatch(plain_name(name)))  # in their order in the file
    return Columns(text, pair, label, (choices,) if choices is not None else several if len(several) > 1 else ())


def is_known(name: str) -> bool:
    """Whether this is a common name of a column."""
    return plain_name(name) in _KNOWN


def plain_name(name: str) -> str:
    """The name as common names are written: in lower case, without surrounding spaces."""
    return name.strip().casefold()
