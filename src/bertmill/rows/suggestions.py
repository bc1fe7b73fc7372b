"""Suggest columns for a file whose columns are not recognized, from its first rows.

- A first row is a header if it has only short names, none of which occurs again in its column, and one of them is a
  common name, or stands above numbers, repeated values or texts.
- Columns of texts have several words per value; a column of labels has short values that repeat, or numbers.
- Common names take precedence over values. Ambiguous columns are left as the placeholder COLUMN. Two columns of texts
  are suggested as a pair.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

from bertmill.config.notation import setting
from bertmill.rows.columns import (
    LABEL_NAMES,
    PAIR_NAMES,
    TEXT_NAMES,
    Columns,
    is_known,
    plain_name,
)
from bertmill.rows.labels import as_number
from bertmill.text.printable import one_line

Kind = Literal["text", "label", "list", "other"]

PLACEHOLDER = "COLUMN"  # stands for a column that is not suggested
RENAME_REMEDY = "rename the columns: in `columns`, names cannot contain commas, and cannot all be numbers"
_MAX_LISTED = 20
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\s{_NO_SPACES}]+")  # in scripts without spaces, each character
_NUMBERED = re.compile(r"(.*?)[ _-]?(\d|[a-hA-H])")
_ID = re.compile(r"(?:^|[ _-])(?:id|idx|index|guid|uid|uuid)$", re.IGNORECASE)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b.*")
_WORDS_OF_TEXT = 3
_WORDS_OF_LABEL = 8  # if each occurs often
_CHARACTERS_OF_LABEL = 30
_FEW_VALUES = 4  # too few to repeat


class RequiredFields(NamedTuple):
    """What is read in addition to texts."""

    label: bool
    choices: bool = False


@dataclass(frozen=True)
class Sample:
    """The first rows of a file: the values of each column by its name, or by its number if there is no header.

    Columns without a name, and columns with the same name, are left out, because `columns` cannot select them.
    """

    values: Mapping[str, Sequence[Any]]
    has_header: bool = True
    repeated: frozenset[str] = frozenset()  # names of several columns

    @classmethod
    def of_table(cls, first: Sequence[str], others: Sequence[Sequence[str]], *, has_header: bool) -> Sample:
        """The sample of a table whose first row may be a header."""
        rows = others if has_header else [first, *others]
        names = [cell.strip() for cell in first] if has_header else [str(number + 1) for number in range(len(first))]
        values = {name: _column(rows, number) for number, name in enumerate(names) if name and names.count(name) == 1}
        return cls(values, has_header, frozenset(name for name in names if name and names.count(name) > 1))

    @classmethod
    def of_records(cls, records: Sequence[Mapping[str, Any]]) -> Sample:
        """The sample of records, with the keys of all of them."""
        names = dict.fromkeys(name for fields in records for name in fields)
        return cls({name: [fields[name] for fields in records if name in fields] for name in names})

    def __str__(self) -> str:
        """The columns, with a value each."""
        listed = [
            f"{one_line(name)} = {one_line(str(next(iter(values), '')), 30)!r}" for name, values in self.values.items()
        ]
        return ", ".join(listed[:_MAX_LISTED] + [f"and {len(listed) - _MAX_LISTED} more"] * (len(listed) > _MAX_LISTED))

    def remedy(self, required: RequiredFields, known: Columns | None = None, *, is_pair: bool = False) -> str:
        """How to set `columns` for this file. If only choices are missing, pass the `known` columns.

        Two texts may be a pair, or only one of them is meant, unless their names are known or `is_pair` is true.
        """
        labels = self._labels() if required.label else []
        label = labels[0] if len(labels) == 1 else PLACEHOLDER
        texts = [name for name in self._texts() if name != label]
        named = self._with_choices(known, texts) if required.choices else self._pair(texts)
        if required.label and not known:
            named = replace(named, label=label)
        if self.repeated and PLACEHOLDER in named.names:
            return f"rename columns that have the same name: {', '.join(map(one_line, sorted(self.repeated)))}"
        if not self._can_be_set(named):
            return RENAME_REMEDY
        candidates = {
            "texts": texts if PLACEHOLDER in (named.text, *named.choices) else [],
            "labels": labels if named.label == PLACEHOLDER else [],
        }
        listed = [f"{' or '.join(map(one_line, names))} may hold {kind}" for kind, names in candidates.items() if names]
        is_pair = is_pair or known is not None or self._known_pair() is not None
        alternative = "" if is_pair or named.pair in (None, PLACEHOLDER) else " (or only one of them)"
        return "; ".join([f"set {setting('columns', named.setting)}{alternative}", *listed])

    def unread_texts(self, columns: Columns) -> list[str]:
        """The columns of texts that are not among `columns`."""
        return [name for name in self.values if name not in columns.names and self._kind(name) == "text"]

    def _pair(self, texts: list[str]) -> Columns:
        """The columns of a text, or of a pair."""
        if known := self._known_pair():
            return Columns(*known)
        if len(texts) in (1, 2):
            return Columns(texts[0], texts[1] if len(texts) == 2 else None)
        return Columns(PLACEHOLDER, PLACEHOLDER if texts else None)

    def _known_pair(self) -> tuple[str, str] | None:
        """The columns with the names of a pair, if there is only one such pair."""
        by_plain_name = {plain_name(name): name for name in self.values}
        pairs = [pair for pair in PAIR_NAMES if by_plain_name.keys() >= set(pair)]
        return (by_plain_name[pairs[0][0]], by_plain_name[pairs[0][1]]) if len(pairs) == 1 else None

    def _with_choices(self, known: Columns | None, texts: list[str]) -> Columns:
        """The columns of choices: a list, or columns with the same name and a number or letter."""
        lists = [name for name in self.values if self._kind(name) == "list"]
        numbered = defaultdict(list)
        for name in texts:
            if (found := _NUMBERED.fullmatch(name)) and not (known and name in known.names):
                numbered[found[1].casefold()].append(name)
        groups = [lists] if len(lists) == 1 else [group for group in numbered.values() if len(group) > 1]
        choices = groups[0] if len(groups) == 1 else [PLACEHOLDER, PLACEHOLDER]
        others = [name for name in texts if name not in choices]
        columns = known or (self._pair(others) if len(groups) == 1 else Columns(PLACEHOLDER))
        return replace(columns, choices=tuple(choices))

    def _can_be_set(self, columns: Columns) -> bool:
        """Whether the setting `columns` can express them."""
        is_open = PLACEHOLDER in columns.names
        are_numbers = not self.has_header if is_open else all(map(str.isdecimal, columns.names))
        has_separator = any("," in name for name in columns.names) or any("+" in name for name in columns.choices)
        return not has_separator and are_numbers != self.has_header

    def _texts(self) -> list[str]:
        texts = [name for name in self.values if self._kind(name) == "text" or plain_name(name) in TEXT_NAMES]
        others = [name for name in self.values if self._kind(name) == "other" and not _is_id(name)]
        others = [name for name in others if not _are_numbers(_strings(self.values[name]))]
        return texts or sorted(others, key=lambda name: -fmean(map(len, _strings(self.values[name]))))[:1]

    def _labels(self) -> list[str]:
        known = [name for name in self.values if plain_name(name) in LABEL_NAMES]
        short = [name for name in self.values if self._kind(name) == "label" and plain_name(name) not in TEXT_NAMES]
        return known or short

    def _kind(self, name: str) -> Kind:
        values = [value for value in self.values[name] if value is not None]
        if values and all(isinstance(value, list) for value in values):
            return "list"
        strings = _strings(values)
        return "other" if not strings or _is_id(name) else kind_of(strings)


def looks_like_header(first: Sequence[str], others: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a table is a header rather than a row like the `others`."""
    cells = [cell.strip() for cell in first]
    columns = [_strings(_column(others, number)) for number in range(len(cells))]
    if cells in ([str(number + start) for number in range(len(cells))] for start in (0, 1)):  # pandas
        return any(values and kind_of(values) == "text" for values in columns)
    if not all(is_name(cell) for cell in cells if cell):
        return False
    has_evidence = False
    for cell, values in zip(cells, columns, strict=True):
        if not cell or not values:
            has_evidence |= is_known(cell)
        elif cell in values:
            return False
        else:
            are_texts = kind_of(values) == "text" and 2 * _num_words([cell]) <= _num_words(values)
            are_repeated = len(values) > 1 and 2 * len(set(values)) <= len(values)
            has_evidence |= is_known(cell) or _are_numbers(values) or are_texts or are_repeated
    return has_evidence


def is_name(cell: str) -> bool:
    """Whether a cell may be the name of a column: short, not a number, and without the punctuation of texts."""
    return (
        len(cell) <= 40
        and len(cell.split()) <= 4
        and math.isnan(as_number(cell))
        and not re.search(r"[.!?。！？,;|]$|[|;,]", cell)
    )


def kind_of(values: Sequence[str]) -> Kind:
    """Classify a column by its values, which are not empty."""
    num_words = _num_words(values)
    num_different = len(set(values))
    if (num_different == 1 and len(values) > 1) or all(map(_DATE.fullmatch, values)):
        return "other"
    if _are_numbers(values):
        are_labels = 2 * num_different <= len(values) or any("." in value for value in values)
        return "label" if are_labels else "other"
    are_short = num_words < _WORDS_OF_TEXT and fmean(map(len, values)) <= _CHARACTERS_OF_LABEL
    if are_short and (2 * num_different <= len(values) or len(values) < _FEW_VALUES):
        return "label"
    if num_words < _WORDS_OF_LABEL and 10 * num_different <= len(values):
        return "label"
    return "text" if num_words >= _WORDS_OF_TEXT else "other"


def _num_words(values: Sequence[str]) -> float:
    return fmean(len(_WORD.findall(value)) for value in values)


def _is_id(name: str) -> bool:
    return _ID.search(name) is not None


def _are_numbers(values: Sequence[str]) -> bool:
    return all(math.isfinite(as_number(value)) for value in values)


def _strings(values: Sequence[Any]) -> list[str]:
    """The values as text, without empty ones."""
    given = (str(value).strip() for value in values if isinstance(value, str | int | float))
    return [value for value in given if value]


def _column(rows: Sequence[Sequence[str]], number: int) -> list[str]:
    return [row[number] for row in rows if number < len(row)]
