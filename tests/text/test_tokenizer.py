"""BertTokenizer gives the same results and reads and writes the same files as transformers.BertTokenizer."""

import json
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import bertmill
from bertmill.checkpoint.names import find_model
from bertmill.errors import IntegrityError, UsageError
from bertmill.text.truncation import plan_windows
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.linear_time import assert_linear_time

MINILM = find_model("minilm")
TEXT = "The naïve café owner, Zoë, was un-affable [MASK] in 北京! "
PAIR = "Why? Nobody's told us; they're silent..."
OURS = bertmill.BertTokenizer.from_pretrained("minilm")
THEIRS = transformers.BertTokenizer.from_pretrained(MINILM)


def assert_same(*texts: Any, **arguments: Any) -> None:
    ours, theirs = OURS(*texts, **arguments), THEIRS(*texts, **arguments)
    assert list(ours) == list(theirs)
    for name in theirs:
        if isinstance(theirs[name], torch.Tensor | np.ndarray):
            assert ours[name].dtype == theirs[name].dtype
            assert ours[name].tolist() == theirs[name].tolist()
        else:
            assert ours[name] == theirs[name]
    assert len(ours.encodings) == len(theirs.encodings)
    for row in range(len(ours.encodings)):
        assert ours.tokens(row) == theirs.tokens(row)
        assert ours.word_ids(row) == theirs.word_ids(row)
        assert ours.sequence_ids(row) == theirs.sequence_ids(row)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((TEXT,), {}),
    ((TEXT, PAIR), {}),
    ((TEXT, ""), {}),
    (([TEXT, PAIR, ""],), {}),
    (([TEXT, PAIR], [PAIR, ""]), {}),
    (([(TEXT, PAIR), (PAIR, TEXT)],), {}),
    (([[TEXT, PAIR], [PAIR, TEXT]],), {"padding": True}),
    (([[TEXT, PAIR], PAIR],), {}),
    ((TEXT,), {"add_special_tokens": False}),
    ((TEXT,), {"split_special_tokens": True}),
    ((TEXT,), {"return_tensors": "pt"}),
    ((TEXT,), {"return_tensors": "np"}),
    (([TEXT, PAIR],), {"padding": True, "return_tensors": "pt"}),
    (([TEXT, PAIR],), {"padding": "longest", "pad_to_multiple_of": 8}),
    (([TEXT, PAIR],), {"padding": "max_length", "max_length": 40}),
    (([TEXT, PAIR],), {"padding": "max_length"}),
    (([TEXT, PAIR],), {"padding": True, "padding_side": "left", "return_special_tokens_mask": True}),
    ((TEXT, PAIR), {"return_offsets_mapping": True, "return_special_tokens_mask": True, "return_length": True}),
    (([TEXT, PAIR],), {"return_token_type_ids": False, "return_attention_mask": False}),
    ((TEXT * 100,), {"truncation": True}),
    ((TEXT,), {"max_length": 8}),
    ((TEXT, PAIR), {"truncation": True, "max_length": 12}),
    ((TEXT, PAIR), {"truncation": "only_first", "max_length": 20}),
    ((TEXT, PAIR), {"truncation": "only_second", "max_length": 24}),
    ((TEXT, PAIR), {"truncation": "do_not_truncate", "max_length": 12}),
    ((TEXT,), {"truncation": True, "max_length": 9, "stride": 3, "return_overflowing_tokens": True}),
    (
        ([TEXT, PAIR], [PAIR, TEXT]),
        {
            "truncation": "only_second",
            "max_length": 30,
            "stride": 4,
            "return_overflowing_tokens": True,
            "return_offsets_mapping": True,
            "padding": True,
            "return_tensors": "pt",
        },
    ),
    ((TEXT, PAIR), {"truncation": True, "max_length": 13, "stride": 2, "return_overflowing_tokens": True}),
    ((TEXT.split(),), {"is_split_into_words": True, "return_offsets_mapping": True}),
    (([TEXT.split(), PAIR.split()],), {"is_split_into_words": True, "padding": True}),
    (([TEXT.split()], [PAIR.split()]), {"is_split_into_words": True, "truncation": True, "max_length": 16}),
]


@pytest.mark.parametrize(("texts", "arguments"), CALLS)
def test_a_call_gives_the_same_result_as_transformers(texts: tuple[Any, ...], arguments: dict[str, Any]) -> None:
    assert_same(*texts, **arguments)


WORDS = st.lists(st.sampled_from(["a", "playing", "unaffable", "北京", "don't", "[SEP]", "x" * 120, ""])).map(" ".join)


@settings(max_examples=300)
@given(WORDS, WORDS, st.data())
def test_any_truncation_gives_the_same_result_as_transformers(first: str, second: str, choice: st.DataObject) -> None:
    strategy = choice.draw(st.sampled_from(["longest_first", "only_first", "only_second"]))
    arguments = {
        "truncation": strategy,
        "max_length": choice.draw(st.integers(5, 24)),
        "stride": choice.draw(st.integers(0, 3)),
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
    }
    THEIRS.truncation_side = OURS.truncation_side = choice.draw(st.sampled_from(["right", "left"]))  # type: ignore[assignment]
    try:
        ours = OURS(first, second, **arguments)
    except UsageError:
        return  # where nothing of a text would be left, transformers returns empty or overlong windows
    finally:
        OURS.truncation_side = "right"
    theirs = THEIRS(first, second, **arguments)
    THEIRS.truncation_side = "right"
    assert dict(ours) == dict(theirs)


@given(st.integers(1, 400), st.integers(2, 50), st.integers(0, 49), st.sampled_from(["left", "right"]))
def test_windows_cover_every_piece(length: int, room: int, stride: int, side: Any) -> None:
    if stride >= room:
        return
    windows = plan_windows((length,), room, "longest_first", stride=stride, side=side, overflow=True)
    covered = {piece for ((start, end),) in windows for piece in range(start, end)}
    assert covered == set(range(length))
    assert all(end - start <= room for ((start, end),) in windows)
    ordered = sorted(window[0] for window in windows)
    assert all(a[1] - b[0] == stride for a, b in pairwise(ordered) if b[1] - b[0] == room)


def test_pieces_are_mapped_to_characters_and_words() -> None:
    ours, theirs = OURS([TEXT, PAIR], padding=True), THEIRS([TEXT, PAIR], padding=True)
    for character in range(len(TEXT)):
        assert ours.char_to_token(0, character) == theirs.char_to_token(0, character)
    for piece in range(len(ours[0])):
        span = theirs.token_to_chars(0, piece)
        assert ours.token_to_chars(0, piece) == (None if span is None else tuple(span))
    assert ours.input_ids == ours["input_ids"]
    with pytest.raises(AttributeError, match="has no 'labels'"):
        ours.labels  # noqa: B018
    assert ours.char_to_token(4) == ours.char_to_token(0, 4)
    assert ours.token_to_chars(2) == ours.token_to_chars(0, 2)


def test_words_are_mapped_to_pieces_and_characters() -> None:
    ours, theirs = OURS(TEXT, PAIR), THEIRS(TEXT, PAIR)
    for piece in range(len(ours.input_ids)):
        assert ours.token_to_word(piece) == ours.token_to_word(0, piece) == theirs.token_to_word(0, piece)
    for sequence, text in enumerate((TEXT, PAIR)):
        for character in range(len(text)):
            assert ours.char_to_word(0, character, sequence) == theirs.char_to_word(0, character, sequence)
        for word in range(30):
            span = theirs.word_to_tokens(0, word, sequence)
            assert ours.word_to_tokens(0, word, sequence) == (None if span is None else tuple(span))
    assert ours.char_to_word(4) == ours.char_to_word(0, 4)
    assert ours.word_to_tokens(1) == ours.word_to_tokens(0, 1)
    assert ours.word_to_tokens(1).end == ours.word_to_tokens(1)[1]
    assert ours.is_fast
    assert not pickle.loads(pickle.dumps(ours)).is_fast


def test_a_batch_moves_in_place_and_can_be_pickled() -> None:
    batch = OURS(TEXT, return_tensors="pt")
    assert batch.to("meta") is batch
    assert batch["input_ids"].device.type == "meta"
    batch = OURS([TEXT, PAIR])
    assert pickle.loads(pickle.dumps(batch)).data == batch.data


@pytest.mark.slow  # measures time
def test_time_to_truncate_a_pair_is_linear() -> None:
    assert_linear_time(lambda text: OURS(text, text, truncation=True, max_length=64), "word " * 160_000)


def test_ids_pieces_and_text_are_converted_as_in_transformers(read_lines: Callable[[str, int], list[str]]) -> None:
    lines = read_lines("text/enwiki-heldout.txt.xz", 200_000) + read_lines("text/zhwiki.txt.xz", 50_000)
    rows = [OURS.encode(line) for line in lines]
    assert OURS.batch_decode(rows) == THEIRS.batch_decode(rows)
    assert OURS.batch_decode(rows, skip_special_tokens=True) == THEIRS.batch_decode(rows, skip_special_tokens=True)
    assert OURS.decode(torch.tensor(rows[0])) == THEIRS.decode(torch.tensor(rows[0]))
    assert OURS.decode(101) == THEIRS.decode(101)
    assert OURS.decode([]) == ""
    inner = OURS.convert_tokens_to_ids(["##ing", "##s", "do", "not", "'", "s", "."])
    assert OURS.decode(inner) == THEIRS.decode(inner)
    assert OURS.batch_decode(rows[0]) == THEIRS.batch_decode(rows[0])
    assert OURS.decode(rows[:2]) == THEIRS.decode(rows[:2])
    assert OURS.tokenize(TEXT) == THEIRS.tokenize(TEXT)
    assert OURS.tokenize(TEXT, PAIR, add_special_tokens=True) == THEIRS.tokenize(TEXT, PAIR, add_special_tokens=True)
    assert OURS.convert_ids_to_tokens(rows[0]) == THEIRS.convert_ids_to_tokens(rows[0])
    assert OURS.convert_ids_to_tokens(rows[0], True) == THEIRS.convert_ids_to_tokens(rows[0], True)
    assert OURS.convert_ids_to_tokens(7592) == "hello"
    assert OURS.convert_tokens_to_ids(["hello", "no such piece"]) == [7592, 100]
    assert OURS.convert_tokens_to_ids("hello") == THEIRS.convert_tokens_to_ids("hello")


def test_attributes_of_the_vocabulary_are_those_of_transformers() -> None:
    for name in ("vocab_size", "pad_token_id", "unk_token_id", "cls_token_id", "sep_token_id", "mask_token_id"):
        assert getattr(OURS, name) == getattr(THEIRS, name)
    assert OURS.get_vocab() == THEIRS.get_vocab()
    assert len(OURS) == len(THEIRS)
    assert OURS.model_max_length == THEIRS.model_max_length
    assert sorted(OURS.all_special_ids) == sorted(THEIRS.all_special_ids)
    for pair in (False, True):
        assert OURS.num_special_tokens_to_add(pair) == THEIRS.num_special_tokens_to_add(pair)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"do_lower_case": False},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
        {"model_max_length": 64},
    ],
)
def test_a_saved_tokenizer_gives_the_same_ids_here_and_in_transformers(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    ours = bertmill.BertTokenizer.from_pretrained("minilm", **arguments)
    ours.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    again = bertmill.BertTokenizer.from_pretrained(tmp_path)
    for kind in (transformers.BertTokenizer, transformers.AutoTokenizer):
        theirs = kind.from_pretrained(tmp_path)
        for text in (TEXT, PAIR, "ÀÉ ß 北京ab"):
            assert ours(text, PAIR).data == again(text, PAIR).data == dict(theirs(text, PAIR))
        assert theirs.model_max_length == ours.model_max_length
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_tokenizer_saved_by_transformers_gives_the_same_ids(tmp_path: Path) -> None:
    theirs = transformers.BertTokenizer.from_pretrained(MINILM, do_lower_case=False)
    theirs.add_special_tokens({"additional_special_tokens": ["[E1]"]})
    theirs.save_pretrained(tmp_path)
    ours = bertmill.BertTokenizer.from_pretrained(tmp_path)
    for text in (TEXT, "[E1] Marie [E1]Curie"):
        assert ours(text).data == dict(theirs(text))
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("extra", [{}, [], ["[E1]"], {"image_token": "[E1]"}])
def test_extra_special_tokens_may_have_names(tmp_path: Path, extra: Any) -> None:
    theirs = transformers.BertTokenizer.from_pretrained(MINILM)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "extra_special_tokens": extra}))
    ours = bertmill.BertTokenizer.from_pretrained(tmp_path)
    assert ours.extra_special_tokens == (["[E1]"] if extra else [])
    assert ours("good [E1]").data == dict(transformers.BertTokenizer.from_pretrained(tmp_path)("good [E1]"))


def test_a_vocabulary_that_vocab_txt_cannot_represent_is_not_saved(tmp_path: Path) -> None:
    pieces = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a\nb", "c"])}
    for vocabulary in (pieces, {**pieces, "c": 17}):
        with pytest.raises(IntegrityError, match=r"cannot be saved as vocab\.txt"):
            bertmill.BertTokenizer(vocabulary).save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_padding_to_an_unknown_length_is_rejected() -> None:
    tokenizer = bertmill.BertTokenizer(dict(OURS.vocab), model_max_length=1e30)
    with pytest.raises(UsageError, match="needs a max_length"):
        tokenizer(TEXT, padding="max_length")


def test_a_vocabulary_file_is_enough(data: Path) -> None:
    path = data / "vocab/bert-base-chinese-vocab.txt"
    ours = bertmill.BertTokenizer.from_pretrained(path, do_lower_case=False)
    assert ours.tokenize("北京abc") == ["北", "京", "abc"]
    assert bertmill.BertTokenizer(path).vocab == ours.vocab


def test_a_folder_with_only_vocab_txt_and_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "Ab", "ab"]))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "mask_token": {"content": "[MASK]"}})
    )
    tokenizer = bertmill.BertTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("Ab ab") == ["Ab", "ab"]


PIPELINE = json.loads((MINILM / "tokenizer.json").read_text())


def pipeline_with(**changes: Any) -> str:
    return json.dumps({**PIPELINE, **changes})


EMPTY = {"id": 0, "content": "", "special": True, "normalized": False}
ADDED = {"id": 0, "content": "x", "special": False, "normalized": True, "lstrip": True}
RAW = {"id": 30522, "content": "x", "special": False, "normalized": False}
INFINITE = {"id": float("inf"), "content": "x", "special": True}


@pytest.mark.parametrize(
    ("file", "content", "kind", "message"),
    [
        ("vocab.txt", "", IntegrityError, "vocabulary is empty"),
        ("vocab.txt", "[PAD]\n[UNK]\n[CLS]\na", IntegrityError, r"lacks the special tokens \[SEP\], \[MASK\]"),
        (
            "vocab.txt",
            "\n".join([*SPECIAL_TOKENS, "a", "b", "a"]),
            IntegrityError,
            "vocab.txt:8: 'a' occurs 2 times",
        ),
        ("vocab.txt", b"\xff\xfe", IntegrityError, "not UTF-8"),
        ("tokenizer.json", "{", IntegrityError, "not JSON"),
        ("tokenizer.json", "[" * 200_000, IntegrityError, "nested too deeply"),
        ("tokenizer.json", pipeline_with(model={"type": "BPE"}), UsageError, "the model is BPE, but"),
        ("tokenizer.json", pipeline_with(normalizer={"type": "NFC"}), UsageError, "the normalizer is NFC"),
        ("tokenizer.json", pipeline_with(pre_tokenizer=None), UsageError, "the pre_tokenizer is None"),
        ("tokenizer.json", pipeline_with(model={"max_input_chars_per_word": 3}), UsageError, "is 3, but only 100"),
        ("tokenizer.json", pipeline_with(model={"type": "WordPiece"}), IntegrityError, "has no vocabulary"),
        ("tokenizer.json", pipeline_with(added_tokens=3), IntegrityError, "malformed added tokens"),
        ("tokenizer.json", pipeline_with(added_tokens=[EMPTY]), IntegrityError, "without text"),
        ("tokenizer_config.json", '{"do_lower_case": "no"}', IntegrityError, "do_lower_case is 'no'"),
        ("tokenizer_config.json", '{"model_max_length": NaN}', IntegrityError, "model_max_length is nan"),
        ("tokenizer_config.json", '{"padding_side": "up"}', IntegrityError, "padding_side is 'up'"),
        ("tokenizer_config.json", '{"never_split": 3}', IntegrityError, "never_split is 3"),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}', IntegrityError, "malformed added tokens"),
        ("vocab.txt", "\ufeff[PAD]", IntegrityError, "byte order mark"),
        ("tokenizer.json", pipeline_with(added_tokens=[ADDED]), UsageError, "sets lstrip, rstrip or single_word"),
        ("tokenizer.json", pipeline_with(added_tokens=[RAW]), UsageError, "neither special nor normalized"),
        ("tokenizer.json", pipeline_with(added_tokens=[3]), IntegrityError, "malformed"),
        ("tokenizer.json", pipeline_with(added_tokens=[INFINITE]), IntegrityError, "malformed added token"),
        (
            "tokenizer.json",
            pipeline_with(model={"vocab": {"a": 0}}, added_tokens=[]),
            IntegrityError,
            "is not a vocabulary",
        ),
        ("other", "", UsageError, "contains neither"),
    ],
)
def test_a_bad_folder_gives_a_one_line_error(
    tmp_path: Path, file: str, content: str | bytes, kind: type[Exception], message: str
) -> None:
    if file == "tokenizer_config.json":
        (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(kind, match=message) as caught:
        bertmill.BertTokenizer.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "arguments", "message"),
    [
        ((TEXT,), {"return_tensors": "tf"}, "unknown return_tensors 'tf'"),
        (([TEXT, PAIR],), {"return_tensors": "pt"}, "padding=True"),
        ((TEXT,), {"truncation": "shortest"}, "unknown truncation 'shortest'"),
        ((TEXT,), {"truncation": "only_second", "max_length": 5}, "needs a second text"),
        ((TEXT, PAIR), {"truncation": "only_second", "max_length": 5}, "leaves no room"),
        ((TEXT,), {"truncation": True, "max_length": 2}, "leaves no room"),
        ((TEXT,), {"truncation": True, "max_length": 5, "stride": 3}, "must be smaller than the 3 pieces"),
        (([TEXT], PAIR), {}, "as many texts as text"),
        (([TEXT], [PAIR, PAIR]), {}, "as many texts as text"),
        ((3,), {}, "must be a string, not int"),
        ((TEXT,), {"padding": "max_lenght"}, "unknown padding 'max_lenght'"),
        ((TEXT,), {"padding": True, "padding_side": "rigth"}, "unknown padding_side 'rigth'"),
        ((TEXT,), {"truncation": True, "max_length": 9, "stride": -1}, "stride must be at least 0, not -1"),
        (([("a", "b", "c")],), {}, "a text or a pair"),
        ((TEXT,), {"padding": "max_length", "max_length": 15, "pad_to_multiple_of": 8, "truncation": True}, "multiple"),
        ((TEXT,), {"truncation": "only_first", "max_length": 2}, "leaves no room for the text"),
        (([TEXT],), {"is_split_into_words": True, "padding": True}, None),
        ((TEXT,), {"is_split_into_words": True}, "must be a list of words"),
    ],
)
def test_an_invalid_argument_is_a_usage_error(texts: Any, arguments: dict[str, Any], message: str | None) -> None:
    if message is None:
        assert OURS(*texts, **arguments)["input_ids"]
        return
    with pytest.raises(UsageError, match=message):
        OURS(*texts, **arguments)


def test_spaces_inside_contractions_are_cleaned_up_on_request() -> None:
    ids = OURS.encode("it's what they 've said ; i 'm sure , do not . ' '")
    for clean_up in (None, False, True):
        assert OURS.decode(ids, clean_up_tokenization_spaces=clean_up) == THEIRS.decode(
            ids, clean_up_tokenization_spaces=clean_up
        )
        assert OURS.batch_decode([ids], clean_up_tokenization_spaces=clean_up) == THEIRS.batch_decode(
            [ids], clean_up_tokenization_spaces=clean_up
        )


def test_padding_may_exceed_max_length_if_nothing_is_truncated() -> None:
    arguments: dict[str, Any] = {"padding": "max_length", "max_length": 10, "pad_to_multiple_of": 8}
    ours = OURS(TEXT[:10], **arguments, verbose=False)
    assert dict(ours) == dict(THEIRS(TEXT[:10], **arguments, verbose=False))
    assert len(ours["input_ids"]) % 8 == 0
    with pytest.raises(UsageError, match="max_length 10 is not a multiple"):
        OURS(TEXT, **arguments, truncation=True)


def test_a_vocabulary_can_be_saved_alone(tmp_path: Path) -> None:
    (path,) = OURS.save_vocabulary(tmp_path / "new", filename_prefix="my")
    assert path == str(tmp_path / "new/my-vocab.txt")
    assert bertmill.BertTokenizer(path).get_vocab() == OURS.get_vocab()
    assert OURS.save_vocabulary(str(tmp_path)) == (str(tmp_path / "vocab.txt"),)


def test_tensors_of_a_batch_move_to_a_device() -> None:
    batch = OURS(TEXT, return_tensors="pt")
    assert batch.to("meta", non_blocking=True) is batch
    assert batch["input_ids"].is_meta
