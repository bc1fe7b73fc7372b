"""A tag for every word: exactly one, whatever the word and however long the text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from bertmill.tasks.labelled import LabelledRow
from bertmill.tasks.windows import WindowMaker
from hypothesis import given, settings
from hypothesis import strategies as st

from bertmill.errors import DataError
from bertmill.model.bert import BertForTokenClassification
from bertmill.model.config import BertConfig
from bertmill.tasks.base import EncodedExample
from bertmill.tasks.tag import EncodedWords, Tag
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.words import join_words

TOKENIZER = BertTokenizer.from_pretrained("minilm")
TASK = Tag(("O", "B-X", "I-X"), has_spans=True)
WORDS = st.text(max_size=8) | st.sampled_from(["\u200b", "", "x" * 500, "." * 40, "北京", "[MASK]", "ﬁ", "naïve"])


def row_of(words: list[str], tags: tuple[str, ...] | None = None) -> LabelledRow:
    text, spans = join_words(words)
    return LabelledRow("f:1", (text,), tags, spans=tuple(spans))


def encode(words: list[str], max_length: int, stride: int | None = None) -> EncodedWords:
    return TASK.encode(TASK.example(row_of(words)), WindowMaker(TOKENIZER, max_length, stride))


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(5, 40), st.none() | st.integers(1, 30))
def test_every_word_has_one_first_piece_in_the_windows(words: list[str], max_length: int, stride: int | None) -> None:
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
    config = BertConfig.of_size("tiny").with_settings(vocab_size=len(TOKENIZER), **TASK.settings())
    return BertForTokenClassification(config).eval()


@settings(deadline=None, max_examples=20)
@given(sentences=st.lists(st.lists(WORDS, max_size=12), min_size=1, max_size=4))
def test_every_word_gets_a_tag_and_spans_lie_in_the_text(
    model: BertForTokenClassification, sentences: list[list[str]]
) -> None:
    examples: list[EncodedExample] = [encode(words, 16) for words in sentences]
    with torch.inference_mode():
        outputs = TASK.outputs(model, examples, torch.device("cpu"))
    for words, example, output in zip(sentences, examples, outputs, strict=True):
        answer = TASK.decode(example, output.numpy())
        assert answer["words"] == words
        assert len(answer["tags"]) == len(answer["scores"]) == len(words)
        (text,) = example.example.row.texts
        for entity in answer["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]


def test_a_text_of_ten_thousand_words_is_tagged_whole(model: BertForTokenClassification) -> None:
    example = TASK.encode(TASK.example(LabelledRow("f:1", ("It is so. " * 2_500,))), WindowMaker(TOKENIZER, 512))
    with torch.inference_mode():
        (output,) = TASK.outputs(model, [example], torch.device("cpu"))
    assert output.shape == (10_000, 3)


def test_a_word_is_read_where_it_has_the_widest_context() -> None:
    encoded = encode([chr(ord("a") + number) for number in range(20)], 10, 4)  # windows of 8 pieces, by 4
    windows, places = np.divmod(encoded.firsts, 10)
    assert windows.tolist() == [0] * 6 + [1] * 4 + [2] * 4 + [3] * 6
    assert places[:7].tolist() == [1, 2, 3, 4, 5, 6, 3]


def test_the_labels_are_iob2_whatever_the_data_has() -> None:
    rows = [row_of(["a", "b", "c"], ("I-PER", "I-PER", "O")), row_of(["a", "b"], ("I-LOC", "B-LOC"))]
    task = Tag.for_rows(rows, "file")
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert [task.example(row).target for row in rows] == [(3, 4, 0), (1, 1)]
    assert task.remarks() == ["tags mean spans of words (IOB1, learnt as IOB2)"]
    assert task.labels_of(rows[0]) == ("PER",)
    plain = Tag.for_rows([row_of(["a", "b"], ("VERB", "NOUN"))], "file")
    assert (plain.labels, plain.goals) == (("NOUN", "VERB"), ("accuracy",))
    with pytest.raises(DataError, match="two different tags"):
        Tag.for_rows([row_of(["a"], ("X",))], "file")
    slip = row_of(["a", "b"], ("E-LOC", "0"))  # is a bad row, and changes nothing for the others
    assert Tag.for_rows([*rows, slip], "file") == task
    with pytest.raises(DataError, match="f:1, word 2: the tag '0' is not one of O, B-LOC"):
        task.example(slip)
    with pytest.raises(DataError, match="more than one text"):
        task.example(LabelledRow("f:1", ("a", "b")))
    for unknown in ("B-ORG", "E-ORG", "NOUN"):  # as it stands in the file
        with pytest.raises(DataError, match=f"the tag '{unknown}' is not one of"):
            task.example(row_of(["a"], (unknown,)))


def test_models_of_others_keep_the_scheme_that_they_have_learnt() -> None:
    task = Tag.of_labels(["O", "B-X", "I-X", "E-X", "S-X"])
    example = EncodedExample(task.example(row_of(["a", "b", "c"], ("S-X", "B-X", "E-X"))), ())
    assert example.target == (4, 1, 3)
    figures = task.metrics(np.stack([task.judge(example, np.eye(5, dtype=np.float32)[[4, 1, 3]])]))
    assert figures == {"accuracy": 1.0, "precision": 1.0, "recall": 1.0, "f1": 1.0}


def test_models_that_know_no_tags_for_beginnings_are_measured_with_what_they_know() -> None:
    task = Tag.of_labels(["O", "I-LOC", "I-PER"])
    assert task.example(row_of(["a", "b", "c"], ("I-PER", "I-PER", "O"))).target == (2, 2, 0)


def test_plain_tags_are_measured_word_by_word() -> None:
    task = Tag(("NOUN", "VERB"), has_spans=False)
    example = EncodedExample(task.example(row_of(["a", "b", "c"], ("NOUN", "VERB", "VERB"))), ())
    output = np.array([[2, 1], [2, 1], [1, 2]], np.float32)
    judgements = np.stack([task.judge(example, output)])
    assert task.metrics(judgements) == {"accuracy": pytest.approx(2 / 3)}
    noun, verb = task.by_class(judgements).figures
    assert (noun.precision, noun.recall, verb.precision, verb.recall) == (0.5, 1.0, 1.0, 0.5)
    assert "entities" not in task.decode(example, output)
    assert task.error(example, output, task.judge(example, output)) == pytest.approx(1.0)


def test_kinds_are_counted_whatever_they_are_called() -> None:
    plain = Tag(("NOUN", "_"), has_spans=False)
    assert plain.labels_of(row_of(["a", "b"], ("_", "NOUN"))) == ("NOUN", "_")
    segments = Tag.for_rows([row_of(["a", "b", "c"], ("B", "E", "S"))], "file")
    assert segments.labels_of(row_of(["a", "b", "c"], ("B", "E", "S"))) == ("_",)
