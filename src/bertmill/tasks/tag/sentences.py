"""Read sentences from text files: one word per line, one sentence per line, or parallel files of words and tags.

    conll      one word per line with its tag in the last column, separated by tabs or spaces; an empty line ends a
               sentence; comments (# …) are skipped if tabs separate the columns
    sentences  one sentence per line: its words, a tab, and its tags; spaces separate words and tags. A sentence without
               spaces is one word if it has one tag; with several tags, each character is a word. Without tags, each
               character is a word if the sentence is Chinese. Lines without a tab that start with # are skipped.
               With `RowFile.tags`, another file has the tags on the same lines

Without the setting `format`, the first line that is not empty, a comment, a header or -DOCSTART- decides: the format is
`sentences` if tabs separate its columns and its tag column holds several tags, otherwise `conll`. A file without tabs
for prediction is like the training rows. Common column names in the first line are a header. -DOCSTART- lines are
skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest

from bertmill.errors import DataError, UsageError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.columns import Columns
from bertmill.rows.formats import Cells
from bertmill.rows.row import Record
from bertmill.rows.source import RowFile
from bertmill.text.characters import IDEOGRAPH_CLASS
from bertmill.text.files import Line, format_suffix, read_file
from bertmill.text.printable import counted

_DOCUMENT_START = "-DOCSTART-"
_NOT_A_WORD = re.compile(r"\d+(-|\.)\d+")  # CoNLL-U ids of multi-word tokens (1-2) and empty nodes (1.1)
_IDEOGRAPH = re.compile(f"[{IDEOGRAPH_CLASS}]")
_WORD_NAMES = {"word", "words", "token", "tokens", "form", "char", "chars", "text", "text_a", "sentence"}
_COLUMNS_REMEDY = "set `columns` to the numbers of the word and tag columns, starting at 1"
_SEPARATOR_REMEDY = "separate words and tags with a tab, or set `tags` to a file with the tags of every sentence"
_TAG_NAMES = {"tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags", "upos"}


@dataclass(frozen=True)
class _Layout:
    """The format of a file, and the indices of its columns of words and tags."""

    has_sentences: bool  # one per line
    is_detected: bool  # whether the first line decided this
    separator: str
    num_columns: int
    word: int
    tag: int | None
    labeled: bool  # whether tags are read

    def problem(self, values: list[str]) -> BadRowError | None:
        """Return what is wrong with the cells of a line."""
        if len(values) != self.num_columns:
            what = f"the line has {counted(len(values), 'column')}, but the first line has {self.num_columns}"
            may_be_sentence = self.is_detected and not self.has_sentences
            remedy = "correct it, or set `format='sentences'` if every line is a sentence" if may_be_sentence else None
            return BadRowError("different number of columns", what, remedy)
        if self.has_sentences:
            return None
        word, tag = values[self.word], values[self.tag] if self.labeled and self.tag is not None else None
        if not word or tag == "":
            what = "tag" if word else "word"
            return BadRowError(f"empty {what}", f"the {what} is empty")
        if tag is not None and self.is_detected and len(_parts(tag)) > 1:
            what = f"the tag {tag!r} contains a space, but the first tag of the file does not"
            remedy = "set `format='sentences'` if every line is a sentence, or `format='conll'` if every line is a word"
            return BadRowError("several tags", what, remedy)
        return None


def read_sentences(file: RowFile, columns: Columns | None, labeled: bool) -> Iterator[Record]:
    """Yield records with the field `words` and, if labeled, `tags`."""
    lines = file.lines()
    if file.tags is not None:
        tag_lines = read_file(str(file.tags), encoding=file.settings.encoding, repairs=file.counts.repairs)
        yield from _parallel_records(lines, tag_lines, file)
        return
    first, lines = _first(lines)
    if first is None:
        return
    _refuse_commas(first, file, labeled)
    columns, lines = _read_header(first, lines, columns, file, labeled)
    first, lines = _first(lines)
    if first is None:
        return
    layout = _find_layout(first, columns, file, labeled)
    read = _sentence_records if layout.has_sentences else _conll_records
    yield from read(lines, layout)


def _first(lines: Iterator[Line]) -> tuple[Line | None, Iterator[Line]]:
    """Return the first line that is not empty, a comment or -DOCSTART-, and all lines."""
    head: list[Line] = []
    for line in lines:
        head.append(line)
        if not (_is_blank(line) or _may_be_comment(line) or _is_document_start(line)):
            return line, chain(head, lines)
    return None, iter(head)


def _cells(line: Line, separator: str) -> list[str]:
    return line.text.split(separator) if separator == "\t" else list(filter(None, line.text.split(separator)))


def _separator(first: Line) -> str:
    return "\t" if "\t" in first.text else " "


def _refuse_commas(first: Line, file: RowFile, labeled: bool) -> None:
    is_csv = format_suffix(file.path) == ".csv" or (labeled and " " not in first.text)
    if is_csv and file.settings.format is None and "," in first.text and "\t" not in first.text:
        what = "commas separate the columns, which this task does not read, because a comma may be a word"
        raise DataError(what, where=first.place, remedy="separate words and tags with tabs or spaces")


def _read_header(
    first: Line, lines: Iterator[Line], columns: Columns | None, file: RowFile, labeled: bool
) -> tuple[Columns | None, Iterator[Line]]:
    """Return the columns by number, and the lines without the header if there is one."""
    names = [name.strip() for name in _cells(first, _separator(first))]
    if columns is not None and columns.has_header:
        columns = _columns_by_number(columns, names, first.place, labeled)
    elif names[0].casefold() in _WORD_NAMES and names[-1].casefold() in _TAG_NAMES:
        file.counts.notices.append(f"{first.place}: the header ({', '.join(names)}) is not read as a sentence")
    else:
        return columns, lines
    return columns, (line for line in lines if line.number != first.number)


def _columns_by_number(columns: Columns, names: list[str], place: str, labeled: bool) -> Columns:
    """Replace the names of columns by their numbers."""
    numbers: list[str | None] = []
    for name, is_needed in ((columns.text, True), (columns.label, labeled)):
        if is_needed and names.count(str(name)) != 1:
            what = f"there is no column {name!r}; the first line is {', '.join(names)}"
            remedy = "set column numbers if there is no header, such as `columns='text=1,label=2'`"
            raise UsageError(what, where=place, remedy=remedy)
        numbers.append(str(1 + names.index(name)) if name in names else None)
    return Columns(str(numbers[0]), label=numbers[1], has_header=False)


def _find_layout(first: Line, columns: Columns | None, file: RowFile, labeled: bool) -> _Layout:
    """Determine the layout of a file from its first line. Raises DataError if it has too few columns."""
    given = file.settings.format
    if given is None and not labeled and "\t" not in first.text:
        given = file.trained_format
    separator = "\t" if given == "sentences" else _separator(first)
    values = _cells(first, separator)
    num_columns = len(values)
    word, tag, last_tag = 0, -1 if num_columns > 1 else None, 1
    if columns is not None:
        word, tag = int(columns.text) - 1, None if columns.label is None else int(columns.label) - 1
        last_tag = tag or 0
    last = 1 + max(word, last_tag if labeled else 0)
    if num_columns < last:
        what = f"the line has {counted(num_columns, 'column')}, but column {last} is needed"
        raise DataError(what, where=first.place, remedy=_COLUMNS_REMEDY if num_columns > 1 else _SEPARATOR_REMEDY)
    if tag is not None and tag >= num_columns:  # only words, for prediction
        tag = None
    has_several = tag is not None and len(_parts(values[tag])) > 1
    has_sentences = given == "sentences" or (given is None and separator == "\t" and has_several)
    file.detected_format = "sentences" if has_sentences and given is None else None
    return _Layout(has_sentences, given is None, separator, num_columns, word, tag, labeled)


def _sentence_records(lines: Iterator[Line], layout: _Layout) -> Iterator[Record]:
    for line in lines:
        is_comment = layout.num_columns > 1 and line.text.startswith("#") and "\t" not in line.text
        if _is_blank(line) or is_comment:
            continue
        values = _cells(line, layout.separator)
        if problem := layout.problem(values):
            yield Record(line.place, {}, problem=problem)
            continue
        tags = None if layout.tag is None else _parts(values[layout.tag])
        words = _words(values[layout.word], tags)
        if words != [_DOCUMENT_START]:
            yield Record(line.place, {"words": words, **({"tags": tags} if layout.labeled else {})})


def _parallel_records(lines: Iterator[Line], tag_lines: Iterator[Line], file: RowFile) -> Iterator[Record]:
    """Yield a record per pair of lines. Raises DataError at the end if the files have different numbers of lines."""
    num_lines = num_tag_lines = 0  # without empty ones at the end
    for line, tag_line in zip_longest(lines, tag_lines):
        words, tags = ([] if each is None else _parts(each.text) for each in (line, tag_line))
        num_lines = line.number if words else num_lines
        num_tag_lines = tag_line.number if tags else num_tag_lines
        if line is None or tag_line is None or not (words or tags):
            continue
        words = _words(line.text, tags)
        if words == [_DOCUMENT_START]:
            continue
        problem = None
        if len(words) != len(tags):
            what = f"the line has {counted(len(words), 'word')}, but {tag_line.place} has {counted(len(tags), 'tag')}"
            problem = BadRowError("misaligned", what)
        yield Record(line.place, {"words": words, "tags": tags}, problem=problem)
    if num_lines != num_tag_lines:
        what = f"the file has {counted(num_lines, 'line')}, but {file.tags} has {num_tag_lines:,}"
        raise DataError(what, where=file.path, remedy="provide the tags of each sentence on the same line")


def _parts(text: str) -> list[str]:
    return list(filter(None, re.split("[ \t]", text)))


def _words(text: str, tags: list[str] | None) -> list[str]:
    """Split a sentence into words at spaces, or into characters if it has no spaces but is more than one word."""
    words = _parts(text)
    has_several = bool(_IDEOGRAPH.search(text)) if tags is None else len(tags) > 1
    return list(words[0]) if len(words) == 1 and has_several else words


def _conll_records(lines: Iterator[Line], layout: _Layout) -> Iterator[Record]:
    for sentence in _sentences(lines, layout.separator):
        if layout.word > 0:
            sentence = [row for row in sentence if not _NOT_A_WORD.fullmatch(row.values[0])]
        if sentence:
            yield _conll_record(sentence, layout)


def _conll_record(sentence: list[Cells], layout: _Layout) -> Record:
    for place, values in sentence:
        if problem := layout.problem(values):
            return Record(place, {}, problem=problem)
    fields = {"words": [values[layout.word] for _, values in sentence]}
    if layout.labeled and layout.tag is not None:
        fields["tags"] = [values[layout.tag] for _, values in sentence]
    return Record(sentence[0].place, fields)


def _sentences(lines: Iterator[Line], separator: str) -> Iterator[list[Cells]]:
    """Yield the cells of the lines of each sentence."""
    sentence: list[Cells] = []
    for line in lines:
        if _is_blank(line):
            if sentence:
                yield sentence
            sentence = []
        elif not (_is_document_start(line) or (separator == "\t" and _may_be_comment(line))):
            sentence.append(Cells(line.place, _cells(line, separator)))
    if sentence:
        yield sentence


def _is_blank(line: Line) -> bool:
    return not line.text.strip(" \t")


def _is_document_start(line: Line) -> bool:
    return _DOCUMENT_START in line.text.split()


def _may_be_comment(line: Line) -> bool:
    """Whether a line is a comment, provided that tabs separate columns. The word # is followed by a tab."""
    return line.text.startswith("# ") or (line.text.startswith("#") and "\t" not in line.text)
