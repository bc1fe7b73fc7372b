"""Labelled rows out of the structure of documentation, for four tasks.

    classify   a passage → the library that it describes; words that name a library are removed
    tag        the words of a sentence → code, parameter or type, by what the markup says; the markup is removed
    pair       a summary and a description → whether they belong together; a wrong one is of the same library
    answer     what a function returns, what a parameter is or which type it has → the part of its docstring
Rows are drawn in an order that depends on the documentation alone. A sentence is left out where the markup does not
decide: if it has code outside of markup, or an ordinary word that is also the name of a parameter.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bertmill.demo.docstrings import CODE, END, TYPE, Item, plain
from bertmill.demo.documentation import SEED, STANDARD_LIBRARY, Doc, shuffled
from bertmill.randomness import keyed_seed
from bertmill.tasks.tag.schemes import Entity, iob2
from bertmill.text.sentences import split_sentences
from bertmill.text.words import Span, find_words

Row = dict[str, Any]

PASSAGE = (80, 320)  # characters of a passage to classify
SENTENCE = (5, 40)  # words of a sentence to tag
PAIR = (30, 300)  # characters of a summary, and of a description
MAX_CONTEXT = 400  # characters of a passage with an answer
MAX_ANSWER = 160  # characters
MAX_SENTENCES = 2  # of a description in such a passage
MIN_QUESTIONS = 2  # that a passage could answer, so that there is something to choose
PER_DOC = 2  # passages or sentences of one object
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
    """How many rows to train with and to test on, at most."""

    classify: tuple[int, int]
    tag: tuple[int, int]
    pair: tuple[int, int]
    answer: tuple[int, int]


class Question(NamedTuple):
    """A question and the part of a passage that answers it."""

    question: str
    passage: str
    answer: str
    start: int


def write_rows(folder: Path, train: Sequence[Doc], test: Sequence[Doc], sizes: Sizes) -> None:
    """Write TASK-train and TASK-test files into `folder`: .jsonl, and .json in SQuAD's form for questions."""
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


def _distinct(rows: Iterable[tuple[Hashable, Any]], count: int) -> list[Any]:
    """The first `count` rows with different keys."""
    found: dict[Hashable, Any] = {}
    for key, row in rows:
        if len(found) >= count:
            break
        found.setdefault(key, row)
    return list(found.values())


# classify


def classify_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Passages with the library as the label, the same number of each library if there are enough."""
    by_library: dict[str, list[Doc]] = defaultdict(list)
    for doc in docs:
        by_library[doc.library].append(doc)
    rows: list[Row] = []
    for library, of_library in sorted(by_library.items()):
        passages = ((text, {"text": text, "label": library}) for doc in of_library for text in _passages(doc))
        rows += _distinct(passages, -(-count // len(by_library)))
    return sorted(rows, key=lambda row: keyed_seed(SEED, row["text"]))


def _passages(doc: Doc) -> Iterator[str]:
    texts = (without_library_names(plain(text)) for text in doc.text.paragraphs)
    return islice((text for text in texts if PASSAGE[0] <= len(text) <= PASSAGE[1]), PER_DOC)


def without_library_names(text: str) -> str:
    """The text without the words that contain the name of a library or a common abbreviation of it."""
    if not _LIBRARY_NAME.search(text):
        return text
    return " ".join(word for word in text.split() if not _LIBRARY_NAME.search(word))


# tag


def tag_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Sentences with a tag for every word; each has at least one that is not O."""
    return _distinct(((" ".join(row["words"]), row) for doc in docs for row in _tagged_sentences(doc)), count)


def _tagged_sentences(doc: Doc) -> Iterator[Row]:
    names = parameter_names(doc)
    sentences = (sentence for text in doc.text.paragraphs for sentence in split_sentences(text))
    return islice((row for sentence in sentences if (row := tag_sentence(sentence, names))), PER_DOC)


def parameter_names(doc: Doc) -> frozenset[str]:
    """The names of an object's parameters, from its signature and from its documentation."""
    documented = (name.strip(" *") for item in doc.text.parameters for name in item.name.split(","))
    return frozenset((*doc.arguments, *(name for name in documented if name.isidentifier())))


def tag_sentence(sentence: str, names: frozenset[str]) -> Row | None:
    """A marked sentence as words with IOB tags; None if it has nothing to tag, or markup does not decide.

    `names` are those of parameters.
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
    if not entities or not is_usable or plain(text) != text:  # the sentence was split inside of code
        return None
    return {"words": [text[start:end] for start, end in words], "tags": iob2(entities, len(words))}


def _unmarked(sentence: str) -> tuple[str, str, dict[Span, str]]:
    """The sentence without marks, the same with spaces for what was marked, and the mark of each such part."""
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
    """Whether a word may be a word of English: `axis`, `a`, but not `n_samples`, `x` or `X`."""
    return word.isalpha() and (word in ("a", "A", "I") or (len(word) > 1 and not word.isupper()))


def _entity(kind: str, span: Span, words: Sequence[Span]) -> Entity | None:
    """The words that overlap with a span of characters; None if there are none."""
    inside = [number for number, (start, end) in enumerate(words) if start < span[1] and span[0] < end]
    return Entity(kind, inside[0], inside[-1] + 1) if inside else None


# pair


def pair_rows(docs: Sequence[Doc], count: int) -> list[Row]:
    """Summaries with a description: half of them with their own, half with that of another object of the library."""
    by_library: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for doc in docs:
        summary, description = plain(doc.text.summary), plain(next(iter(doc.text.description), ""))
        if all(PAIR[0] <= len(text) <= PAIR[1] for text in (summary, description)):
            by_library[doc.library].append((summary, description))
    right: list[tuple[str, Row]] = []
    wrong: list[tuple[str, Row]] = []
    for _, pairs in sorted(by_library.items()):
        for number, (summary, description) in enumerate(pairs):
            other = pairs[(number + 1) % len(pairs)][1]
            if number % 2 == 0:
                right.append((summary, {"text": summary, "pair": description, "label": BELONGS}))
            elif other != description:
                wrong.append((summary, {"text": summary, "pair": other, "label": DOES_NOT_BELONG}))
    rows = [row for part in (right, wrong) for row in _distinct(_by_hash(part), count // 2)]
    return [row for _, row in _by_hash((row["text"], row) for row in rows)]


def _by_hash(rows: Iterable[tuple[str, Row]]) -> list[tuple[str, Row]]:
    return sorted(rows, key=lambda each: keyed_seed(SEED, each[0]))


# answer


def answer_rows(docs: Sequence[Doc], count: int) -> list[Question]:
    """One question about each of so many docstrings."""
    found = ((question.passage, question) for doc in docs if (question := make_question(doc)))
    return _distinct(found, count)


def make_question(doc: Doc) -> Question | None:
    """One of the questions that the docstring of a public object answers; None if it answers too few."""
    if not doc.text.summary or not all(part.isidentifier() and part[0] != "_" for part in doc.name.split(".")):
        return None
    passage, answers = _answered_passage(doc)
    if len(answers) < MIN_QUESTIONS or len(passage) > MAX_CONTEXT:
        return None
    question, (start, end) = answers[keyed_seed(SEED, doc.title) % len(answers)]
    return Question(question, passage, passage[start:end], start)


class _Part(NamedTuple):
    """What a passage says about an item, with places in `text`."""

    text: str
    type: Span
    sentence: Span  # the first of the description


def _part(lead: str, item: Item) -> _Part:
    sentences = split_sentences(plain(item.description))[:MAX_SENTENCES]
    head = f" {lead} ({item.type}): " if item.type else f" {lead}: "
    type_start = len(f" {lead} (")
    answer = sentences[0].rstrip(" .;:") if sentences else ""
    text = f"{head}{' '.join(sentences)}".rstrip()
    return _Part(text, (type_start, type_start + len(item.type)), (len(head), len(head) + len(answer)))


def _answered_passage(doc: Doc) -> tuple[str, list[tuple[str, Span]]]:
    """The summary, as many parameters as fit, and the returned value; and where the answer to each question is."""
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
    """Questions in SQuAD's form."""
    paragraphs = [
        {
            "context": each.passage,
            "qas": [
                {
                    "id": str(number),
                    "question": each.question,
                    "answers": [{"text": each.answer, "answer_start": each.start}],
                }
            ],
        }
        for number, each in enumerate(questions)
    ]
    return {"version": "1.1", "data": [{"title": "documentation", "paragraphs": paragraphs}]}
