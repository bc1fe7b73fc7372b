"""The counted words are those of the tokenizer, however the text is split into blocks."""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertmill.text import word_counts
from bertmill.text.word_counts import Row, count_words, is_held_out
from bertmill.text.wordpiece import UNKNOWN, WordPiece

EDGE_CASES = [
    "",
    " ",
    "Café, CAFÉ\u0301! U.S.",
    "北京 is ≠ 中国\u3000a\tb",
    "x" * 100,
    "y" * 101,
    "[MASK] ß İ ﬁ \u2028 \x85",
]


def rows_of(lines: Iterable[str], folder: Path, *, cased: bool = False, workers: int = 1) -> list[Row]:
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("\n".join([*lines, "end"]), encoding="utf-8", newline="\n")
    splitter = WordPiece({UNKNOWN: 0}, lowercase=not cased)
    return list(count_words([str(folder / "text.txt")], splitter, folder, workers=workers))


def their_words(lines: Iterable[str], *, held_out: bool, cased: bool = False) -> Counter[str]:
    """The words of Hugging Face's pre-tokenizer."""
    counts: Counter[str] = Counter()
    normalizer, splitter = BertNormalizer(lowercase=not cased), BertPreTokenizer()
    for line in lines:
        if is_held_out(line) == held_out:
            counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line)))
    return Counter({word: count for word, count in counts.items() if len(word) <= 100})


@pytest.mark.parametrize("cased", [False, True])
def test_words_match_the_tokenizer(read_lines: Callable[[str, int], list[str]], tmp_path: Path, cased: bool) -> None:
    lines = [
        *read_lines("text/enwiki-heldout.txt.xz", 300_000),
        *read_lines("text/zhwiki.txt.xz", 200_000),
        *EDGE_CASES,
    ]
    rows = rows_of(lines, tmp_path, cased=cased)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    lines.append("end")
    for held_out in (False, True):
        theirs = their_words(lines, held_out=held_out, cased=cased)
        assert {row[0]: row[1 + held_out] for row in rows if row[1 + held_out]} == theirs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\0")))
def test_words_of_any_text_match_the_tokenizer(tmp_path: Path, text: str) -> None:
    lines = text.removeprefix("\ufeff").split("\n")
    rows = rows_of(lines, tmp_path)
    theirs = their_words([*lines, "end"], held_out=False) + their_words([*lines, "end"], held_out=True)
    assert {word: count + held_out for word, count, held_out in rows} == theirs


@pytest.mark.parametrize("workers", [1, 3])
def test_many_small_runs_merged_in_steps_give_the_same_rows_as_one_run(
    read_lines: Callable[[str, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    lines = read_lines("text/enwiki-heldout.txt.xz", 200_000)
    at_once = rows_of(lines, tmp_path / "one")
    assert len([*(tmp_path / "one").iterdir()]) == 2  # the text and one run
    monkeypatch.setattr(word_counts, "BLOCK_CHARACTERS", 5_000)
    monkeypatch.setattr(word_counts, "MAX_OPEN_RUNS", 3)
    assert rows_of(reversed(lines), tmp_path / "many", workers=workers) == at_once
    assert len([*(tmp_path / "many").iterdir()]) < 1 + 3  # merged runs are removed


def test_counts_may_exceed_32_bits(tmp_path: Path) -> None:
    runs = [tmp_path / "a", tmp_path / "b"]
    for run in runs:
        run.write_text(f"word\t{1 << 60}\t{1 << 40}\n")
    assert list(word_counts._merge(runs)) == [("word", 1 << 61, 1 << 41)]


def test_one_line_in_a_hundred_is_held_out() -> None:
    held_out = sum(is_held_out(f"line {number}") for number in range(20_000))
    assert 140 < held_out < 260
