"""The rows of a `.json` file, which holds one of three forms:

    records    [{…}, …], like the lines of a `.jsonl`
    DREAM      [[[turn, …], [{"question": …, "choice": [text, …], "answer": text}, …], id], …]: one row per question,
               with the fields context (the turns, a line each), question, choices and answer
    SQuAD      {"data": [{"paragraphs": [{"context": …, "qas": [{"question": …, "answers": …}, …]}]}]}: one row per
               question, with its own fields and the context
What is not as it should be inside of the list of records, articles or questions is a row with a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bertmill.errors import DataError
from bertmill.tasks.json_files import JsonList, JsonObject, line_of, read_whole_json, type_of
from bertmill.tasks.raw_rows import BadRowError, RawRow, repair_strings
from bertmill.text.repair import Repairs


def read_json_rows(file: str, repairs: Repairs) -> Iterator[RawRow]:
    """The rows of a `.json` file, each with the line on which it begins."""
    content = read_whole_json(file, repairs)
    if isinstance(content, JsonObject):
        return _squad_rows(content, file, repairs)
    if isinstance(content, JsonList):
        return _listed_rows(content, file, repairs)
    raise DataError(
        f"is not a list of records or dialogues (found: {type_of(content)})",
        where=file,
        remedy="write a list, or a .jsonl with a record per line",
    )


def _listed_rows(entries: JsonList, file: str, repairs: Repairs) -> Iterator[RawRow]:
    for number, entry in enumerate(entries, start=1):
        line = line_of(entry, entries)
        match entry:
            case dict():
                yield RawRow(f"{file}:{line}, record {number}", repair_strings(entry, repairs))
            case [[*turns], JsonList() as questions, str() | int() as name] if all(
                isinstance(turn, str) for turn in turns
            ):
                yield from _dialogue_rows("\n".join(turns), questions, f"dialogue {name}", file, repairs)
            case _:
                problem = BadRowError("not a dialogue", "is neither a record nor [[turn, …], [question, …], id]")
                yield RawRow(f"{file}:{line}, dialogue {number}", {}, problem=problem)


def _dialogue_rows(turns: str, questions: JsonList, dialogue: str, file: str, repairs: Repairs) -> Iterator[RawRow]:
    context = repair_strings(turns, repairs)
    names = {"question": "question", "choice": "choices", "answer": "answer"}
    for number, question in enumerate(questions, start=1):
        place = f"{file}:{line_of(question, questions)}, {dialogue}, question {number}"
        raw = _question_row(place, question, repairs)
        fields = {names[name]: value for name, value in raw.fields.items() if name in names}
        yield raw._replace(fields={"context": context, **fields})


def _squad_rows(content: JsonObject, file: str, repairs: Repairs) -> Iterator[RawRow]:
    articles = content.get("data")
    if not isinstance(articles, JsonList):
        raise DataError(
            'is an object, but not in the form of SQuAD: {"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}',
            where=file,
            remedy="write a list of records",
        )
    number = 0
    for article in articles:
        match article:
            case {"paragraphs": JsonList() as paragraphs}:
                pass
            case _:
                problem = BadRowError("not an article", 'is not an article: {"paragraphs": […]}')
                yield RawRow(f"{file}:{line_of(article, articles)}", {}, problem=problem)
                continue
        for paragraph in paragraphs:
            match paragraph:
                case {"context": context, "qas": JsonList() as questions}:
                    yield from _passage_rows(context, questions, number, file, repairs)
                    number += len(questions)
                case _:
                    problem = BadRowError("not a paragraph", 'is not a paragraph: {"context": …, "qas": […]}')
                    yield RawRow(f"{file}:{line_of(paragraph, paragraphs)}", {}, problem=problem)


def _passage_rows(context: Any, questions: JsonList, num_before: int, file: str, repairs: Repairs) -> Iterator[RawRow]:
    passage = repair_strings(context, repairs)
    for number, question in enumerate(questions, start=num_before + 1):
        name = question.get("id", number) if isinstance(question, dict) else number
        raw = _question_row(f"{file}:{line_of(question, questions)}, question {name}", question, repairs)
        yield raw._replace(fields={**raw.fields, "context": passage})


def _question_row(place: str, question: Any, repairs: Repairs) -> RawRow:
    if isinstance(question, dict):
        return RawRow(place, repair_strings(question, repairs))
    return RawRow(
        place, {}, problem=BadRowError("not a question", f"is not a JSON object (found: {type_of(question)})")
    )
