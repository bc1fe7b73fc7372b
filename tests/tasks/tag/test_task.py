"""Tests for tag: every word gets exactly one tag, in texts of any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertmill.batching.windows import Windows
from bertmill.errors import DataError
from bertmill.model.bert import BertForTokenClassification
from bertmill.model.config import BertConfig
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.tasks.base import TaskOptions
from bertmill.tasks.tag.rows import WordsRow
from bertmill.tasks.tag.task import Tag, TagExample
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import join_words

TOKENIZER = BertTokenizer.from_pretrained("minilm")
TASK = Tag(("O", "B-X", "I-X"), has_spans=True)
WORDS = st.text(max_size=8) | st.sampled_from(["\u200b", "", "x" * 500, "." * 40, "北京", "[MASK]", "ﬁ", "naïve"])


def row_of(words: list[str], tags: tuple[str, ...] | None = None) -> WordsRow:
    text, spans = join_words(words)
    return WordsRow("f:1", (text,), tuple(spans), tags)


def encode(words: list[str], max_length: int = 64, stride: int = 0) -> TagExample:
    return TASK.encode(row_of(words), Windows(TOKENIZER, max_length, stride))


def encode_tags(task: Tag, words: list[str], *tags: str) -> TagExample:
    return task.encode(row_of(words, tags), Windows(TOKENIZER, 64))


def from_rows(*rows: WordsRow, file: RowFile | None = None) -> Tag:
    return Tag.from_rows(rows, TaskOptions(), TOKENIZER, file or RowFile("file"))


def from_folder(*tags: str) -> Tag:
    config = BertConfig.of_size("tiny").with_settings(
        id2label=dict(enumerate(tags)), architectures=["BertForTokenClassification"]
    )
    task = Tag.from_folder(config, {})
    assert task is not None
    return task


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(5, 40), st.integers(0, 30))
def test_every_word_has_one_first_piece_in_the_windows(words: list[str], max_length: int, stride: int) -> None:
    encoded = encode(words, max_length, stride)
    all_ids = np.concatenate([window.ids for window in encoded.sequences[0]])
    pieces = [TOKENIZER.wordpiece.ids(word, split_special=True) for word in words]
    assert len(encoded.firsts) == len(words)
    assert all_ids[encoded.firsts].tolist() == [ids[0] if ids else TOKENIZER.unk_token_id for ids in pieces]
    num_pieces = sum(max(1, len(ids)) for ids in pieces)
    shown = sum(len(window.ids) - 2 for window in encoded.sequences[0])
    assert shown >= num_pieces
    assert all(len(window.ids) <= max_length for window in encoded.sequences[0])


@pytest.fixture(scope="module")
def model() -> BertForTokenClassification:
    torch.manual_seed(0)
    config = BertConfig.of_size("tiny").with_settings(vocab_size=len(TOKENIZER), **TASK.folder_entries().config)
    return BertForTokenClassification(config).eval()


@settings(max_examples=20)
@given(sentences=st.lists(st.lists(WORDS, max_size=12), min_size=1, max_size=4))
def test_every_word_gets_a_tag_and_entities_match_the_text(
    model: BertForTokenClassification, sentences: list[list[str]]
) -> None:
    examples = [encode(words, 16) for words in sentences]
    with torch.inference_mode():
        outputs = TASK.outputs(model, examples, torch.device("cpu"))
    answers = TASK.decode(examples, [output.numpy() for output in outputs])
    for words, example, answer in zip(sentences, examples, answers, strict=True):
        assert answer["words"] == words
        assert len(answer["tags"]) == len(answer["scores"]) == len(words)
        (text,) = example.row.texts
        for entity in answer["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]


def test_a_text_of_ten_thousand_words_is_tagged_completely(model: BertForTokenClassification) -> None:
    example = TASK.encode(TASK.request({"text": "It is so. " * 2_500}), Windows(TOKENIZER, 512))
    with torch.inference_mode():
        (output,) = TASK.outputs(model, [example], torch.device("cpu"))
    assert output.shape == (10_000, 3)


def test_a_word_is_read_where_it_has_the_widest_context() -> None:
    encoded = encode(list("abcdefghijklmnopqrst"), 10, 4)  # windows of 8 pieces with a stride of 4
    windows, places = np.divmod(encoded.firsts, 10)
    assert windows.tolist() == [0] * 6 + [1] * 4 + [2] * 4 + [3] * 6
    assert places[:7].tolist() == [1, 2, 3, 4, 5, 6, 3]


def test_tags_of_any_scheme_are_learned_as_iob2() -> None:
    rows = [row_of(["a", "b", "c"], ("I-PER", "I-PER", "O")), row_of(["a", "b"], ("I-LOC", "B-LOC"))]
    file = RowFile("file")
    task = from_rows(*rows, file=file)
    assert task.tags == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    windows = Windows(TOKENIZER, 64)
    example, other = (task.encode(row, windows) for row in rows)
    assert (example.target, other.target) == ((3, 4, 0), (1, 1))
    assert file.counts.notices == ["tags mark spans of words (IOB1, learned as IOB2)"]
    assert task.labels(rows[0]) == ("PER",)
    output = np.zeros((3, 5), np.float32)
    assert task.mistake(example, output, task.score(example, output)) == (0.0, ("PER a b",))
    assert task.folder_entries() == ({"id2label": dict(enumerate(task.tags))}, {"scheme": "IOB1"})
    plain = from_rows(row_of(["a", "b"], ("VERB", "NOUN")))
    assert (plain.tags, plain.selection_metrics) == (("NOUN", "VERB"), ("accuracy",))


def test_a_single_tag_cannot_be_learned() -> None:
    with pytest.raises(DataError, match="file: there are fewer than two different tags"):
        from_rows(row_of(["a"], ("X",)))


def test_an_odd_tag_is_a_bad_row_and_does_not_affect_other_rows() -> None:
    good = row_of(["a", "b", "c"], ("I-PER", "I-PER", "O")), row_of(["a", "b"], ("I-LOC", "B-LOC"))
    task = from_rows(*good)
    assert from_rows(*good, row_of(["a", "b"], ("E-LOC", "0"))) == task
    with pytest.raises(BadRowError, match="f:1, word 2: the tag '0' is not one of O, B-LOC"):
        encode_tags(task, ["a", "b"], "E-LOC", "0")


@pytest.mark.parametrize("unknown", ["B-ORG", "E-ORG", "NOUN"])
def test_an_unknown_tag_is_reported_as_written_in_the_file(unknown: str) -> None:
    with pytest.raises(BadRowError, match=f"f:1, word 1: the tag '{unknown}' is not one of O, B-X, I-X"):
        encode_tags(TASK, ["a"], unknown)


def test_models_from_other_programs_keep_their_scheme() -> None:
    task = from_folder("O", "B-X", "I-X", "E-X", "S-X")
    example = encode_tags(task, ["a", "b", "c"], "S-X", "B-X", "E-X")
    assert example.target == (4, 1, 3)
    figures = task.metrics(np.stack([task.score(example, np.eye(5, dtype=np.float32)[[4, 1, 3]])]))
    assert figures == {"accuracy": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}


def test_a_model_without_b_tags_is_evaluated_with_its_own_tags() -> None:
    assert encode_tags(from_folder("O", "I-LOC", "I-PER"), ["a", "b", "c"], "I-PER", "I-PER", "O").target == (2, 2, 0)


def test_plain_tags_are_evaluated_word_by_word() -> None:
    task = Tag(("NOUN", "VERB"), has_spans=False)
    example = encode_tags(task, ["a", "b", "c"], "NOUN", "VERB", "VERB")
    output = np.array([[2, 1], [2, 1], [1, 2]], np.float32)
    scores = np.stack([task.score(example, output)])
    assert task.metrics(scores) == {"accuracy": pytest.approx(2 / 3)}
    noun, verb = task.class_report(scores).figures
    assert (noun.precision, noun.recall, verb.precision, verb.recall) == (0.5, 1.0, 1.0, 0.5)
    (answer,) = task.decode([example], [output])
    assert "entities" not in answer
    assert task.show(answer) == "NOUN NOUN VERB"
    assert task.mistake(example, output, scores[0]) == (pytest.approx(1.0), ("NOUN", "VERB", "VERB"))


def test_an_underscore_may_be_a_tag_or_the_kind_of_single_letter_tags() -> None:
    plain = Tag(("NOUN", "_"), has_spans=False)
    assert plain.labels(row_of(["a", "b"], ("_", "NOUN"))) == ("NOUN", "_")
    segments = from_rows(row_of(["a", "b", "c"], ("B", "E", "S")))
    assert segments.labels(row_of(["a", "b", "c"], ("B", "E", "S"))) == ("_",)


def test_a_prediction_is_shown_as_entities_and_written_as_conll() -> None:
    example = encode(["in", "New\tYork", "City"])
    (answer,) = TASK.decode([example], [np.eye(3, dtype=np.float32)[[0, 1, 2]] * 9])
    assert TASK.show(answer) == "X New York City"
    (nothing,) = TASK.decode([example], [np.eye(3, dtype=np.float32)[[0, 0, 0]]])
    assert TASK.show(nothing) == "none"
    assert Tag.output_formats["conll"](answer) == "in\tO\nNew York\tB-X\nCity\tI-X\n\n"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "takes either 'text' or 'words'"),
        ({"text": "a", "words": ["a"]}, "takes either 'text' or 'words'"),
        ({"text": "a", "pair": "b"}, "the task tag does not take the field 'pair'; use text, words"),
        ({"words": ["a", ""]}, "word 2 of 2 is empty"),
        ({"words": []}, "words must be a non-empty list of strings"),
        ({"words": "a b"}, "the field 'words' must be a list of strings"),
        ({"words": 3}, "words must be a non-empty list of strings"),
        ({"text": " "}, "the field 'text' is empty"),
        ({"text": ["a", "b"]}, "the field 'text' must be a string, not list"),
    ],
)
def test_a_request_is_a_text_or_a_list_of_words(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRowError, match=message):
        TASK.request(fields)


def test_the_baseline_is_the_tag_with_the_best_metric_and_every_word_has_a_confidence() -> None:
    example = encode_tags(TASK, ["in", "new", "york", "now"], "O", "B-X", "I-X", "O")
    answer, scores = TASK.baseline([example], "accuracy")
    metrics = TASK.metrics(scores)
    assert (answer, metrics["accuracy"], metrics["f1"]) == ("always O", 0.5, 0)
    answer, scores = TASK.baseline([encode_tags(TASK, ["new", "york", "paris"], "O", "O", "B-X")], "f1")
    assert (answer, TASK.metrics(scores)["f1"]) == ("always B-X", 0.5)
    output = np.eye(3, dtype=np.float32)[[0, 1, 1, 0]] * 10
    decisions = list(TASK.confidences(example, output))
    assert [is_right for _, is_right in decisions] == [True, True, False, True]
    assert all(confidence > 0.99 for confidence, _ in decisions)


def test_conll_has_no_control_characters() -> None:
    answer = {"words": ["a\x1b[2J", "b\u202e\x9b", "c\td"], "tags": ["O", "X\x1b", "O"]}
    assert Tag.output_formats["conll"](answer) == "a\\x1b[2J\tO\nb\\u202e\\x9b\tX\\x1b\nc d\tO\n\n"
