"""Tests for `bertmill.load`: all forms of input, and the same predictions as the command line and Hugging Face."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertmill
from bertmill.cli.predict import rounded
from bertmill.errors import BertmillError, DataError, IntegrityError, UsageError
from bertmill.inference.predictor import Predictor
from tests.finetuned import RunMain, read_metadata


@pytest.fixture(scope="module")
def classes(classifier: Path) -> Predictor:
    return bertmill.load(classifier)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (7, "the field 'text' must be a string, not int"),
        ("", "the field 'text' is empty"),
        (("a", " "), "the field 'pair' is empty"),
        (("a", "dog", "sees"), "an input has 3 values, but the task takes only text, pair"),
        (["a", "dog"], "the field 'text' must be a string, not list"),
        ({}, "the field 'text' is missing"),
        ({"pair": "a dog"}, "the field 'text' is missing"),
        ({"text": ("a", "dog"), "pair": "sees"}, "the field 'text' must be a string, not tuple"),
        ({"text": "a dog", "choices": ["a", "b"]}, "the task classify does not take the field 'choices'"),
        ({"text": "a dog", "label": "x"}, "the task classify does not take the field 'label'; use text, pair"),
    ],
    ids=str,
)
def test_an_input_that_does_not_match_the_task_is_rejected(wrong: Any, message: str, classes: Predictor) -> None:
    with pytest.raises(BertmillError, match=message):
        classes.predict(["the cat", wrong])


class Series:
    """Stands in for a column of a data frame: iterable, but not a list."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@pytest.mark.parametrize("kind", [list, Series])
def test_the_prediction_for_a_missing_input_is_none_with_one_warning(kind: Any, classes: Predictor) -> None:
    with pytest.warns(UserWarning, match="3 of 5") as warned:
        found = classes.predict(kind(["a good film", None, "a bad film", math.nan, np.float32("nan")]))
    assert [str(warning.message) for warning in warned] == [
        "3 of 5 inputs are missing (None or NaN); their prediction is None"
    ]
    assert Path(warned[0].filename) == Path(__file__)
    assert [prediction is None for prediction in found] == [False, True, False, True, True]
    assert [found[0], found[2]] == classes.predict(["a good film", "a bad film"])
    with pytest.warns(UserWarning, match="1 of 1 input is missing"):
        assert classes.predict([None]) == [None]


def test_the_prediction_for_an_input_with_a_missing_value_is_none(classes: Predictor) -> None:
    missing = [{"text": None}, {"text": "a dog", "pair": math.nan}, ("a dog", None)]
    with pytest.warns(UserWarning, match="3 of 4 inputs are missing"):
        assert [each is None for each in classes.predict([*missing, "a dog"])] == [True, True, True, False]


def test_top_k_lists_classes(classes: Predictor, tagger: Path) -> None:
    (prediction,) = classes.predict(["a dog"], top_k=1)
    assert prediction["top"] == [{"label": prediction["label"], "score": prediction["score"]}]
    with pytest.raises(UsageError, match="top_k does not apply to the task tag"):
        bertmill.load(tagger).predict(["a dog"], top_k=1)


def test_a_data_frame_is_not_a_list_of_inputs(classes: Predictor) -> None:
    """Iterating over it would yield the names of its columns."""
    frame = Series(["text", "label"])
    frame.columns = ["text", "label"]  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="not a data frame; pass one column, or a list of dicts with the fields"):
        classes.predict(frame)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a text", "predict expects a list of inputs; put the text in a list"),
        (None, "expected a text or a list of texts, not NoneType"),
        ({"text": "a"}, "expected a text or a list of texts, not dict"),
    ],
    ids=str,
)
def test_predict_expects_a_list(inputs: Any, message: str, classes: Predictor) -> None:
    with pytest.raises(UsageError, match=message):
        classes.predict(inputs)


def test_a_pair_is_a_tuple_or_a_dict(classes: Predictor) -> None:
    one, other = classes.predict([("a dog", "the cat"), {"text": "a dog", "pair": "the cat"}])
    assert one == other != classes.predict(["a dog"])[0]
    assert classes.predict([("a dog",)]) == classes.predict(["a dog"])
    assert classes.predict([]) == []


def test_python_and_the_command_line_give_the_same_predictions(
    classes: Predictor, rows_file: Path, run_main: RunMain
) -> None:
    printed = [json.loads(line) for line in run_main("predict", classes.folder, rows_file, "--quiet").splitlines()]
    texts = [line.split("\t")[0] for line in rows_file.read_text(encoding="utf-8").splitlines()[1:]]
    assert [answer.pop("id") for answer in printed] == list(range(1, len(texts) + 1))
    assert printed == rounded(classes.predict(texts))


def test_hugging_face_opens_a_classifier_with_the_same_predictions(classes: Predictor) -> None:
    tokenizer = transformers.BertTokenizer.from_pretrained(classes.folder)
    theirs = transformers.BertForSequenceClassification.from_pretrained(classes.folder).eval()
    with torch.inference_mode():
        scores = theirs(**tokenizer("a good film", return_tensors="pt")).logits.softmax(1)[0].tolist()
    assert list(classes.predict(["a good film"])[0]["scores"].values()) == pytest.approx(scores, abs=1e-5)


# Tags


def test_texts_and_lists_of_words_are_tagged(tagger: Path) -> None:
    model = bertmill.load(tagger)
    text = "good film\tin New York, and a book in Paris."
    answer = model.tag(text)
    assert isinstance(answer, dict)
    assert answer["words"] == ["good", "film", "in", "New", "York", ",", "and", "a", "book", "in", "Paris", "."]
    (again,) = model.tag([answer["words"]])
    assert again["tags"] == answer["tags"]
    assert model.tag([text]) == model.predict([text]) == [answer]
    for entity in answer["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
    assert ("LOC", "New York") in [(each["type"], each["text"]) for each in answer["entities"]]


def test_hugging_face_opens_a_tagger_with_the_same_tags(tagger: Path) -> None:
    theirs = transformers.pipeline("token-classification", model=str(tagger))
    words = ["good", "film", "paris", "dull", "london"]
    (ours,) = bertmill.load(tagger).tag([words])
    given = {each["word"]: each["entity"] for each in theirs(" ".join(words))}
    assert [given.get(word, "O") for word in words] == ours["tags"]


# Answers

PASSAGE = "good film  PARIS cold book"


def test_answer_has_the_interface_of_the_hugging_face_pipeline(answerer: Path) -> None:
    model = bertmill.load(answerer)
    best = model.answer(question="where is it?", context=PASSAGE)
    assert isinstance(best, dict)
    assert list(best) == ["answer", "start", "end", "score"]
    assert best["answer"] == PASSAGE[best["start"] : best["end"]] == "PARIS"
    both = model.answer(question=["where is it?"] * 2, context=[PASSAGE, "good film"], top_k=2)
    assert [len(each) for each in both] == [2, 2]
    shared = model.answer(question=["where is it?"] * 2, context=PASSAGE)
    assert isinstance(shared, list)
    assert [each["answer"] for each in shared] == ["PARIS"] * 2
    nothing = model.answer("where is it?", "good cold film", handle_impossible_answer=True)
    assert isinstance(nothing, dict)
    assert nothing["answer"] == ""
    something = model.answer("where is it?", "good cold film")
    assert isinstance(something, dict)
    assert something["answer"]
    assert model.predict([("where is it?", PASSAGE)])[0]["answer"] == "PARIS"


def test_the_metadata_limits_the_length_of_answers(answerer: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(answerer, tmp_path / "model")
    changed = {**read_metadata(folder), "max_answer_pieces": 1, "null_threshold": -1e9}
    (folder / "bertmill.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"bertmill\.json has"):
        bertmill.load(folder).answer("where is it?", "good film new york cold book")
    (folder / "manifest.json").unlink()
    best = bertmill.load(folder).answer("where is it?", "good film new york cold book")
    assert isinstance(best, dict)
    assert " " not in best["answer"]


def test_calls_that_do_not_match_the_task_are_rejected(tagger: Path, answerer: Path) -> None:
    model = bertmill.load(answerer)
    with pytest.raises(UsageError, match="fine-tuned for the task tag, not answer"):
        bertmill.load(tagger).answer("a", "b")
    with pytest.raises(UsageError, match="fine-tuned for the task answer, not tag"):
        model.tag("a")
    with pytest.raises(UsageError, match="got 2 questions but 1 context; pass one context per question"):
        model.answer(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="expected a text or a list of texts, not NoneType"):
        model.answer("a", None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="top_k must be between 1 and 20"):
        model.answer("a", "b", top_k=21)
    with pytest.raises(DataError, match="the field 'passage' is empty"):
        model.answer("a", " ")
    with pytest.raises(UsageError, match="expected a text or a list of texts, not int"):
        bertmill.load(tagger).tag(3)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="word 2 of 2 is empty"):
        bertmill.load(tagger).tag([["a", ""]])
