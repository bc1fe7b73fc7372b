"""Added and special tokens give the same ids as in transformers, here and after saving."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

import bertmill
from bertmill.errors import UsageError
from bertmill.text.bulk import encode_texts
from bertmill.text.vocabulary import SPECIAL_TOKENS

WORDS = "good film new york ##s c + 北 京 a b x re tok ##x ##n ##e e"
PIECES = [*SPECIAL_TOKENS, *WORDS.split(" ")]
VOCABULARY = {piece: number for number, piece in enumerate(PIECES)}
PLAIN = ["New York", "c++", "good", "北京", "a", "re-do", "Émile"]
SPECIAL = ["<E>", "[F]"]
TEXT = "a NEW  york new york xnew yorkx c+++ 北京a北 京 <e> <E>good [F] Ñew NÉW YORKs goodfilm RÉ-DO emile E\u0301mile"


def pair(**arguments: Any) -> tuple[bertmill.BertTokenizer, transformers.BertTokenizer]:
    """Our tokenizer and that of transformers, with the same added tokens."""
    ours = bertmill.BertTokenizer(dict(VOCABULARY), **arguments)
    theirs = transformers.BertTokenizer(dict(VOCABULARY), **arguments)
    assert ours.add_tokens(PLAIN) == theirs.add_tokens(PLAIN) == len(PLAIN)
    special = {"additional_special_tokens": SPECIAL}
    assert ours.add_special_tokens(special) == theirs.add_special_tokens(special) == len(SPECIAL)
    return ours, theirs


OURS, THEIRS = pair()
OTHERS = ["NEW", "york", " ", "  ", "e\u0301", "\x00", "\t", "ſ", "x"]


@pytest.mark.parametrize("arguments", [{}, {"do_lower_case": False}, {"tokenize_chinese_chars": False}])
def test_added_tokens_give_the_ids_and_words_of_transformers(arguments: dict[str, Any]) -> None:
    ours, theirs = pair(**arguments)
    for split in (False, True):
        mine, other = ours(TEXT, split_special_tokens=split), theirs(TEXT, split_special_tokens=split)
        assert mine.data == dict(other)
        assert mine.tokens() == other.tokens()
        assert mine.word_ids() == other.word_ids()
    assert len(ours) == len(theirs)
    assert ours.get_vocab() == theirs.get_vocab()
    for name in ("vocab_size", "special_tokens_map", "extra_special_tokens"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.get_added_vocab() == theirs.get_added_vocab()
    assert sorted(ours.all_special_tokens) == sorted(theirs.all_special_tokens)
    ids = ours.encode(TEXT)
    assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([*PLAIN, *SPECIAL, "NEW", "york", " ", "  ", "e\u0301", "\x00", "\t", "ſ", "x"])).map(
        "".join
    )
)
def test_any_mixture_of_added_tokens_gives_the_ids_of_transformers(text: str) -> None:
    assert OURS.encode(text) == THEIRS.encode(text)
    offsets = OURS(text, return_offsets_mapping=True)["offset_mapping"]
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    inner = [span for span in offsets if span != (0, 0)]
    assert all(before[1] <= after[0] for before, after in pairwise(inner))


def test_offsets_of_an_added_token_cover_the_original_characters() -> None:
    text = "the NÉW YORK 北京"
    encoding = OURS(text, return_offsets_mapping=True)
    covered = [text[start:end] for start, end in encoding["offset_mapping"]]
    assert covered == ["", "the", "NÉW YORK", "北京", ""]


@pytest.mark.parametrize("arguments", [{}, {"do_lower_case": False}])
def test_added_tokens_are_saved_for_both_libraries(tmp_path: Path, arguments: dict[str, Any]) -> None:
    ours, theirs = pair(**arguments)
    ours.save_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        mine = bertmill.BertTokenizer.from_pretrained(tmp_path / folder)
        other = transformers.BertTokenizer.from_pretrained(tmp_path / folder)
        assert mine(TEXT).data == dict(other(TEXT)) == ours(TEXT).data
        assert (mine.vocab_size, len(mine)) == (other.vocab_size, len(other)) == (ours.vocab_size, len(ours))
        assert sorted(mine.all_special_tokens) == sorted(other.all_special_tokens) == sorted(ours.all_special_tokens)
        assert mine.additional_special_tokens == SPECIAL
    before = (tmp_path / "ours" / "tokenizer.json").read_bytes()
    bertmill.BertTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "ours")
    assert (tmp_path / "ours" / "tokenizer.json").read_bytes() == before


def test_adding_a_token_twice_adds_nothing() -> None:
    ours, theirs = pair()
    for each in (ours, theirs):
        assert each.add_tokens("good") == 0
        assert each.add_tokens(["z", "z"]) == 1
        assert each.add_special_tokens({"mask_token": "[MASK]"}) == 0
        assert each.add_tokens([]) == 0
    assert ours.get_vocab() == theirs.get_vocab()


def test_special_tokens_are_replaced_or_extended_as_in_transformers() -> None:
    ours, theirs = pair()
    for each in (ours, theirs):
        each.add_special_tokens({"additional_special_tokens": ["<G>"]})
        each.add_special_tokens({"extra_special_tokens": ["<H>"]}, replace_extra_special_tokens=False)
    assert ours.additional_special_tokens == ours.extra_special_tokens == theirs.extra_special_tokens == ["<G>", "<H>"]
    assert ours.encode("<E> <G> <H>") == theirs.encode("<E> <G> <H>")
    assert ours.get_special_tokens_mask([25, ours.vocab["<H>"]], already_has_special_tokens=True) == [0, 1]


def test_a_named_special_token_can_be_replaced() -> None:
    ours, _ = pair()
    assert ours.add_special_tokens({"cls_token": "<C>"}) == 1
    assert (ours.cls_token, ours.cls_token_id) == ("<C>", len(ours) - 1)
    assert ours.tokenize("good", add_special_tokens=True) == ["<C>", "good", "[SEP]"]
    assert ours.add_special_tokens({"cls_token": "[MASK]"}) == 0
    assert (ours.cls_token, ours.cls_token_id) == ("[MASK]", 4)


def test_tokens_can_be_objects_of_tokenizers_and_arguments_of_the_class() -> None:
    ours = bertmill.BertTokenizer(dict(VOCABULARY), additional_special_tokens=[AddedToken("<E>", special=True)])
    assert ours.add_tokens([AddedToken("tok1"), AddedToken("<S>", special=True)]) == 2
    assert ours.tokenize("<E> TOK1 <S>") == ["<E>", "tok1", "<S>"]
    assert ours.tokenize("TOK1 <S>", split_special_tokens=True) == ["tok1", "[UNK]", "[UNK]", "[UNK]"]


def test_worker_processes_find_added_tokens() -> None:
    rows = [row.tolist() for row in encode_texts(OURS.wordpiece, ["a new york <E>"] * 3, workers=2)]
    assert rows == [OURS.encode("a new york <E>", add_special_tokens=False, split_special_tokens=True)] * 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: OURS.add_tokens([""]), "a token is empty"),
        (lambda: OURS.add_tokens([AddedToken("Foo", normalized=False)]), "'Foo' sets normalized=False"),
        (lambda: OURS.add_tokens([3]), "a token must be a string, not int"),
        (lambda: OURS.add_tokens(AddedToken("q", lstrip=True)), "'q' sets lstrip"),
        (
            lambda: OURS.add_special_tokens({"cls_token": "<C>", "eos_token": "</s>"}),
            "eos_token is not a special token",
        ),
        (lambda: OURS.get_special_tokens_mask([2], [3], already_has_special_tokens=True), "token_ids_1 must be None"),
    ],
)
def test_an_invalid_token_is_a_usage_error(call: Any, message: str) -> None:
    before = OURS.get_vocab()
    with pytest.raises(UsageError, match=message):
        call()
    assert OURS.get_vocab() == before
    assert OURS.cls_token == "[CLS]"


def test_the_mask_of_special_tokens_of_a_pair() -> None:
    first, second = OURS.encode("new film", add_special_tokens=False), OURS.encode("a b", add_special_tokens=False)
    expected = OURS("new film", "a b", return_special_tokens_mask=True)["special_tokens_mask"]
    assert OURS.get_special_tokens_mask(first, second) == expected
    assert OURS.get_special_tokens_mask(first) == [1, 0, 0, 1]
    ids = THEIRS.encode(TEXT)
    mask = THEIRS.get_special_tokens_mask(ids, already_has_special_tokens=True)
    assert OURS.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask


@pytest.mark.parametrize(
    "add",
    [
        lambda tokenizer: tokenizer.add_tokens(["fresh", ""]),
        lambda tokenizer: tokenizer.add_tokens(["fresh", AddedToken("Foo", lstrip=True)]),
        lambda tokenizer: tokenizer.add_special_tokens({"cls_token": "[X]", "mask_token": ""}),
        lambda tokenizer: tokenizer.add_special_tokens({"cls_token": "[X]", "additional_special_tokens": ["<a>", 5]}),
    ],
)
def test_a_failed_addition_changes_nothing(add: Any) -> None:
    tokenizer = bertmill.BertTokenizer(dict(VOCABULARY))
    with pytest.raises(UsageError):
        add(tokenizer)
    assert tokenizer.get_vocab() == VOCABULARY
    assert tokenizer.cls_token == "[CLS]"
    assert tokenizer.additional_special_tokens == []
    assert tokenizer.add_tokens(["fresh"]) == 1
    assert tokenizer.tokenize("fresh a", add_special_tokens=True) == ["[CLS]", "fresh", "a", "[SEP]"]


def test_special_tokens_may_be_objects_that_are_not_normalized() -> None:
    tokenizer = bertmill.BertTokenizer(dict(VOCABULARY))
    assert tokenizer.add_tokens([AddedToken("<Z>", special=True)]) == 1
    assert tokenizer.add_tokens([AddedToken("<Y>", normalized=False)], special_tokens=True) == 1
    assert tokenizer.tokenize("a <Y><z>")[:2] == ["a", "<Y>"]
