"""Questions with several choices: files of JSON, and which choice a label means.

A `.json` file holds a list: of records, like the lines of a `.jsonl`, or of dialogues as DREAM has them,

    [[turn, …], [{"question": …, "choice": [text, …], "answer": text}, …], id]

which become one row per question, with the fields context (the turns, a line each), question, choices and answer. JSON
cannot be read in part, so these files are limited in size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from bertmill.errors import DataError
from bertmill.tasks.rows import BadRowError, RawRow, repair_strings
from bertmill.text.files import read_file
from bertmill.text.repair import Repairs

_MAX_CHARACTERS = 1 << 28
_LETTERS = "ABCDEFGH"


def read_json_rows(file: str, *, repairs: Repairs | None = None) -> Iterator[RawRow]:
    """The rows of a `.json` file; dialogues and records that are not as they should be are rows with a problem."""
    counts = Repairs() if repairs is None else repairs
    return rows_of_json(read_whole_json(file, counts), file, counts)


def rows_of_json(content: Any, file: str, counts: Repairs) -> Iterator[RawRow]:
    """The rows of what a `.json` file holds."""
    if not isinstance(content, list):
        raise DataError(
            f"is not a list of records or dialogues (found: {type(content).__name__})",
            where=file,
            remedy="write a list, or a .jsonl with a record per line",
        )
    for number, entry in enumerate(content, start=1):
        if isinstance(entry, dict):
            fields = {name: repair_strings(value, counts) for name, value in entry.items()}
            yield RawRow(f"{file}: record {number}", fields)
        else:
            yield from _questions(repair_strings(entry, counts), f"{file}: dialogue", number, counts)


def right_choice(label: Any, choices: Sequence[str]) -> str:
    """The choice that `label` means: by its text, by its number from 0 on, or by its letter from A on."""
    if isinstance(label, str) and label in choices:
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


def read_whole_json(file: str, repairs: Repairs) -> Any:
    """What a `.json` file holds; strings are not repaired yet."""
    texts = []
    num_characters = 0
    for line in read_file(file, repairs=repairs):
        texts.append(line.text)
        num_characters += len(line.text)
        if num_characters > _MAX_CHARACTERS:
            raise DataError(
                f"has more than {_MAX_CHARACTERS:,} characters",
                where=file,
                remedy="write a .jsonl, which is read in parts",
            )
    try:
        return json.loads("\n".join(texts))
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON: {error.msg}", where=f"{file}:{error.lineno}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", where=file) from None


def _questions(entry: Any, place: str, number: int, repairs: Repairs) -> Iterator[RawRow]:
    match entry:
        case [[*turns], [*questions], str() | int() as name] if all(isinstance(turn, str) for turn in turns):
            context = "\n".join(turns)
        case _:
            problem = BadRowError("not a dialogue", "is neither a record nor [[turn, …], [question, …], id]")
            yield RawRow(f"{place} {number}", {}, problem=problem)
            return
    for question_number, question in enumerate(questions, start=1):
        question_place = f"{place} {name}, question {question_number}"
        if not isinstance(question, dict):
            problem = BadRowError("not a question", f"is not a JSON object (found: {type(question).__name__})")
            yield RawRow(question_place, {}, problem=problem)
            continue
        fields = {name: repair_strings(value, repairs) for name, value in question.items()}
        names = {"question": "question", "choices": "choice", "answer": "answer"}
        yield RawRow(
            question_place, {"context": context} | {to: fields[of] for to, of in names.items() if of in fields}
        )
