"""Tags and answers by their commands and in Python: learnt, measured, given for raw text, with characters as given."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers
from bertmill.tasks.kinds import task_of_folder

import bertmill
from bertmill.cli.main import main
from bertmill.errors import UsageError
from bertmill.tasks.answer import AnswerQuestions
from tests.training.test_finetune import WORDS, tiny

__all__ = ["tiny"]  # a fixture

PLACES = ["paris", "london", "new york"]


def sentence_of(draw: random.Random, place: str | None) -> list[str]:
    words = draw.choices(WORDS, k=draw.randint(3, 10))
    if place is not None:
        words.insert(draw.randint(0, len(words)), place)
    return words


@pytest.fixture(scope="module")
def tagged_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences in columns, IOB1, in which places are to be found."""
    draw = random.Random(1)
    lines = ["-DOCSTART- O", ""]
    for _ in range(120):
        for word in sentence_of(draw, draw.choice([*PLACES, None])):
            parts = word.split()
            lines += [f"{part} {'I-LOC' if word in PLACES else 'O'}" for part in parts]
        lines.append("")
    path = tmp_path_factory.mktemp("tags") / "train.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def questions_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where is it? The only place in the passage, if there is one."""
    draw = random.Random(2)
    questions = []
    for number in range(160):
        place = draw.choice([*PLACES, None])
        passage = " ".join(sentence_of(draw, place))
        answers = [] if place is None else [{"text": place, "answer_start": passage.index(place)}]
        qas = [{"id": str(number), "question": "where is it?", "answers": answers, "is_impossible": place is None}]
        questions.append({"context": passage, "qas": qas})
    path = tmp_path_factory.mktemp("questions") / "train.json"
    path.write_text(json.dumps({"version": "2.0", "data": [{"paragraphs": questions}]}), encoding="utf-8")
    return path


def trained(task: str, tiny: Path, file: Path, out: Path, epochs: int) -> Path:
    flags = ["--model", tiny, "--train", file, "--dev", file, "--out", out, "--epochs", epochs, "--threads", 1]
    flags += ["--batch-size", 8, "--learning-rate", 2e-3, "--dropout", 0, "--eval-every", 40]
    assert main(["finetune", task, *map(str, flags), "--quiet"]) == 0
    return out / "model"


@pytest.fixture(scope="module")
def tagger(tiny: Path, tagged_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("tag", tiny, tagged_file, tmp_path_factory.mktemp("runs") / "tag", 6)


@pytest.fixture(scope="module")
def answerer(tiny: Path, questions_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained("answer", tiny, questions_file, tmp_path_factory.mktemp("runs") / "answer", 12)


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    assert main(list(map(str, words))) == 0
    return capsys.readouterr().out


def figures(capsys: pytest.CaptureFixture[str], model: Path, file: Path) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(printed(capsys, "evaluate", model, "--data", file, "--json", "--quiet"))
    return given


# Tags


def test_a_tagger_learns_and_is_measured(tagger: Path, tagged_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = figures(capsys, tagger, tagged_file)
    for name in ("accuracy", "precision", "recall", "f1", "strict_f1"):
        value = measured["metrics"][name]
        assert 0.9 < value["value"] <= 1
        assert value["low"] <= value["value"] <= value["high"]
    assert [each["label"] for each in measured["classes"]] == ["LOC"]
    table = printed(capsys, "evaluate", tagger, "--data", tagged_file)
    assert "120 rows" in table
    assert "LOC" in table


def test_raw_text_gets_words_tags_and_entities_in_their_places(
    tagger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "A  good film\tin New York, and a book in Paris."
    answer = json.loads(printed(capsys, "predict", tagger, "--text", text, "--quiet"))
    assert answer["words"] == ["A", "good", "film", "in", "New", "York", ",", "and", "a", "book", "in", "Paris", "."]
    assert len(answer["tags"]) == len(answer["words"])
    found = [(each["type"], each["text"]) for each in answer["entities"]]
    assert ("LOC", "New York") in found
    assert ("LOC", "Paris") in found
    for each in answer["entities"]:
        assert text[each["start"] : each["end"]] == each["text"]
    assert bertmill.load(tagger).tag(text) == answer
    (again,) = bertmill.load(tagger).tag([answer["words"]])
    assert again["tags"] == answer["tags"]
    file = tmp_path / "texts.txt"
    file.write_text(text + "\n", encoding="utf-8")
    columns = printed(capsys, "predict", tagger, file, "--format", "columns", "--quiet")
    assert (
        columns == "".join(f"{word}\t{tag}\n" for word, tag in zip(answer["words"], answer["tags"], strict=True)) + "\n"
    )
    assert "LOC New York" in printed(capsys, "predict", tagger, file, "--format", "table", "--quiet")
    assert json.loads(printed(capsys, "predict", tagger, file, "--quiet"))["id"] == 1
    records = tmp_path / "records.jsonl"
    records.write_text(json.dumps({"id": "a", "tokens": ["new", "york"]}) + "\n", encoding="utf-8")
    assert json.loads(printed(capsys, "predict", tagger, records, "--quiet"))["id"] == "a"


def test_a_tagger_opens_in_hugging_face_with_the_same_tags(tagger: Path) -> None:
    theirs = transformers.pipeline("token-classification", model=str(tagger))
    words = ["good", "film", "paris", "dull", "london"]
    (ours,) = bertmill.load(tagger).tag([words])
    given = {each["word"]: each["entity"] for each in theirs(" ".join(words))}
    assert [given.get(word, "O") for word in words] == ours["tags"]


# Answers


def test_an_answerer_learns_and_keeps_its_threshold(
    answerer: Path, questions_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = figures(capsys, answerer, questions_file)["metrics"]
    assert measured["f1"]["value"] > 0.8
    assert {"exact", "f1", "exact_at_zero", "f1_at_zero", "answerable_f1", "unanswerable_right"} == set(measured)
    note = json.loads((answerer / "bertmill.json").read_text(encoding="utf-8"))
    assert isinstance(note["null_threshold"], float)
    assert note["max_answer_pieces"] == 30
    assert note["dev"]["f1"] == pytest.approx(measured["f1"]["value"])
    assert note["dev"]["f1"] >= note["dev"]["f1_at_zero"]


@pytest.mark.parametrize(("name", "value"), [("null_threshold", "low"), ("max_answer_pieces", 0)])
def test_a_note_that_makes_no_sense_is_refused(
    name: str, value: object, answerer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(answerer, tmp_path / "model")
    note = json.loads((answerer / "bertmill.json").read_text(encoding="utf-8"))
    (tmp_path / "model/bertmill.json").write_text(json.dumps({**note, name: value}), encoding="utf-8")
    assert main(["predict", str(tmp_path / "model"), "--question", "Where?", "--text", "Here."]) == 4
    assert "bertmill.json: has a null_threshold or a max_answer_pieces that is no such" in capsys.readouterr().err


def test_answers_may_be_as_long_as_the_note_of_the_model_says(answerer: Path, tmp_path: Path) -> None:
    shutil.copytree(answerer, tmp_path / "model")
    note = json.loads((answerer / "bertmill.json").read_text(encoding="utf-8"))
    (tmp_path / "model/bertmill.json").write_text(json.dumps({**note, "max_answer_pieces": 107}), encoding="utf-8")
    task = task_of_folder(tmp_path / "model")
    assert isinstance(task, AnswerQuestions)
    assert task.max_answer_pieces == 107
    assert task.null_threshold == note["null_threshold"]


def test_questions_are_answered_by_command_and_in_python(
    answerer: Path, questions_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passage = "A good film  of PARIS, cold."
    asked = ["predict", answerer, "--question", "Where is it?", "--text", passage, "--quiet"]
    answer = json.loads(printed(capsys, *asked))
    assert answer["answer"] == "PARIS"
    assert passage[answer["start"] : answer["end"]] == "PARIS"
    three = json.loads(printed(capsys, *asked, "--top-k", "3"))
    assert len(three["answers"]) == 3
    assert three["answers"][0]["answer"] == "PARIS"
    model = bertmill.load(answerer)
    best = model.answer(question="Where is it?", context=passage)
    assert isinstance(best, dict)
    assert list(best) == ["answer", "start", "end", "score"]
    assert best["answer"] == "PARIS"
    both = model.answer(question=["Where is it?"] * 2, context=[passage, "good film"], top_k=2)
    assert [len(each) for each in both] == [2, 2]
    nothing = model.answer("Where is it?", "good cold film", handle_impossible_answer=True)
    assert isinstance(nothing, dict)
    assert nothing["answer"] == ""
    assert model.predict([("Where is it?", passage)])[0]["answer"] == "PARIS"
    lines = printed(capsys, "predict", answerer, questions_file, "--quiet").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(number) for number in range(160)]
    header = printed(capsys, "predict", answerer, questions_file, "--format", "csv", "--quiet").splitlines()[0]
    assert header == "id,answer,start,end,score,question,text"


def test_what_does_not_fit_the_task_is_told(
    answerer: Path, tagger: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["predict", answerer, "--text", "a"],
        ["predict", tagger, "--text", "a", "--question", "b"],
        ["predict", answerer, "--text", "a", "--question", "b", "--format", "columns"],
        ["predict", tagger, "--text", "a", "--truncate"],
        ["predict", tagger, "--text", "a", "--pair", "b"],
        ["predict", tagger, "--text", "a", "--choice", "b", "--choice", "c"],
        ["predict", tagger, "--text", "a", "--max-length", "32", "--stride", "33"],
        ["predict", tagger, "--text", "a", "--stride", "2000"],
    ):
        assert main(list(map(str, words))) == 2, words
    with pytest.raises(UsageError, match="fine-tuned for the task tag, not answer"):
        bertmill.load(tagger).answer("a", "b")
    with pytest.raises(UsageError, match="lists of as many texts"):
        bertmill.load(answerer).answer(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="should be a text or a list of texts, not NoneType"):
        bertmill.load(answerer).answer("a", None)
    with pytest.raises(UsageError, match="is empty"):
        bertmill.load(answerer).answer("a", " ")
    with pytest.raises(UsageError, match="should be a text or a list of texts, not int"):
        bertmill.load(tagger).tag(3)
    with pytest.raises(UsageError, match="none of them empty"):
        bertmill.load(tagger).tag([["a", ""]])
    plain = tmp_path / "pos.tsv"
    plain.write_text("a\tX\nb\tY\n\n" * 20, encoding="utf-8")
    flags = ["--model", tiny, "--train", plain, "--out", tmp_path / "run", "--metric", "f1"]
    assert main(["finetune", "tag", *map(str, flags)]) == 2
    assert "metric" in (said := capsys.readouterr().err)
    assert "f1" in said
    assert "accuracy" in said


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("tag", "bad.conll", "good O\nfilm\n", "bad.conll:2: has 1 columns, where the first line has 2"),
        ("tag", "bad.jsonl", '{"words": ["a"], "tags": ["O", "O"]}\n', "bad.jsonl:1: has 1 words and 2 tags"),
        ("tag", "bad.conll", "good B-ORG\n", "bad.conll:1: the tag 'B-ORG' is not one of O, B-LOC, I-LOC"),
        ("answer", "bad.jsonl", '{"question": "q", "context": "c", "answer": "d"}\n', "bad.jsonl:1: the answer 'd'"),
    ],
)
def test_a_bad_row_is_one_line_with_its_place(
    task: str, name: str, content: str, message: str,
    tagger: Path, answerer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    model = {"tag": tagger, "answer": answerer}[task]
    assert main(["evaluate", str(model), "--data", str(file)]) == 3
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
