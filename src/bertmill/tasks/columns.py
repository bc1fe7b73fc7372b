"""Which column of a file is the text, its pair, the label, the choices: told by the user, by a preset, or guessed.

`--columns` is a list like `text=premise,pair=hypothesis,label=gold`: the keys are text, pair, label and choices, `text`
must be there. Values are names out of the header (keys of JSON lines), or, if all of them are numbers, columns of a
table without header, counted from 1: `text=4,label=2`. Several columns of choices are joined by plus signs,
`choices=a+b+c`; one column of choices holds a list (JSON lines, parquet). A name with a comma, or a choice's with a
plus, cannot be written here: rename that column.

Without it, the names that data sets use are looked for, in the header or in the keys of the first record
(`column_names.py`); beside a known label, the only other column is the text. A table of two columns without such names
is taken as it is, the first line too, where one column looks like labels and the other does not: short values, at most
one distinct value per four rows among the first thousand, and the first row's value comes again (else it may be a
header). A table of one column holds texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from types import MappingProxyType

from bertmill.errors import DataError, UsageError
from bertmill.tasks.column_names import KnownNames, find_known_names, is_known_name
from bertmill.tasks.raw_rows import BadRowError, RawRow, shortened
from bertmill.tasks.rows import header_names, name_columns

_HEAD_ROWS = 1000
_MAX_LABEL_CHARACTERS = 40
_ROWS_PER_LABEL = 4
_KEYS = ("text", "pair", "label", "choices")


@dataclass(frozen=True)
class Columns:
    """What the columns are for, by name, or by number ("1", "2", …) in a table without header."""

    text: str
    pair: str | None = None
    label: str | None = None
    choices: tuple[str, ...] = ()  # one column that holds a list, or one column per choice
    has_header: bool = True
    not_read: str | None = None  # a column that looks like labels, where none are wanted

    def all(self) -> list[str]:
        """Every column that is used."""
        return [name for name in (self.text, self.pair, self.label, *self.choices) if name is not None]


PRESETS: Mapping[str, Columns] = MappingProxyType(
    {
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
)


def parse_columns(text: str) -> Columns:
    """What `--columns` says."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, name = (word.strip() for word in part.partition("="))
        if not equals or key not in _KEYS or key in found or not name:
            what = f"--columns {text} cannot be read at {part.strip()!r}"
            raise UsageError(what, remedy=f"write KEY=COLUMN,… with each of {', '.join(_KEYS)} at most once")
        found[key] = name
    if "text" not in found:
        raise UsageError(f"--columns {text} names no text", remedy="add text=COLUMN")
    choices = tuple(name.strip() for name in found["choices"].split("+")) if "choices" in found else ()
    columns = Columns(found["text"], found.get("pair"), found.get("label"), choices)
    names = columns.all()
    if len(set(names)) < len(names) or "" in names:
        raise UsageError(f"--columns {text} uses a column twice, or an empty name", remedy="name each column once")
    are_numbers = all(name.isdecimal() for name in names)
    if are_numbers and "0" in names:
        raise UsageError(f"--columns {text}: there is no column 0", remedy="count columns from 1 on")
    return replace(columns, has_header=not are_numbers)


def told_columns(columns: str | None, preset: str | None) -> Columns | None:
    """What the user says about the columns, if anything."""
    if preset is None:
        return None if columns is None else parse_columns(columns)
    if columns is not None:
        raise UsageError("--columns and --preset say the same thing", remedy="give one of them")
    if preset not in PRESETS:
        raise UsageError(f"there is no preset {preset!r}", remedy=f"choose one of {', '.join(PRESETS)}")
    return PRESETS[preset]


def choose_columns(
    rows: Iterator[RawRow], told: Columns | None, *, need_label: bool
) -> tuple[Columns, Iterator[RawRow]]:
    """The columns of a file and its rows, now by name where they have names, without the header.

    Without need of labels there is no column of them, whatever the file has.
    """
    head = _up_to_a_good_row(rows)
    if not head or head[-1].problem is not None:  # nothing to look at; the rows' problems will be told one by one
        return told or Columns("text"), chain(head, rows)
    first = head[-1]
    columns = told or _guess(head, rows, need_label=need_label)
    if not need_label:
        was_guessed = told is None and not columns.has_header
        columns = replace(columns, label=None, not_read=columns.label if was_guessed else None)
    elif columns.label is None:
        raise UsageError("--columns names no label", remedy="add label=COLUMN")
    rows = chain(head, rows)
    if first.is_numbered:
        _check_table(columns, first)
        _refuse_header(told or columns, first)
        rows = name_columns(rows) if columns.has_header else rows
    elif told is None and columns.pair is None:
        rows = _without_other_pairs(rows)
    return columns, rows


def _without_other_pairs(rows: Iterator[RawRow]) -> Iterator[RawRow]:
    """Records; one with a pair, which the first does not have, is a bad row: its pair would be lost silently."""
    without_pair: set[tuple[str, ...]] = set()
    for row in rows:
        names = tuple(row.fields)
        if names not in without_pair:
            pair = find_known_names(names).pair
            if pair is None:
                without_pair.add(names)
            else:
                what = f"has a pair of texts, the second in {pair!r}, where the first row has one text"
                remedy = "give every row the same columns, or say with --columns which count"
                row = row._replace(problem=BadRowError("pair only in some rows", what, remedy))
        yield row


def _guess(head: list[RawRow], rows: Iterator[RawRow], *, need_label: bool) -> Columns:
    """The columns by the rules above; more of `rows` goes into `head` only if the first row is not enough."""
    first = head[-1]
    names = header_names(first) if first.is_numbered else list(first.fields)
    known = find_known_names(names, _names_of_lists(first))
    columns = _from_known_names(known, names, need_label)
    if first.is_numbered and (known.text is None or known.label is None):
        if len(names) > 1:
            head += islice(rows, _HEAD_ROWS - len(head))
        values = [list(row.fields.values()) for row in head if row.problem is None]
        if columns is None or _known_names_come_again(values):
            columns = _from_values(values, need_label)
    if columns is None:
        raise _unsure(first, need_label)
    return columns


def _up_to_a_good_row(rows: Iterator[RawRow]) -> list[RawRow]:
    head: list[RawRow] = []
    for row in rows:
        head.append(row)
        if row.problem is None or len(head) == _HEAD_ROWS:
            break
    return head


def _names_of_lists(row: RawRow) -> list[str]:
    return [name for name, value in row.fields.items() if isinstance(value, list)]


def _from_known_names(known: KnownNames, names: Sequence[str], need_label: bool) -> Columns | None:
    text = known.text
    if text is None and known.label is not None and len(names) == 2:
        text = names[1 - names.index(known.label)]
    if text is None or (need_label and known.label is None):
        return None
    return Columns(text, known.pair, known.label, known.choices)


def _known_names_come_again(rows: Sequence[Sequence[str]]) -> bool:
    """Whether what looks like a header's cell is one of several labels: `question`, `answer`."""
    return any(is_known_name(cell) and cell in others for cell, *others in zip(*rows, strict=True))


def _from_values(rows: Sequence[Sequence[str]], need_label: bool) -> Columns | None:
    if len(rows[0]) == 1 and not need_label:
        return Columns("1", has_header=False)
    if len(rows[0]) != 2:
        return None
    looks = [_looks_like_labels([row[column] for row in rows]) for column in (0, 1)]
    if looks[0] == looks[1]:
        return None
    text, label = ("2", "1") if looks[0] else ("1", "2")
    return Columns(text, label=label, has_header=False)


def _looks_like_labels(values: Sequence[str]) -> bool:
    distinct = set(values)
    return (
        len(distinct) <= max(2, len(values) // _ROWS_PER_LABEL)
        and max(map(len, distinct)) <= _MAX_LABEL_CHARACTERS
        and values[0] in values[1:]
    )


def _check_table(columns: Columns, first: RawRow) -> None:
    """DataError if the table does not have these columns."""
    names = header_names(first) if columns.has_header else list(first.fields)
    for name in columns.all():
        if names.count(name) != 1:
            how_many = "no column" if name not in names else "several columns"
            raise DataError(
                f"has {how_many} {name!r}; it has {_shown(first)}",
                where=first.place,
                remedy="say with --columns what the columns are",
            )


def _refuse_header(columns: Columns, first: RawRow) -> None:
    """DataError if a table that should have no header begins with one; of the label too where that is not wanted."""
    cells = [first.fields[name] for name in columns.all() if name in first.fields] if not columns.has_header else []
    if len(cells) > 1 and all(map(is_known_name, cells)):
        raise DataError(
            f"looks like a header: {', '.join(cells)}",
            where=first.place,
            remedy="use the names instead of numbers in --columns",
        )


def _unsure(first: RawRow, need_label: bool) -> DataError:
    names = sorted(first.fields, key=lambda name: len(str(first.fields[name])))  # texts are longer than labels
    example = f"text={names[-1]}" + (f",label={names[0]}" if need_label and len(names) > 1 else "")
    advice = " (numbers if there is no header, else names)" if first.is_numbered else ""
    wanted = "the text and which the label" if need_label else "the text"
    remedy = f"say it, for example --columns {example}{advice}"
    if first.is_numbered and len(names) == 1:
        remedy = "separate columns by commas in a .csv, by tabs elsewhere"
    return DataError(f"cannot tell which column is {wanted}: {_shown(first)}", where=first.place, remedy=remedy)


def _shown(row: RawRow) -> str:
    return ", ".join(f"{name} = {shortened(str(value), 30)!r}" for name, value in row.fields.items())
