"""Read sentences with one tag per word from text files, records or plain lines.

    records    {"words": […], "tags": […]}, or {"text": …, "entities": [{"start": …, "end": …, "label": …}, …]} with
               character offsets, or CLUENER's {"text": …, "label": {"name": {"叶老桂": [[9, 11]]}}}, where 11 is the
               last character; .jsonl, .json or .parquet
    lines      one untagged text per line, for prediction only; .txt files and standard input, unless the first line
               has a tab, which may separate words and tags
    conll, sentences, parallel files: see sentences.py

The setting `columns` selects other columns (`text=1,label=4`) or fields (`text=tokens,label=ner_tags`). A text without
words is split into words (text/words.py), and also where an entity starts or ends inside a word. Words without a text
are joined with spaces, except next to Chinese characters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bertmill.config.notation import setting
from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.columns import Columns, parse_columns
from bertmill.rows.formats import RECORDS, read_records
from bertmill.rows.labels import require_printable
from bertmill.rows.row import Record, Row
from bertmill.rows.source import PARALLEL_FORMAT, RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.tag.schemes import Entity, iob2
from bertmill.tasks.tag.sentences import read_sentences
from bertmill.text.files import STANDARD_INPUT, first_lines, format_suffix
from bertmill.text.printable import counted
from bertmill.text.words import Span, find_words, join_words

_WORD_FIELDS = ("words", "tokens", "text")
_TAG_FIELDS = ("tags", "ner_tags", "pos_tags", "entities", "spans", "labels", "label")
_KIND_FIELDS = ("label", "type", "kind", "tag", "entity_type")


class TagOptions(TaskOptions):
    """Settings that do not apply to `tag`."""

    unused = frozenset(("preset", "quotes", "separator", "truncate"))  # not `tags` and `dev_tags`


@dataclass(frozen=True)
class WordsRow(Row):
    """A text, the character span of each word, and a tag per word if the row is labeled."""

    words: tuple[Span, ...]
    tags: tuple[str, ...] | None = None

    def fields(self) -> dict[str, Any]:
        (text,) = self.texts
        is_enough = tuple(find_words(text)) == self.words
        return {"text": text} if is_enough else {"words": [text[start:end] for start, end in self.words]}


def read_words(file: RowFile, labeled: bool) -> Iterator[WordsRow]:
    """Yield the sentences of a file."""
    columns = _trained_columns(file, labeled)
    if file.settings.columns is not None:
        columns = parse_columns(file.settings.columns)
    if columns is not None and (columns.pair or columns.choices or (labeled and columns.label is None)):
        given = setting("columns", file.settings.columns)
        raise UsageError(f"{given} must name text (the words) and label (the tags), and nothing else")
    return file.rows(_records(file, columns, labeled), lambda record: parse_words(record.fields, record.place))


def _trained_columns(file: RowFile, labeled: bool) -> Columns | None:
    """Return the columns that the model was trained with, for a file of the same kind."""
    has_columns = file.tags is None and _format(file, None, labeled) != "lines"
    return file.trained_columns if file.is_like_trained and has_columns else None


def parse_words(fields: Mapping[str, Any], place: str) -> WordsRow:
    """Return a sentence from its words or text, and its tags or entities if given. Raises BadRowError if invalid."""
    words, tags = fields["words"], fields.get("tags")
    if isinstance(words, str):
        if isinstance(tags, list) and any(isinstance(tag, str) for tag in tags):
            what = "the row has tags, but its words are not a list"
            raise BadRowError("no words", what, "provide the words as a list of strings")
        return _split_text(words, tags, place)
    if not isinstance(words, list | tuple) or not words or not all(isinstance(word, str) for word in words):
        raise BadRowError("no words", "words must be a non-empty list of strings")
    if "" in words:
        raise BadRowError("empty word", f"word {words.index('') + 1} of {len(words)} is empty")
    text, spans = join_words(list(words))
    if tags is None:
        return WordsRow(place, (text,), tuple(spans))
    if not isinstance(tags, list) or not all(isinstance(tag, str | int) for tag in tags):
        raise BadRowError("no tags", "tags must be a list of strings or integers", "provide one tag per word")
    if len(tags) != len(words):
        what = f"the row has {counted(len(words), 'word')} but {counted(len(tags), 'tag')}"
        raise BadRowError("misaligned", what)
    if "" in tags:
        raise BadRowError("empty tag", f"the word {words[tags.index('')]!r} has an empty tag")
    return WordsRow(place, (text,), tuple(spans), tuple(require_printable(str(tag)) for tag in tags))


def _records(file: RowFile, columns: Columns | None, labeled: bool) -> Iterator[Record]:
    """Yield records with the field `words` and, if labeled, `tags`."""
    file_format = _format(file, columns, labeled)
    if file_format in RECORDS:
        return (_named(record, columns, labeled) for record in read_records(file))
    return _untagged_records(file) if file_format == "lines" else read_sentences(file, columns, labeled)


def _untagged_records(file: RowFile) -> Iterator[Record]:
    """Yield a record per line of text. Raises DataError if no format is set and the file may have tags."""
    first, lines = first_lines(file.lines(), 1)
    if file.settings.format is None and first and "\t" in first[0].text:
        remedy = (
            "set `format='conll'` or `format='sentences'` if tabs separate words and tags, or `format='lines'` if each "
            "line is a text"
        )
        raise DataError("the line has a tab", where=first[0].place, remedy=remedy)
    if file.settings.format is None and file.is_like_trained:
        remedy = "if words have tags as in training, set `format='conll'` or `format='sentences'`"
        file.counts.notices.append(f"{file.path}: each line is read as a text; {remedy}")
    return (Record(line.place, {"words": line.text}) for line in lines if line.text)


def _format(file: RowFile, columns: Columns | None, labeled: bool) -> str:
    """Return the format of a file, or `text` if its content decides."""
    given = file.settings.format
    if file.tags is not None:
        file.require_default("columns")
        if file.format in RECORDS or given not in (None, PARALLEL_FORMAT):
            remedy = "provide a text file with one sentence per line"
            raise UsageError(f"`tags` cannot be used with the format {file.format}", where=file.path, remedy=remedy)
    if given is None and file.format not in RECORDS:
        is_text = file.path == STANDARD_INPUT or format_suffix(file.path) == ".txt"
        return "lines" if is_text and not labeled and columns is None else "text"
    file.require_format(*RECORDS, "conll", "sentences", "lines")
    if file.format == "lines" and labeled:
        raise UsageError("the format lines has no tags", where=file.path, remedy="use it only for prediction")
    return file.format


def _named(record: Record, columns: Columns | None, labeled: bool) -> Record:
    """Rename the fields of a record to `words` and `tags`."""
    if record.problem is not None:
        return record
    names: dict[str, tuple[str, ...]] = {"words": (columns.text,) if columns else _WORD_FIELDS}
    if labeled:
        names["tags"] = (columns.label or "",) if columns else _TAG_FIELDS
    fields: dict[str, Any] = {}
    for field, known in names.items():
        found = next((name for name in known if record.fields.get(name) is not None), None)
        if found is None:
            what = f"the row has no {field} (its fields: {', '.join(record.fields) or 'none'})"
            problem = BadRowError("missing column", what, f"name the field {known[0]!r}, or set `columns`")
            return record._replace(problem=problem)
        fields[field] = record.fields[found]
    return record._replace(fields=fields)


def _split_text(text: str, entities: Any, place: str) -> WordsRow:
    """Split a text into words, with tags from its entities if there are any."""
    if not text.strip():
        raise BadRowError("empty text", "the text is empty")
    if entities is None:
        return WordsRow(place, (text,), tuple(find_words(text)))
    if isinstance(entities, dict):
        entities = _grouped_entities(text, entities)
    if not isinstance(entities, list):
        what = "a text without words needs a list of entities"
        raise BadRowError("no entities", what, "provide each entity as {start, end, label}")
    found = sorted(_entity(each, len(text)) for each in entities)
    for (start, end, kind), (next_start, _, next_kind) in pairwise(found):
        if next_start < end:
            what = f"entities overlap: {kind} from {start} to {end}, and {next_kind} from {next_start}"
            raise BadRowError("entities overlap", what)
    words = _cut(find_words(text), {border for start, end, _ in found for border in (start, end)})
    spans = []
    for start, end, kind in found:
        inside = [number for number, word in enumerate(words) if start <= word[0] and word[1] <= end]
        if not inside:
            raise BadRowError("entity without a word", f"the entity {kind} from {start} to {end} contains no word")
        spans.append(Entity(kind, inside[0], inside[-1] + 1))
    return WordsRow(place, (text,), tuple(words), tuple(iob2(spans, len(words))))


def _grouped_entities(text: str, groups: Mapping[str, Any]) -> list[list[Any]]:
    """Return the entities of CLUENER's {kind: {mention: [[first, last], …]}} as [start, end, kind]."""
    return [
        _grouped_entity(text, kind, mention, place)
        for kind, mentions in groups.items()
        for mention, places in (mentions.items() if isinstance(mentions, dict) else [(mentions, None)])
        for place in (places if isinstance(places, list) else [None])
    ]


def _grouped_entity(text: str, kind: str, mention: Any, place: Any) -> list[Any]:
    match place:
        case [int(first), int(last)]:
            if 0 <= first <= last < len(text) and text[first : last + 1] == mention:
                return [first, last + 1, kind]
            what = f"the text from {first} to {last} is not the {kind} {mention!r}"
            raise BadRowError("misplaced entity", what, "count from 0, including the last character")
    what = f"an entity needs its first and last character: {kind} {mention!r}: {place!r}"
    raise BadRowError("not an entity", what)


def _entity(given: Any, num_characters: int) -> tuple[int, int, str]:
    match given:
        case {"start": int(start), "end": int(end), **others}:
            kind = next((others[name] for name in _KIND_FIELDS if name in others), None)
        case [int(start), int(end), kind]:
            pass
        case _:
            start = end = -1
            kind = None
    if not isinstance(kind, str) or not kind or isinstance(start, bool) or isinstance(end, bool):
        raise BadRowError("not an entity", f"an entity needs start, end and label: {given!r}")
    if not 0 <= start < end <= num_characters:
        what = f"the entity {kind} from {start} to {end} is outside the text, which has {num_characters} characters"
        raise BadRowError("entity outside the text", what)
    return start, end, require_printable(kind)


def _cut(words: list[Span], borders: set[int]) -> list[Span]:
    """Split words at the borders that fall inside them."""
    cut: list[Span] = []
    for start, end in words:
        places = [start, *sorted(border for border in borders if start < border < end), end]
        cut += pairwise(places)
    return cut
