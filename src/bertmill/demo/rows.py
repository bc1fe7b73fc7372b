"""Labeled rows for four tasks, derived from the structure of documentation.

    classify   a passage → the library it describes; words that name a library are removed
    tag        the words of a sentence → code, parameter or type, according to its markup, which is removed
    pair       a summary and a description → whether they belong together; a wrong one is from the same library
    answer     a question about a return value, a parameter or its type → the answer in the docstring

Rows are drawn in an order that depends only on the documentation. A sentence is not tagged if its markup is ambiguous:
if it has code outside markup, or an ordinary word that is also a parameter name.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bertmill.demo.docstrings import CODE, END, TYPE, Item, plain
from bertmill.demo.documentation import SEED, STANDARD_LIBRARY, Doc, shuffled
from bertmill.randomness import keyed_seed
from bertmill.tasks.tag.schemes import Entity, iob2
from bertmill.text.sentences import split_sentences
from bertmill.text.words import Span, find_words

Row = dict[str, Any]
RowT = TypeVar("RowT")

PASSAGE = (80, 320)  # characters of a passage to classify
SENTENCE = (5, 40)  # words of a sentence to tag
PAIR = (30, 300)  # characters of a summary or a description
MAX_CONTEXT = 400  # characters of a passage to answer from
MAX_ANSWER = 160  # characters
MAX_SENTENCES = 2  # per description in such a passage
MIN_QUESTIONS = 2  # that a passage can answer, so that the answer is not obvious
PER_DOC = 2  # passages or sentences per object, so that long docstrings do not dominate
BELONGS, DOES_NOT_BELONG = "belongs", "does not belong"

_LIBRARY_NAME = re.compile(
    rf"torch|numpy|scipy|sklearn|scikit|sympy|networkx|python|(?<![^\W_])(?:np|nx|{STANDARD_LIBRARY})(?![^\W_])",
    re.IGNORECASE,
)
_MARKED = re.compile(f"([{CODE}{TYPE}])([^{CODE}{TYPE}{END}]*){END}")
_CODE_OUTSIDE = re.compile(r"\w\(|[a-z][A-Z]|[^\W\d]\.[^\W\d]\w|[][=<>{}|\\_#@^~`*/+]")
_TYPES = {"int", "float", "bool", "str", "bytes", "bytearray", "dict", "tuple", "frozenset", "ndarray", "array_like"}
_TYPES_IF_MARKED = {*_TYPES, "list", "set", "object", "type", "complex", "string", "callable"}
_CONSTANTS = {"True", "False", "None", "NaN", "Ellipsis", "NotImplemented"}
_CAMEL_CASE = re.compile(r"(?:\w+\.)*[A-Z]\w*[a-z]\w*")


@dataclass(frozen=True)
class Sizes:
    """The maximum number of (train, test) rows of each task."""

    classify: tuple[int, int]
    tag: tuple[int, int]
    pair: tuple[int, int]
    answer: tuple[int, int]


class Question(NamedTuple):
    """A question and the part of a passage that answers it."""

    question: str
    passage: str
    answer: str
    start: int  # of the answer in the passage


def write_rows(folder: Path, train: Sequence[Doc], test: Sequence[Doc], sizes: Sizes) -> None:
    """Write TASK-train and TASK-test files to `folder`: .json in SQuAD format for answer, .jsonl for other tasks."""
    for number, (part, docs) in enumerate((("train", train), ("test", test))):
        docs = shuffled(docs)
        records = {
            f"classify-{part}": classify_rows(docs, sizes.classify[number]),
            f"tag-{part}": tag_rows(docs, sizes.tag[number]),
            f"pair-{part}": pair_rows(docs, sizes.pair[number]),
        }
        for name, rows in records.items():
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        content = squad(answer_rows(docs, sizes.answer[number]))
        (folder / f"answer-{part}.json").write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def _distinct(rows: Iterable[RowT], count: int, key: Callable[[RowT], str]) -> list[RowT]:
    """The first `count` rows with different keys."""
    found: dict[str, RowT] = {}
    for row in rows:
        if len(found) >= count:
            break
        found.setdefault(key(row), row)
    return list(found.values())


def _shuffled(rows: Iterable[Row]) -> list[Row]:
    """The rows in a pseudo-random order that depends only on their texts."""
    return sorted(rows, key=lambda row: keyed_seed(SEED, row["text"]))


# classify


def classify_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Passages labeled with their library, the same number from each library if there are enough."""
    by_library: dict[str, list[Doc]] = defaultdict(list)
    for doc in docs:
        by_library[doc.library].append(doc)
    rows: list[Row] = []
    for library, of_library in sorted(by_library.items()):
        passages = ({"text": text, "label": library} for doc in of_library for text in _passages(doc))
        rows += _distinct(passages, -(-count // len(by_library)), lambda row: str(row["text"]))
    return _shuffled(rows)


def _passages(doc: Doc) -> Iterator[str]:
    texts = (without_library_names(plain(text)) for text in doc.text.paragraphs)
    return islice((text for text in texts if PASSAGE[0] <= len(text) <= PASSAGE[1]), PER_DOC)


def without_library_names(text: str) -> str:
    """Remove the words that contain the name of a library or its usual abbreviation."""
    if not _LIBRARY_NAME.search(text):
        return text
    return " ".join(word for word in text.split() if not _LIBRARY_NAME.search(word))


# tag


def tag_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Sentences with a tag for every word, at least one of which is not O."""
    rows = (row for doc in docs for row in _tagged_sentences(doc))
    return _distinct(rows, count, lambda row: " ".join(row["words"]))


def _tagged_sentences(doc: Doc) -> Iterator[Row]:
    names = parameter_names(doc)
    sentences = (sentence for text in doc.text.paragraphs for sentence in split_sentences(text))
    return islice((row for sentence in sentences if (row := tag_sentence(sentence, names))), PER_DOC)


def parameter_names(doc: Doc) -> frozenset[str]:
    """The parameter names of an object, from its signature and its documentation."""
    documented = (name.strip(" *") for item in doc.text.parameters for name in item.name.split(","))
    return frozenset((*doc.arguments, *(name for name in documented if name.isidentifier())))


def tag_sentence(sentence: str, names: frozenset[str]) -> Row | None:
    """Convert a sentence with marks to words with IOB2 tags; `names` are the names of parameters.

    None if there is nothing to tag, or if the markup is ambiguous.
    """
    text, outside, marks = _unmarked(sentence)
    words = find_words(text)
    kinds = {span: _kind_of_markup(text[slice(*span)], mark, names) for span, mark in marks.items()}
    for start, end in words:
        word = outside[start:end]
        if word in _TYPES or (word in names and not _is_ordinary(word)):
            kinds[start, end] = "type" if word in _TYPES else "parameter"
            outside = f"{outside[:start]}{' ' * len(word)}{outside[end:]}"
        elif word in names or word in _CONSTANTS:
            return None
    entities = [entity for span, kind in sorted(kinds.items()) if (entity := _entity(kind, span, words))]
    is_usable = SENTENCE[0] <= len(words) <= SENTENCE[1] and not _CODE_OUTSIDE.search(outside)
    if not entities or not is_usable or plain(text) != text:  # a mark is left: the sentence was split inside code
        return None
    return {"words": [text[start:end] for start, end in words], "tags": iob2(entities, len(words))}


def _unmarked(sentence: str) -> tuple[str, str, dict[Span, str]]:
    """The sentence without marks, the same with marked parts blanked out, and the mark of each part."""
    text = outside = ""
    marks: dict[Span, str] = {}
    end = 0
    for match in _MARKED.finditer(sentence):
        before, content = sentence[end : match.start()], match[2]
        text += before
        marks[len(text), len(text) + len(content)] = match[1]
        text += content
        outside += before + " " * len(content)
        end = match.end()
    return text + sentence[end:], outside + sentence[end:], marks


def _kind_of_markup(content: str, mark: str, names: frozenset[str]) -> str:
    if content.strip("*") in names:
        return "parameter"
    is_class = _CAMEL_CASE.fullmatch(content) is not None and content not in _CONSTANTS
    return "type" if mark == TYPE or is_class or content in _TYPES_IF_MARKED else "code"


def _is_ordinary(word: str) -> bool:
    """Whether a word may be an English word: `axis`, `a`, but not `n_samples`, `x` or `X`."""
    return word.isalpha() and (word in ("a", "A", "I") or (len(word) > 1 and not word.isupper()))


def _entity(kind: str, span: Span, words: Sequence[Span]) -> Entity | None:
    """The words that overlap a span of characters; None if there are none."""
    inside = [number for number, (start, end) in enumerate(words) if start < span[1] and span[0] < end]
    return Entity(kind, inside[0], inside[-1] + 1) if inside else None


# pair


def pair_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Summaries, half with their own description and half with that of another object of the same library."""
    by_library: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for doc in docs:
        summary, description = plain(doc.text.summary), plain(next(iter(doc.text.description), ""))
        if all(PAIR[0] <= len(text) <= PAIR[1] for text in (summary, description)):
            by_library[doc.library].append((summary, description))
    right: list[Row] = []
    wrong: list[Row] = []
    for _, pairs in sorted(by_library.items()):
        for number, (summary, description) in enumerate(pairs):
            other = pairs[(number + 1) % len(pairs)][1]
            if number % 2 == 0:
                right.append({"text": summary, "pair": description, "label": BELONGS})
            elif other != description:
                wrong.append({"text": summary, "pair": other, "label": DOES_NOT_BELONG})
    rows = (_distinct(_shuffled(part), count // 2, lambda row: str(row["text"])) for part in (right, wrong))
    return _shuffled(chain.from_iterable(rows))


# answer


def answer_rows(docs: Sequence[Doc], count: int) -> list[Question]:
    """Questions about `count` different docstrings."""
    found = (question for doc in docs if (question := make_question(doc)))
    return _distinct(found, count, lambda question: question.passage)


def make_question(doc: Doc) -> Question | None:
    """Choose one of the questions that the docstring of a public object answers; None if it answers too few."""
    if not doc.text.summary or not all(part.isidentifier() and part[0] != "_" for part in doc.name.split(".")):
        return None
    passage, answers = _answered_passage(doc)
    if len(answers) < MIN_QUESTIONS or len(passage) > MAX_CONTEXT:
        return None
    question, (start, end) = answers[keyed_seed(SEED, doc.title) % len(answers)]
    return Question(question, passage, passage[start:end], start)


class _Part(NamedTuple):
    """The text about an item in a passage, and the spans of its possible answers."""

    text: str
    type: Span
    sentence: Span  # the first sentence of the description


def _part(lead: str, item: Item) -> _Part:
    sentences = split_sentences(plain(item.description))[:MAX_SENTENCES]
    head = f" {lead} ({item.type}): " if item.type else f" {lead}: "
    type_start = len(f" {lead} (")
    answer = sentences[0].rstrip(" .;:") if sentences else ""
    text = f"{head}{' '.join(sentences)}".rstrip()
    return _Part(text, (type_start, type_start + len(item.type)), (len(head), len(head) + len(answer)))


def _answered_passage(doc: Doc) -> tuple[str, list[tuple[str, Span]]]:
    """A passage (summary, as many parameters as fit, return value), and questions with the spans of their answers."""
    passage = plain(doc.text.summary)
    answers: list[tuple[str, Span]] = []

    def add(part: _Part, *questions: tuple[str, Span]) -> None:
        nonlocal passage
        for question, (start, end) in questions:
            if 0 < end - start <= MAX_ANSWER:
                answers.append((question, (len(passage) + start, len(passage) + end)))
        passage += part.text

    returned = [_part("Returns", item) for item in doc.text.returns[:1]]
    room = MAX_CONTEXT - sum(len(part.text) for part in returned)
    for item in doc.text.parameters:
        part = _part(item.name, item)
        if item.name.isidentifier() and len(passage) + len(part.text) <= room:
            subject = f"the parameter {item.name} of {doc.title}?"
            add(part, (f"What is {subject}", part.sentence), (f"What type is {subject}", part.type))
    for part in returned:
        has_sentence = part.sentence[0] < part.sentence[1]
        add(part, (f"What does {doc.title} return?", part.sentence if has_sentence else part.type))
    return passage, answers


def squad(questions: Sequence[Question]) -> dict[str, Any]:
    """Convert questions to SQuAD format."""
    paragraphs = []
    for number, each in enumerate(questions):
        answer = {"text": each.answer, "answer_start": each.start}
        question = {"id": str(number), "question": each.question, "answers": [answer]}
        paragraphs.append({"context": each.passage, "qas": [question]})
    return {"version": "1.1", "data": [{"title": "documentation", "paragraphs": paragraphs}]}
