"""Read questions about passages from SQuAD's JSON or from records.

    SQuAD      {"data": [{"paragraphs": [{"context": …, "qas": [{"question": …, "answers": [{"text", "answer_start"}],
               "is_impossible": …}, …]}]}]}, versions 1.1 and 2.0
    records    {"question": …, "passage": …, "answer": text}; .jsonl, .json or .parquet. `answers` may be a list of
               texts, a list of SQuAD's answers, or {"text": […], "answer_start": […]}. The passage may also be called
               `context` or `text`.

- A question with no answers, with the answer "", or with `is_impossible` is unanswerable.
- An answer must occur in the passage. If it occurs near its `answer_start`, the start is corrected and counted.
- An answer without a start is located at its first occurrence.
- If a question has several answers, those that do not occur are dropped and counted; at least one must occur.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertmill.errors import DataError
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.formats import RECORDS, json_record, read_records, repair_strings
from bertmill.rows.json_files import JsonList, JsonObject, line_of
from bertmill.rows.row import Record, Row
from bertmill.rows.source import RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.sequence import text_in
from bertmill.text.words import Span

NEAR = 64  # characters; an answer_start that is off by at most this much is corrected
PASSAGE_FIELDS = ("passage", "context", "text")
_ANSWER_FIELDS = ("answers", "answer")
_CORRECTED = "wrong answer_start"
_DROPPED = "dropped answer that is not in the passage"


class AnswerOptions(TaskOptions):
    """Settings that do not apply to `answer`, and its default windows."""

    unused = TaskOptions.unused | {"columns", "preset", "quotes", "separator", "truncate"}
    window = (384, 128)


@dataclass(frozen=True)
class QuestionRow(Row):
    """A question, a passage, and the answers as character spans of the passage. Unanswerable questions have none."""

    answers: tuple[Span, ...] | None = None  # None: unlabeled

    @property
    def passage(self) -> str:
        """The text that may contain the answer."""
        return self.texts[1]

    @property
    def answer_texts(self) -> tuple[str, ...]:
        """The text of each answer; empty if the question is unanswerable or unlabeled."""
        return tuple(self.passage[start:end] for start, end in self.answers or ())

    def fields(self) -> dict[str, Any]:
        return dict(zip(("question", "passage"), self.texts, strict=True))


def read_questions(file: RowFile, labeled: bool) -> Iterator[QuestionRow]:
    """Yield the questions of a file."""
    file.require_format(*RECORDS)

    def parse(record: Record) -> QuestionRow:
        row = parse_question(record.fields, record.place)
        if not labeled:
            return row
        answers = _locate_answers(row.passage, _answers(record.fields), file.counts.corrected)
        return QuestionRow(row.place, row.texts, answers)

    return file.rows(read_records(file, _squad_records), parse)


def parse_question(fields: Mapping[str, Any], place: str) -> QuestionRow:
    """Return the question and the passage of a record, without answers. Raises BadRowError if one is invalid."""
    passage = next((name for name in PASSAGE_FIELDS if fields.get(name) is not None), PASSAGE_FIELDS[0])
    return QuestionRow(place, (text_in(fields, "question"), text_in(fields, passage)))


def _locate_answers(passage: str, answers: list[tuple[str, int | None]], corrected: Counter[str]) -> tuple[Span, ...]:
    found = [locate_answer(passage, *answer) for answer in answers]
    spans = tuple(dict.fromkeys(span for span in found if span is not None))
    if answers and not spans:
        text, start = answers[0]
        where = "" if start is None else f" near character {start}"
        raise BadRowError("answer not in the passage", f"the answer {text!r} does not occur in the passage{where}")
    for (_, start), span in zip(answers, found, strict=True):
        corrected[_CORRECTED] += span is not None and start not in (None, span[0])
        corrected[_DROPPED] += span is None
    return spans


def locate_answer(passage: str, text: str, start: int | None) -> Span | None:
    """Return the span of an answer: at `start`, or else nearest to it; its first occurrence if `start` is None.

    Returns None if the answer does not occur, or not within NEAR characters of `start`.
    """
    if start is None:
        found = passage.find(text)
        return None if found < 0 else (found, found + len(text))
    if passage.startswith(text, start) and start >= 0:
        return start, start + len(text)
    # Occurrences may overlap, so the pattern is a lookahead, which consumes nothing.
    pattern = re.compile(f"(?={re.escape(text)})")
    matches = pattern.finditer(passage, max(0, start - NEAR), max(0, start + NEAR + len(text)))
    nearest = min((match.start() for match in matches), key=lambda place: abs(place - start), default=None)
    return None if nearest is None else (nearest, nearest + len(text))


def _answers(fields: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """Return the answers as texts with their starts; empty if the question is unanswerable."""
    if fields.get("is_impossible") is True:
        return []
    if not any(name in fields for name in _ANSWER_FIELDS):
        what = f"the row has no answers (its fields are {', '.join(fields)})"
        raise BadRowError("no answers", what, "use [] if the question is unanswerable")
    given = next((fields[name] for name in _ANSWER_FIELDS if fields.get(name) is not None), "")
    if isinstance(given, str):
        given = [{"text": given, "answer_start": fields.get("answer_start")}] if given else []
    elif isinstance(given, dict):
        given = _listed(given)
    answers: list[tuple[str, int | None]] = []
    for answer in given if isinstance(given, list) else [given]:
        match answer:
            case str(text):
                answers.append((text, None))
            case {"text": str(text), "answer_start": int() | None as start}:
                answers.append((text, start))
            case {"text": str(text), **others} if "answer_start" not in others:
                answers.append((text, None))
            case _:
                what = f"an answer needs a text, and answer_start must be an integer: {answer!r}"
                raise BadRowError("not an answer", what)
    if not all(text.strip() for text, _ in answers):
        raise BadRowError("empty answer", "an answer is empty or only whitespace")
    return answers


def _listed(given: dict[str, Any]) -> list[Any]:
    """Turn {"text": […], "answer_start": […]} into a list of answers."""
    texts, starts = given.get("text"), given.get("answer_start")
    if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return [given]


def _squad_records(content: Any, file: RowFile) -> Iterator[Record] | None:
    """Yield the questions of a file in SQuAD's format. Returns None if the content is not an object."""
    if not isinstance(content, JsonObject):
        return None
    articles = content.get("data")
    if not isinstance(articles, JsonList):
        form = '{"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}'
        raise DataError(f"expected SQuAD's format: {form}", where=file.path, remedy="use it, or a list of records")
    return _article_records(articles, file)


def _article_records(articles: JsonList, file: RowFile) -> Iterator[Record]:
    number = 0
    for article in articles:
        match article:
            case {"paragraphs": JsonList() as paragraphs}:
                pass
            case _:
                problem = BadRowError("not an article", 'expected an article: {"paragraphs": […]}')
                yield Record(f"{file.path}:{line_of(article, articles)}", {}, problem=problem)
                continue
        for paragraph in paragraphs:
            match paragraph:
                case {"context": context, "qas": JsonList() as questions}:
                    yield from _passage_records(context, questions, number, file)
                    number += len(questions)
                case _:
                    problem = BadRowError("not a paragraph", 'expected a paragraph: {"context": …, "qas": […]}')
                    yield Record(f"{file.path}:{line_of(paragraph, paragraphs)}", {}, problem=problem)


def _passage_records(context: Any, questions: JsonList, num_before: int, file: RowFile) -> Iterator[Record]:
    passage = repair_strings(context, file.counts.repairs)
    for number, question in enumerate(questions, start=num_before + 1):
        name = question.get("id", number) if isinstance(question, dict) else number
        place = f"{file.path}:{line_of(question, questions)}, question {name}"
        record = json_record(place, question, file.counts.repairs)
        yield record._replace(fields={**record.fields, "context": passage})
