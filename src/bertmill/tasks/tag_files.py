"""Sentences with a tag for every word, out of columns or JSON → labelled rows whose spans are the words.

    columns    a word per line with its tag in the last column, between tabs or blanks; an empty line ends a sentence;
               -DOCSTART- lines and, between tabs, comments (# …) are left out; --columns text=1,label=4 names others
    records    {"words": […], "tags": […]}, or {"text": …, "entities": [{"start": …, "end": …, "label": …}, …]} with
               characters of the text; .jsonl, .json or .parquet; --columns text=tokens,label=ner_tags names others
    lines      to be tagged, one text per line: a .txt, or standard input; both may have records
Where a text comes without words, they are found (text/words.py), and cut where an entity begins or ends inside one. Of
words without a text, the text is the words with spaces between; none beside Chinese characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, NamedTuple

from bertmill.errors import DataError, UsageError
from bertmill.tasks.columns import Columns, parse_columns
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import IDS, BadRowError, RawRow, require_printable
from bertmill.tasks.rows import RECORDS, read_rows, recognise_records, record_rows
from bertmill.tasks.tag_schemes import Entity, iob2
from bertmill.text.files import STANDARD_INPUT, Line, format_suffix, read_file
from bertmill.text.repair import Repairs
from bertmill.text.words import Span, find_words, join_words

_DOCUMENT_START = "-DOCSTART-"
_WORD_LISTS = ("words", "tokens", "text")
_TAG_LISTS = ("tags", "ner_tags", "pos_tags", "entities", "spans", "labels", "label")
_NO_WORD = re.compile(r"\d+(-|\.)\d+")  # how CoNLL-U numbers several words written as one, and words left out
_KINDS = ("label", "type", "kind", "tag", "entity_type")


def read_tag_rows(file: str, columns: str | None, with_label: bool, repairs: Repairs) -> Iterator[RawRow]:
    """The sentences of a file: the fields are `words` (or `text`) and, if wanted, `tags`."""
    told = None if columns is None else parse_columns(columns)
    if told is not None and (told.pair or told.choices or (with_label and told.label is None)):
        raise UsageError(f"--columns {columns} does not say where words and tags are", remedy="name text and label")
    suffix = format_suffix(file)
    if suffix in RECORDS:
        return (_named(row, told, with_label) for row in read_rows(file, repairs=repairs))
    lines = read_file(file, repairs=repairs)
    are_texts = told is None and not with_label and (suffix == ".txt" or file == STANDARD_INPUT)
    if are_texts or file == STANDARD_INPUT:
        are_records, lines = recognise_records(lines)
        if are_records:
            return (_named(row, told, with_label) for row in record_rows(lines, repairs))
        if are_texts:
            return (RawRow(line.place, {"words": line.text}) for line in lines if line.text)
    return _column_rows(lines, told, with_label, file)


def tagged(raw: RawRow) -> LabelledRow:
    """What a row of `read_tag_rows` says; BadRowError if that is nothing sensible."""
    words, tags = raw.fields["words"], raw.fields.get("tags")
    if isinstance(words, str):
        if isinstance(tags, list) and any(isinstance(tag, str) for tag in tags):
            raise BadRowError("no words", "has tags, but no list of words", "write the words as a list of texts")
        return _with_found_words(raw.place, words, tags)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise BadRowError("no words", "has no list of words", "write the words of a sentence as a list of texts")
    if "" in words:
        raise BadRowError("empty word", f"has an empty word, number {words.index('') + 1} of {len(words)}")
    text, spans = join_words(words)
    if tags is None:
        return LabelledRow(raw.place, (text,), spans=tuple(spans))
    if not isinstance(tags, list) or not all(isinstance(tag, str | int) for tag in tags):
        raise BadRowError("no tags", "has no list of tags", "write a tag for every word, as a list of texts")
    if len(tags) != len(words):
        raise BadRowError("misaligned", f"has {len(words)} words and {len(tags)} tags")
    if "" in tags:
        raise BadRowError("empty tag", f"has no tag for the word {words[tags.index('')]!r}")
    return LabelledRow(raw.place, (text,), tuple(require_printable(str(tag)) for tag in tags), spans=tuple(spans))


def _named(raw: RawRow, told: Columns | None, with_label: bool) -> RawRow:
    """The fields that count, by the names they have here."""
    if raw.problem is not None:
        return raw
    names: dict[str, tuple[str, ...]] = {"words": (told.text,) if told else _WORD_LISTS}
    if with_label:
        names["tags"] = (told.label or "",) if told else _TAG_LISTS
    fields = {name: value for name, value in raw.fields.items() if name in IDS}
    for meaning, known in names.items():
        found = next((name for name in known if raw.fields.get(name) is not None), None)
        if found is None:
            what = f"has no {meaning} (it has {', '.join(raw.fields) or 'nothing'})"
            problem = BadRowError("missing column", what, f"name them {known[0]!r}, or say --columns")
            return raw._replace(problem=problem)
        fields[meaning] = raw.fields[found]
    return raw._replace(fields=fields)


def _column_rows(lines: Iterable[Line], told: Columns | None, with_label: bool, file: str) -> Iterator[RawRow]:
    if told is not None and told.has_header:
        raise UsageError("columns of words have no names", where=file, remedy="say --columns text=1,label=2")
    num_columns = 0
    for sentence in _sentences(lines):
        if told is not None and told.text != "1":
            sentence = [row for row in sentence if not _NO_WORD.fullmatch(row.values[0])]
        if not sentence:
            continue
        if not num_columns:
            num_columns = len(sentence[0].values)
            _require_columns(num_columns, told, with_label, sentence[0].line)
        wrong = next((row for row in sentence if len(row.values) != num_columns), None)
        if wrong is not None:
            what = f"has {len(wrong.values)} columns, where the first line has {num_columns}"
            yield RawRow(wrong.line.place, {}, problem=BadRowError("another number of columns", what))
            continue
        word, tag = (0, -1) if told is None else (int(told.text) - 1, int(told.label or 1) - 1)
        empty = next((row for row in sentence if not row.values[word] or (with_label and not row.values[tag])), None)
        if empty is not None:
            what = "tag" if empty.values[word] else "word"
            yield RawRow(empty.line.place, {}, problem=BadRowError(f"empty {what}", f"has an empty {what}"))
            continue
        tags = {"tags": [row.values[tag] for row in sentence]} if with_label else {}
        yield RawRow(sentence[0].line.place, {"words": [row.values[word] for row in sentence], **tags})


class _WordLine(NamedTuple):
    line: Line
    values: list[str]


def _sentences(lines: Iterable[Line]) -> Iterator[list[_WordLine]]:
    """The lines between empty ones, as columns: between tabs if the first word's line has any, else between blanks."""
    separator, lines = _separator(line for line in lines if _DOCUMENT_START not in line.text.split())
    sentence: list[_WordLine] = []
    for line in lines:
        if not line.text.strip(" \t"):
            if sentence:
                yield sentence
            sentence = []
        elif not (separator == "\t" and _may_be_comment(line)):
            values = line.text.split(separator)
            sentence.append(_WordLine(line, values if separator == "\t" else list(filter(None, values))))
    if sentence:
        yield sentence


def _separator(lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    head: list[Line] = []
    for line in lines:
        head.append(line)
        if line.text.strip(" \t") and not _may_be_comment(line):
            break
    return "\t" if head and "\t" in head[-1].text else " ", chain(head, lines)


def _may_be_comment(line: Line) -> bool:
    """Whether it is one where columns are between tabs; the word # has a tab after it."""
    return line.text.startswith("# ") or (line.text.startswith("#") and "\t" not in line.text)


def _require_columns(num_columns: int, told: Columns | None, with_label: bool, line: Line) -> None:
    last = 1 + with_label if told is None else max(int(told.text), int(told.label or 1) if with_label else 1)
    if num_columns < last:
        raise DataError(
            f"has {num_columns} column{'s' * (num_columns != 1)}, and column {last} is wanted",
            where=line.place,
            remedy="say with --columns where words and tags are, counted from 1",
        )


def _with_found_words(place: str, text: str, spans: Any) -> LabelledRow:
    if not text.strip():
        raise BadRowError("empty text", "has an empty text")
    if spans is None:
        return LabelledRow(place, (text,), spans=tuple(find_words(text)))
    if not isinstance(spans, list):
        raise BadRowError("no entities", "has no list of entities", "write them as {start, end, label}")
    found = sorted(_span(each, len(text)) for each in spans)
    for (start, end, kind), (next_start, _, next_kind) in pairwise(found):
        if next_start < end:
            what = f"has entities that overlap: {kind} {start} to {end}, and {next_kind} from {next_start} on"
            raise BadRowError("entities overlap", what)
    words = _cut(find_words(text), {border for start, end, _ in found for border in (start, end)})
    entities = []
    for start, end, kind in found:
        inside = [number for number, word in enumerate(words) if start <= word[0] and word[1] <= end]
        if not inside:
            raise BadRowError("entity without a word", f"has no word in the entity {kind} {start} to {end}")
        entities.append(Entity(kind, inside[0], inside[-1] + 1))
    return LabelledRow(place, (text,), tuple(iob2(entities, len(words))), spans=tuple(words))


def _span(given: Any, num_characters: int) -> tuple[int, int, str]:
    match given:
        case {"start": int(start), "end": int(end), **others}:
            kind = next((others[name] for name in _KINDS if name in others), None)
        case [int(start), int(end), kind]:
            pass
        case _:
            start = end = -1
            kind = None
    if not isinstance(kind, str) or not kind or isinstance(start, bool) or isinstance(end, bool):
        raise BadRowError("not an entity", f"has an entity without start, end and label: {given!r}")
    if not 0 <= start < end <= num_characters:
        what = f"has the entity {kind} from {start} to {end} in a text of {num_characters} characters"
        raise BadRowError("entity outside of the text", what)
    return start, end, require_printable(kind)


def _cut(words: list[Span], borders: set[int]) -> list[Span]:
    """The words, cut at the borders that lie inside of them."""
    cut: list[Span] = []
    for start, end in words:
        places = [start, *sorted(border for border in borders if start < border < end), end]
        cut += pairwise(places)
    return cut
