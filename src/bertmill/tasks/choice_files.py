"""Questions with several choices: files of JSON, and which choice a label means.

A `.json` file holds a list: of records, like the lines of a `.jsonl`, or of dialogues as DREAM has them,

    [[turn, …], [{"question": …, "choice": [text, …], "answer": text}, …], id]

which become one row per question, with the fields context (the turns, a line each), question, choices and answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bertmill.errors import DataError
from bertmill.tasks.json_files import JsonList, line_of, read_whole_json, type_of
from bertmill.tasks.rows import BadRowError, RawRow, repair_strings
from bertmill.text.repair import Repairs

_LETTERS = "ABCDEFGH"


def read_json_rows(file: str, *, repairs: Repairs | None = None) -> Iterator[RawRow]:
    """The rows of a `.json` file; dialogues and records that are not as they should be are rows with a problem."""
    counts = Repairs() if repairs is None else repairs
    return rows_of_json(read_whole_json(file, counts), file, counts)


def rows_of_json(content: Any, file: str, counts: Repairs) -> Iterator[RawRow]:
    """The rows of what a `.json` file holds."""
    if not isinstance(content, JsonList):
        raise DataError(
            f"is not a list of records or dialogues (found: {type_of(content)})",
            where=file,
            remedy="write a list, or a .jsonl with a record per line",
        )
    for number, entry in enumerate(content, start=1):
        if isinstance(entry, dict):
            fields = {name: repair_strings(value, counts) for name, value in entry.items()}
            yield RawRow(f"{file}:{line_of(entry, content)}, record {number}", fields)
        else:
            yield from _questions(entry, file, line_of(entry, content), number, counts)


def right_choice(label: Any, choices: Sequence[str]) -> str:
    """The choice that `label` means: by its text, by its number from 0 on, or by its letter from A on."""
    if isinstance(label, str) and label in choices:
        if choices.count(label) > 1:
            raise BadRowError("same choices", f"has the label {label!r}, and several choices are the same")
        return label
    number = -1
    if isinstance(label, str) and label.strip().isdecimal():
        number = int(label)
    elif isinstance(label, str):
        number = _LETTERS.find(label.strip()) if len(label.strip()) == 1 else -1
    elif isinstance(label, int) and not isinstance(label, bool):
        number = label
    if not 0 <= number < len(choices):
        raise BadRowError(
            "label is none of the choices",
            f"has the label {label!r}, which is none of its {len(choices)} choices",
            f"write the text of a choice, a number from 0 to {len(choices) - 1}, or a letter from A on",
        )
    return choices[number]


def _questions(entry: Any, file: str, line: int, number: int, repairs: Repairs) -> Iterator[RawRow]:
    match entry:
        case [[*turns], JsonList() as questions, str() | int() as name] if all(isinstance(turn, str) for turn in turns):
            context = repair_strings("\n".join(turns), repairs)
        case _:
            problem = BadRowError("not a dialogue", "is neither a record nor [[turn, …], [question, …], id]")
            yield RawRow(f"{file}:{line}, dialogue {number}", {}, problem=problem)
            return
    for question_number, question in enumerate(questions, start=1):
        place = f"{file}:{line_of(question, questions)}, dialogue {name}, question {question_number}"
        if not isinstance(question, dict):
            problem = BadRowError("not a question", f"is not a JSON object (found: {type_of(question)})")
            yield RawRow(place, {}, problem=problem)
            continue
        fields = {name: repair_strings(value, repairs) for name, value in question.items()}
        names = {"question": "question", "choices": "choice", "answer": "answer"}
        yield RawRow(place, {"context": context} | {to: fields[of] for to, of in names.items() if of in fields})
