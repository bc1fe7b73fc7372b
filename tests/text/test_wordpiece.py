"""Pieces match Hugging Face's tokenizer, and their offsets refer to the original text."""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece as TheirModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertmill.checkpoint.names import find_model
from bertmill.text import wordpiece as wordpiece_module
from bertmill.text.character_table import DECOMPOSED, LOWER
from bertmill.text.characters import (
    COMBINING_CLASS_OF,
    NONSPACING_CHARACTERS,
    PUNCTUATION_CHARACTERS,
    decompose,
    normalise,
)
from bertmill.text.vocabulary import SPECIAL_TOKENS, read_vocabulary
from bertmill.text.wordpiece import CONTINUATION, WordPiece
from tests.linear_time import assert_linear_time

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
EVERY_CHARACTER = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
# Planes 0 and 1, and a sample of the others, which contain little but ideographs and private use. The table itself is
# compared with theirs for every character in tests/project/test_generated_files.py.
MOST_CHARACTERS = [c for c in EVERY_CHARACTER if ord(c) < 0x20000 or ord(c) % 16 == 0]
CHARACTERS = [
    pytest.param(MOST_CHARACTERS, id="most characters"),
    pytest.param(EVERY_CHARACTER, id="every character", marks=pytest.mark.slow),
]
KEPT_MARKS = set(COMBINING_CLASS_OF) - NONSPACING_CHARACTERS
SETTINGS = [(True, None), (False, None), (False, True), (True, False)]  # lowercase, strip_accents


def their_tokenizer(vocabulary: dict[str, int], lowercase: bool, strip_accents: bool | None = None) -> Tokenizer:
    tokenizer = Tokenizer(TheirModel(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def assert_equal_to_theirs(ours: WordPiece, theirs: Tokenizer, texts: list[str]) -> None:
    """Ids and words match; offsets match except for stripped marks after a piece, which ours include."""
    for text, encoding in zip(texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        pieces = ours.pieces(text)
        assert ours.ids(text).tolist() == encoding.ids, text
        assert pieces.ids.tolist() == encoding.ids, text
        assert pieces.words.tolist() == encoding.word_ids, text
        for start, end, (their_start, their_end) in zip(pieces.starts, pieces.ends, encoding.offsets, strict=True):
            if not KEPT_MARKS.isdisjoint(text[min(start, their_start) : max(end, their_end)]):
                continue  # where marks are reordered, theirs point to a neighbor
            assert start == their_start, text
            assert end >= their_end, text
            assert set(text[their_end:end]) <= NONSPACING_CHARACTERS, text


@cache
def alphabet() -> dict[str, int]:
    """A vocabulary of single characters that distinguishes nearly all results of normalization."""
    characters = {c for table in (LOWER, DECOMPOSED) for pair in table.items() for text in pair for c in text}
    characters |= PUNCTUATION_CHARACTERS | set(map(chr, range(0x3000))) | set(map(chr, range(0x1F000, 0x1FA00)))
    pieces = [*SPECIAL_TOKENS, *sorted(characters), *(CONTINUATION + c for c in sorted(characters))]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


REAL_TEXTS = [
    *(
        pytest.param(name, num_bytes, id=f"{num_bytes // 1_000_000} MB of {Path(name).name}", marks=marks)
        for name in ("text/enwiki.txt.xz", "text/books.txt.xz", "text/zhwiki.txt.xz", "glue/SST-2/train.tsv")
        for num_bytes, marks in ((1_000_000, ()), (5_000_000, pytest.mark.slow))
    ),
    *(
        pytest.param(name, -1, id=Path(name).name)
        for name in ("text/enwiki-heldout.txt.xz", "sms_spam/SMSSpamCollection", "glue/SST-2/dev.tsv")
    ),
]


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("vocabulary", ["bert-base-uncased", "bert-base-chinese"])
@pytest.mark.parametrize(("name", "num_bytes"), REAL_TEXTS)
def test_ids_match_hugging_face_on_real_text(
    data: Path,
    read_lines: Callable[[str, int], list[str]],
    name: str,
    num_bytes: int,
    vocabulary: str,
    lowercase: bool,
) -> None:
    pieces = read_vocabulary(data / f"vocab/{vocabulary}-vocab.txt")
    ours, theirs = WordPiece(pieces, lowercase=lowercase), their_tokenizer(pieces, lowercase)
    lines = read_lines(name, num_bytes)
    for line, encoding in zip(lines, theirs.encode_batch_fast(lines, add_special_tokens=False), strict=True):
        assert ours.ids(line).tolist() == encoding.ids


@pytest.mark.parametrize(("lowercase", "strip_accents"), SETTINGS)
def test_words_and_offsets_match_hugging_face_on_real_text(
    data: Path, read_lines: Callable[[str, int], list[str]], lowercase: bool, strip_accents: bool | None
) -> None:
    pieces = read_vocabulary(data / "vocab/bert-base-chinese-vocab.txt")
    ours = WordPiece(pieces, lowercase=lowercase, strip_accents=strip_accents)
    theirs = their_tokenizer(pieces, lowercase, strip_accents)
    for name in ("text/enwiki.txt.xz", "text/zhwiki.txt.xz"):
        assert_equal_to_theirs(ours, theirs, read_lines(name, 500_000))


@pytest.mark.parametrize("characters", CHARACTERS)
@pytest.mark.parametrize(("lowercase", "strip_accents"), SETTINGS)
def test_every_code_point_is_treated_as_in_hugging_face(
    lowercase: bool, strip_accents: bool | None, characters: list[str]
) -> None:
    ours = WordPiece(alphabet(), lowercase=lowercase, strip_accents=strip_accents)
    theirs = their_tokenizer(alphabet(), lowercase, strip_accents)
    # Each character is tested inside a word, which shows whether it is dropped, splits the word, stands alone or is
    # changed. Those that change are also tested alone and before a mark. Each text has a hundred words.
    words = [f"a{c}b" for c in characters] + [f"{c} {c}\u0301" for c in alphabet() if len(c) == 1]
    texts = [" ".join(words[first : first + 100]) for first in range(0, len(words), 100)]
    for text, encoding in zip(texts, theirs.encode_batch_fast(texts, add_special_tokens=False), strict=True):
        assert ours.ids(text).tolist() == encoding.ids


@pytest.mark.parametrize("characters", CHARACTERS)
@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-chinese"])
def test_every_code_point_has_the_same_id_in_published_vocabularies(
    data: Path, name: str, characters: list[str]
) -> None:
    vocabulary = read_vocabulary(data / f"vocab/{name}-vocab.txt")
    ours, theirs = WordPiece(vocabulary), their_tokenizer(vocabulary, True)
    texts = [" ".join(characters[first : first + 500]) for first in range(0, len(characters), 500)]
    for text, encoding in zip(texts, theirs.encode_batch_fast(texts, add_special_tokens=False), strict=True):
        assert ours.ids(text).tolist() == encoding.ids


@pytest.mark.parametrize(("lowercase", "strip_accents"), SETTINGS)
def test_ten_thousand_strings_over_all_planes_are_treated_as_in_hugging_face(
    lowercase: bool, strip_accents: bool | None
) -> None:
    ours = WordPiece(alphabet(), lowercase=lowercase, strip_accents=strip_accents)
    theirs = their_tokenizer(alphabet(), lowercase, strip_accents)
    rng = random.Random(0)
    planes = [range(0x80), range(0x300, 0x370), range(0x3000), range(0xD800), range(0xE000, 0x20000), range(0x110000)]
    texts = []
    for _ in range(10_000):
        points = [rng.choice(rng.choice(planes)) for _ in range(rng.randrange(1, 40))]
        texts.append("".join(chr(point) for point in points if not 0xD800 <= point < 0xE000))
    assert_equal_to_theirs(ours, theirs, texts)


def test_marks_are_put_in_canonical_order_as_in_hugging_face() -> None:
    marks = ["\u302e", "\U0001d165", "\U0001d16d", "\u1b44", "\u0301", "\u0345", "\u0e38", "\u0903", "\u1dfa"]
    rng = random.Random(1)
    texts = ["".join(rng.choices([*marks, "a", "\U0001d15e"], k=8)) for _ in range(2000)]
    ours, theirs = WordPiece(alphabet()), their_tokenizer(alphabet(), True)
    for text, encoding in zip(texts, theirs.encode_batch(texts, add_special_tokens=False), strict=True):
        assert ours.ids(text).tolist() == ours.pieces(text).ids.tolist() == encoding.ids


@given(ANY_TEXT, st.sampled_from(SETTINGS))
@example("cafe\u0301 naïve 北京\u200b한국어 ≠ ﬁ 🤖", (True, None))
@example("\u1100\ud800\u0301", (True, None))
def test_every_piece_covers_its_original_characters(text: str, settings: tuple[bool, bool | None]) -> None:
    wordpiece = WordPiece(alphabet(), lowercase=settings[0], strip_accents=settings[1])
    piece_of_id = {number: piece for piece, number in alphabet().items()}
    pieces = wordpiece.pieces(text)
    assert pieces.ids.tolist() == wordpiece.ids(text).tolist()
    for number, start, end in zip(pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
        assert 0 <= start < end <= len(text)
        if piece_of_id[number] != "[UNK]":
            piece = piece_of_id[number].removeprefix(CONTINUATION)
            assert_normalises_to(wordpiece, text[start:end], piece)
    assert sorted(pieces.words.tolist()) == pieces.words.tolist()


def assert_normalises_to(wordpiece: WordPiece, covered: str, piece: str) -> None:
    """The same, unless a covered character becomes several, and the piece may be one of them: 한 is three letters."""
    characters = normalise(covered, strip_accents=wordpiece.strip_accents, lowercase=wordpiece.lowercase)
    normalised = "".join(character for character, _ in characters)
    expands = any(len(decompose(character)) > 1 or len(LOWER.get(character, "")) > 1 for character in covered)
    assert piece in normalised if expands else piece == normalised


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("cafe\u0301s", ["cafe\u0301s"]),
        ("e\u0301", ["e\u0301"]),
        ("un\u00adhappy", ["un\u00adhappy"]),
        ("北京!", ["北", "京", "!"]),
        ("a\ud800b", ["a\ud800b"]),
        ("\ufeffa\0b\x85c", ["a\0b\x85c"]),
        ("x ≠ y", ["x", "≠", "y"]),
    ],
)
def test_a_word_covers_its_accents_and_dropped_characters(text: str, covered: list[str]) -> None:
    vocabulary = dict.fromkeys([*SPECIAL_TOKENS, "cafes", "e", "unhappy", "北", "京", "!", "ab", "abc", "x", "=", "y"])
    wordpiece = WordPiece({piece: number for number, piece in enumerate(vocabulary)})
    pieces = wordpiece.pieces(text)
    assert [text[start:end] for start, end in zip(pieces.starts, pieces.ends, strict=True)] == covered
    assert wordpiece.vocabulary["[UNK]"] not in pieces.ids


def test_special_strings_are_special_unless_split_special_is_set() -> None:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a", "b", "[", "]", "mask"])}
    wordpiece = WordPiece(vocabulary, special_tokens=SPECIAL_TOKENS)
    text = "a[MASK]b [mask]"
    assert [list(vocabulary)[number] for number in wordpiece.ids(text)] == ["a", "[MASK]", "b", "[", "mask", "]"]
    pieces = wordpiece.pieces(text)
    assert pieces.ids.tolist() == wordpiece.ids(text).tolist()
    assert pieces.words.tolist() == [0, 1, 2, 3, 4, 5]
    assert (pieces.starts[1], pieces.ends[1]) == (1, 7)
    split = ["a", "[", "mask", "]", "b", "[", "mask", "]"]
    assert [list(vocabulary)[number] for number in wordpiece.ids(text, split_special=True)] == split
    assert wordpiece.pieces(text, split_special=True).ids.tolist() == wordpiece.ids(text, split_special=True).tolist()


def test_words_in_never_split_stay_whole() -> None:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "C++", "c", "+", "is"])}
    wordpiece = WordPiece(vocabulary, never_split=["C++", "NASA"])
    text = "C++ is NASA (C++) \x85"
    names = [list(vocabulary)[number] for number in wordpiece.ids(text)]
    assert names[:3] == ["C++", "is", "[UNK]"]
    assert names[3:] == ["[UNK]", "c", "+", "+", "[UNK]"]  # inside brackets it is ordinary text
    assert wordpiece.pieces(text).ids.tolist() == wordpiece.ids(text).tolist()


def test_ideographs_stay_together_if_chinese_characters_is_off() -> None:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "北京", "北", "京"])}
    assert WordPiece(vocabulary, chinese_characters=False).ids("北京").tolist() == [5]
    assert WordPiece(vocabulary).ids("北京").tolist() == [6, 7]


def test_a_word_of_100_characters_is_matched_and_one_of_101_is_not() -> None:
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "a", "##a"])}
    assert len(WordPiece(vocabulary).ids("a" * 100)) == 100
    assert WordPiece(vocabulary).ids("a" * 101).tolist() == [vocabulary["[UNK]"]]


HOSTILE = {
    "letters without a space": "a" * 1_000_000,
    "words of 99 letters": ("xq" * 49 + " ") * 2_000,
    "combining marks": "\u0301\u0316" * 500_000,
    "ideographs": "北" * 1_000_000,
    "punctuation": "?!" * 500_000,
    "distinct words": " ".join(map(str, range(150_000))),
}


@pytest.mark.slow  # measures time
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("method", ["ids", "pieces"])
def test_time_is_linear_in_the_length_of_hostile_text(kind: str, method: str) -> None:
    vocabulary = read_vocabulary(find_model("minilm") / "vocab.txt")
    assert_linear_time(lambda text: getattr(WordPiece(vocabulary), method)(text), HOSTILE[kind])


def test_the_size_of_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece_module, "MAX_CACHED_STRINGS", 1000)
    wordpiece = WordPiece(alphabet())
    caches = [value for value in vars(wordpiece).values() if isinstance(value, wordpiece_module._Cache)]
    assert len(caches) == 4
    for text in [f"{'x' * 1000} word{number}" for number in range(2000)] + [" ".join(map(str, range(50_000)))]:
        wordpiece.ids(text)
        wordpiece.pieces(text)
        assert all(len(cache) <= 1000 for cache in caches)
    assert all(len(string) <= wordpiece_module.MAX_CACHED_CHARACTERS for cache in caches for string in cache)
