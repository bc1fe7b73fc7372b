"""Tests for rows from documentation: their content, no leaked labels, and files that the tasks can read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertmill.demo.docstrings import CODE, END, TYPE, Docstring, Item, plain
from bertmill.demo.documentation import Doc, collect_docs, find_sources, split_by_group
from bertmill.demo.rows import (
    BELONGS,
    DOES_NOT_BELONG,
    MAX_CONTEXT,
    PASSAGE,
    Sizes,
    answer_rows,
    classify_rows,
    make_question,
    pair_rows,
    parameter_names,
    squad,
    tag_rows,
    tag_sentence,
    without_library_names,
    write_rows,
)
from bertmill.rows.source import RowFile
from bertmill.tasks import load_task
from tests.demo.factory import make_doc, write_library


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> list[Doc]:
    root = tmp_path_factory.mktemp("libraries")
    for library in ("one", "two", "three"):
        write_library(root / library, library, num_modules=12)
    return collect_docs(find_sources({library: root / library for library in ("one", "two", "three")}), workers=1)


def code(text: str) -> str:
    return f"{CODE}{text}{END}"


# classify


def test_every_library_has_the_same_number_of_passages(docs: list[Doc]) -> None:
    rows = classify_rows(docs, 30)
    assert Counter(row["label"] for row in rows) == {"one": 10, "two": 10, "three": 10}
    assert len({row["text"] for row in rows}) == 30
    assert all(PASSAGE[0] <= len(row["text"]) <= PASSAGE[1] for row in rows)


NAMES = (
    "torch",
    "PyTorch",
    "torch.nn",
    "NumPy's",
    "np.inf",
    "(nx.Graph)",
    "scikit-learn",
    "Python",
    "from_numpy",
    "NX",
)


@given(st.lists(st.sampled_from(NAMES) | st.from_regex(r"[a-z]{1,6}[,.]?", fullmatch=True), max_size=30))
def test_passages_do_not_name_a_library(words: list[str]) -> None:
    text = without_library_names(" ".join(words))
    parts = text.lower().replace(".", " ").replace(",", " ").split()
    assert not {"np", "nx", "torch"} & set(parts)
    for name in ("torch", "numpy", "scipy", "sklearn", "scikit", "sympy", "networkx", "python"):
        assert name not in text.lower()
    assert [word for word in text.split() if word not in words] == []


def test_words_that_merely_contain_an_abbreviation_are_kept() -> None:
    assert without_library_names("The input of np and unpacked snx.") == "The input of and unpacked snx."


# tag


@pytest.mark.parametrize(
    ("sentence", "tags"),
    [
        (f"The value of {code('axis')} must be positive here.", {"axis": "B-parameter"}),
        (f"It calls {code('np.dot(a, b)')} on every one of them.", {"np.dot": "B-code", "a": "I-code", "b": "I-code"}),
        (
            f"An instance of {TYPE}Graph{END} or of {code('ValueError')} is made.",
            {"Graph": "B-type", "ValueError": "B-type"},
        ),
        ("The matrix is an ndarray with n_rows rows in it.", {"ndarray": "B-type", "n_rows": "B-parameter"}),
        (f"If {code('True')} the result is a {code('list')} of numbers.", {"True": "B-code", "list": "B-type"}),
    ],
)
def test_tags_follow_the_markup(sentence: str, tags: dict[str, str]) -> None:
    row = tag_sentence(sentence, frozenset(("axis", "n_rows", "x")))
    assert row is not None
    assert {word: tag for word, tag in zip(row["words"], row["tags"], strict=True) if word in tags} == tags
    assert sum(tag != "O" for tag in row["tags"]) >= len(tags)
    assert not {"`", CODE, TYPE, END} & set("".join(row["words"]))


@pytest.mark.parametrize(
    "sentence",
    [
        "There is nothing to tag in here.",
        f"The axis is ordinary and {code('x')} is not.",  # `axis` may be the parameter
        f"If True then {code('x')} is left as it was.",
        f"It calls compute_all on {code('x')} and on nothing else.",
        f"It calls compute() on {code('x')} and on nothing else.",
        f"Only {code('x')} here.",
        f"The sentence was split in {CODE}the middle of code.",
    ],
)
def test_a_sentence_with_nothing_to_tag_or_ambiguous_markup_is_skipped(sentence: str) -> None:
    assert tag_sentence(sentence, frozenset(("axis", "x"))) is None


PARTS = st.lists(st.from_regex(r"[a-z]{2,7}", fullmatch=True), min_size=1, max_size=4).map(" ".join)


@given(st.lists(st.tuples(st.sampled_from(["", CODE, TYPE]), PARTS), min_size=3, max_size=10))
def test_words_and_tags_match_the_marked_parts(parts: list[tuple[str, str]]) -> None:
    sentence = " ".join(f"{mark}{text}{END}" if mark else text for mark, text in parts)
    row = tag_sentence(sentence, frozenset())
    if row is None:
        return
    assert " ".join(row["words"]) == plain(sentence)
    assert len(row["words"]) == len(row["tags"])
    expected = [begin for mark, text in parts for begin in ([bool(mark)] + [False] * text.count(" "))]
    begins = [tag.startswith("B-") for tag in row["tags"]]
    assert all(found or not wanted for found, wanted in zip(begins, expected, strict=True))


def test_parameter_names_come_from_signature_and_documentation() -> None:
    items = (Item("x, y", "", "Two."), Item("*args", "", ""), Item("not a name", "", ""))
    doc = Doc("lib", "lib.a", "f", ("n_rows",), Docstring("Summary.", parameters=items))
    assert parameter_names(doc) == {"n_rows", "x", "y", "args"}


def test_tagged_sentences_are_distinct(docs: list[Doc]) -> None:
    rows = tag_rows(docs, 40)
    assert len({tuple(row["words"]) for row in rows}) == len(rows) == 40


# pair


def test_half_of_the_pairs_belong_together(docs: list[Doc]) -> None:
    rows = pair_rows(docs, 20)
    assert Counter(row["label"] for row in rows) == {BELONGS: 10, DOES_NOT_BELONG: 10}
    own = {plain(doc.text.summary): plain(doc.text.description[0]) for doc in docs if doc.text.description}
    libraries = {text: doc.library for doc in docs for text in map(plain, doc.text.paragraphs)}
    for row in rows:
        assert (own[row["text"]] == row["pair"]) == (row["label"] == BELONGS)
        assert libraries[row["text"]] == libraries[row["pair"]]


# answer

SENTENCES = st.lists(st.from_regex(r"[A-Z][a-z]{1,9}( [a-z]{1,9}){0,6}\.", fullmatch=True), max_size=3).map(" ".join)
KINDS = st.sampled_from(["", "int", "array_like", "list of str", "{'a', 'b'}"])
ITEMS = st.builds(Item, st.from_regex(r"[a-z_]{1,6}", fullmatch=True), KINDS, SENTENCES)


@given(SENTENCES, st.lists(ITEMS, max_size=6), st.lists(ITEMS, max_size=2))
def test_an_answer_starts_at_its_recorded_position(summary: str, parameters: list[Item], returns: list[Item]) -> None:
    text = Docstring(summary, parameters=tuple(parameters), returns=tuple(returns))
    found = make_question(Doc("lib", "lib.a", "Class.method", (), text))
    if found is None:
        return
    assert found.answer
    assert found.passage[found.start :].startswith(found.answer)
    assert found.passage.startswith(summary)
    assert len(found.passage) <= MAX_CONTEXT
    assert found.question.endswith("?")
    assert "lib.Class.method" in found.question


def test_questions_are_about_parameters_types_and_return_values() -> None:
    docstring = """Add numbers.

    Parameters
    ----------
    first : int
        The first number. It may be negative.

    Returns
    -------
    total : float
        The sum of both numbers.
    """
    answers = {
        "What is the parameter first of lib.{}?": "The first number",
        "What type is the parameter first of lib.{}?": "int",
        "What does lib.{} return?": "The sum of both numbers",
    }
    found = {}
    for name in (f"add{number}" for number in range(30)):  # the name determines the question
        question = make_question(make_doc(docstring, name))
        assert question is not None
        found[question.question.replace(name, "{}")] = question.answer
    assert found == answers
    assert make_question(make_doc(docstring, "_private")) is None
    assert make_question(make_doc("Add numbers.")) is None


# files


def test_tasks_can_read_the_files(docs: list[Doc], tmp_path: Path) -> None:
    train, test = split_by_group(docs, 0.3)
    sizes = Sizes(classify=(30, 15), tag=(20, 10), pair=(10, 4), answer=(12, 6))
    write_rows(tmp_path, train, test, sizes)
    for name, count in (("classify-train", 30), ("classify-test", 15), ("pair-train", 10), ("tag-train", 20)):
        task = load_task("tag" if name.startswith("tag-") else "classify")
        file = RowFile(str(tmp_path / f"{name}.jsonl"))
        assert len(list(task.read(file, task.Options(), labeled=True))) == count
    task = load_task("answer")
    for part, count in (("train", 12), ("test", 6)):
        file = RowFile(str(tmp_path / f"answer-{part}.json"))
        rows = list(task.read(file, task.Options(), labeled=True))
        assert len(rows) == count
        assert not file.counts.corrected.total()


def test_rows_do_not_depend_on_the_order_of_the_documentation(docs: list[Doc], tmp_path: Path) -> None:
    sizes = Sizes(classify=(30, 15), tag=(20, 10), pair=(10, 4), answer=(12, 6))
    contents = []
    for name, given_docs in (("a", docs), ("b", docs[::-1])):
        (tmp_path / name).mkdir()
        write_rows(tmp_path / name, given_docs, given_docs, sizes)
        contents.append({path.name: path.read_text() for path in sorted((tmp_path / name).iterdir())})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 8


def test_squad_answers_have_the_right_start(docs: list[Doc]) -> None:
    content = json.loads(json.dumps(squad(answer_rows(docs, 10))))
    paragraphs = content["data"][0]["paragraphs"]
    assert len(paragraphs) == 10
    for paragraph in paragraphs:
        (question,) = paragraph["qas"]
        (answer,) = question["answers"]
        assert paragraph["context"][answer["answer_start"] :].startswith(answer["text"])
