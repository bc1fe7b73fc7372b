"""Questions about passages, out of SQuAD's JSON or of records → labelled rows whose spans are the answers.

    SQuAD      "answers": [{"text", "answer_start"}], "is_impossible", 1.1 and 2.0, in the .json of json_rows.py
    records    {"question": …, "passage": …, "answer": text}, where `answers` may be a list of texts, of SQuAD's
               answers, or {"text": […], "answer_start": […]}; `context` is a passage too; .jsonl, .json or .parquet
A question without an answer (no answers, "" or is_impossible) is unanswerable. An answer must stand in the passage: at
its `answer_start`, or, mended and counted, near it; an answer without a start is where it stands first. Of several
answers, those that do not stand there are left out and counted; at least one must.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bertmill.errors import UsageError
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.raw_rows import BadRowError, RawRow
from bertmill.tasks.rows import RECORDS, read_rows
from bertmill.text.files import STANDARD_INPUT, format_suffix
from bertmill.text.repair import Repairs
from bertmill.text.words import Span

NEAR = 64  # characters by which an answer_start may be wrong and still be mended
_PASSAGES = ("passage", "context", "text")
_ANSWERS = ("answers", "answer")
_MENDED = "answer_start mended"
_LEFT_OUT = "one of several answers is not in the passage, left out"


def read_question_rows(file: str, repairs: Repairs) -> Iterator[RawRow]:
    """One row per question."""
    if format_suffix(file) not in RECORDS and file != STANDARD_INPUT:
        raise UsageError("questions are read from records", where=file, remedy=f"write {', '.join(RECORDS)}")
    return read_rows(file, repairs=repairs)


def asked(raw: RawRow, with_label: bool, mended: Counter[str]) -> LabelledRow:
    """What a row of `read_question_rows` says; BadRowError if that is nothing sensible."""
    question = _text(raw.fields, ("question",))
    passage = _text(raw.fields, _PASSAGES)
    if not with_label:
        return LabelledRow(raw.place, (question, passage))
    answers = _answers(raw.fields)
    places = [place_answer(passage, *answer) for answer in answers]
    spans = tuple(dict.fromkeys(span for span in places if span is not None))
    if answers and not spans:
        text, start = answers[0]
        where = "" if start is None else f" near character {start}"
        raise BadRowError("answer not in the passage", f"the answer {text!r} does not stand in the passage{where}")
    for (_, start), span in zip(answers, places, strict=True):
        mended[_MENDED] += span is not None and start not in (None, span[0])
        mended[_LEFT_OUT] += span is None
    texts = tuple(passage[start:end] for start, end in spans)
    return LabelledRow(raw.place, (question, passage), texts, spans=spans)


def place_answer(passage: str, text: str, start: int | None) -> Span | None:
    """Where the answer stands: at `start`, else where it is nearest to it; anywhere if nobody says where."""
    if start is None:
        found = passage.find(text)
        return None if found < 0 else (found, found + len(text))
    if passage.startswith(text, start) and start >= 0:
        return start, start + len(text)
    nearest: int | None = None
    place = passage.find(text, max(0, start - NEAR))
    while 0 <= place <= start + NEAR:
        if nearest is None or abs(place - start) < abs(nearest - start):
            nearest = place
        place = passage.find(text, place + 1)
    return None if nearest is None else (nearest, nearest + len(text))


def _text(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    found = next((name for name in names if fields.get(name) is not None), None)
    if found is None:
        what = f"has no {names[0]} (it has {', '.join(fields) or 'nothing'})"
        raise BadRowError(f"no {names[0]}", what)
    text = fields[found]
    if not isinstance(text, str) or not text.strip():
        raise BadRowError(f"no {names[0]}", f"has no text in {found!r}")
    return text


def _answers(fields: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    """Texts and where they are said to stand; none where the question is unanswerable."""
    if fields.get("is_impossible") is True:
        return []
    if not any(name in fields for name in _ANSWERS):
        raise BadRowError("no answers", f"has no answers (it has {', '.join(fields)})", "write [] if there is none")
    given = next((fields[name] for name in _ANSWERS if fields.get(name) is not None), "")
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
                what = f"has an answer that is not a text, with a whole number as its start if any: {answer!r}"
                raise BadRowError("not an answer", what)
    if not all(text.strip() for text, _ in answers):
        raise BadRowError("empty answer", "has an answer that is only white space")
    return answers


def _listed(given: dict[str, Any]) -> list[Any]:
    """{"text": […], "answer_start": […]} as a list of answers."""
    texts, starts = given.get("text"), given.get("answer_start")
    if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    return [given]
