"""The same text gives the same vocabulary, byte for byte, and Hugging Face's tools open it."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from benchmarks.inputs import write_beginning
from benchmarks.vocab import learn_theirs, pieces_per_word
from bertmill.errors import DataError, UsageError
from bertmill.storage import verify_manifest
from bertmill.text import learning, word_counts
from bertmill.text.learning import learn_vocabulary
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS

TEXT = "low low low lower lower newest newest newest newest widest widest 北京\n"


def learn(folder: Path, text: str = TEXT, **settings: Any) -> tuple[list[str], dict[str, Any]]:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    facts = learn_vocabulary([str(folder / "text.txt")], folder / "out", **{"size": 50, "workers": 1, **settings})
    return (folder / "out/vocab.txt").read_text(encoding="utf-8").splitlines(), facts


@pytest.fixture(scope="module")
def files(read_lines: Callable[[str, int], list[str]], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Three files of real text, English and Chinese."""
    folder = tmp_path_factory.mktemp("text")
    english, chinese = (read_lines(f"text/{name}.txt.xz", 300_000) for name in ("enwiki-heldout", "zhwiki"))
    for name, lines in {"a": english[::2], "b": chinese, "c": english[1::2]}.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(folder / f"{name}.txt") for name in "abc"]


def test_pieces_are_special_tokens_unused_tokens_the_alphabet_and_learned_pieces(tmp_path: Path) -> None:
    pieces, facts = learn(tmp_path, unused=2, size=32)
    assert pieces[:7] == [*SPECIAL_TOKENS, "[unused0]", "[unused1]"]
    assert pieces[7:12] == ["l", "n", "w", "京", "北"]
    assert pieces[12:21] == [f"##{character}" for character in "deiorstw"] + ["##es"]
    assert pieces[21:] == ["##est", "lo", "low", "ne", "##west", "newest", "wi", "##dest", "##er", "lower", "widest"]
    assert facts["pieces"] == 32
    assert facts["words"] == 13


def test_learning_stops_when_no_pair_is_frequent_enough(tmp_path: Path) -> None:
    pieces, facts = learn(tmp_path, size=1000, min_frequency=3)
    assert facts["pieces"] == len(pieces) < 40
    assert "newest" in pieces
    assert "lower" not in pieces


def test_the_alphabet_can_be_limited_and_dropped_characters_are_reported(tmp_path: Path) -> None:
    pieces, facts = learn(tmp_path, alphabet=4)
    single = {piece.removeprefix("##") for piece in pieces[5:] if len(piece.removeprefix("##")) == 1}
    assert single == {"e", "w", "s", "t"}
    assert facts["dropped_characters"] == ["l", "o", "n", "d", "i", "r", "京", "北"]
    assert facts["dropped_share"] == pytest.approx(22 / 57)


def test_rare_characters_are_dropped_by_default(tmp_path: Path) -> None:
    _, facts = learn(tmp_path, "e" * 90 + "\n" + "a b " * 50_000 + "ж")
    assert facts["dropped_characters"] == ["ж"]


def test_a_cased_vocabulary_keeps_case_and_accents(tmp_path: Path) -> None:
    pieces, _ = learn(tmp_path, "Über über Über", cased=True)
    assert {"Über", "ü"} <= set(pieces)
    tokenizer = BertTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.tokenize("Über") == ["Über"]


def test_the_vocabulary_does_not_depend_on_file_order_or_workers(files: list[str], tmp_path: Path) -> None:
    contents = set()
    orders = [*itertools.islice(itertools.permutations(files), 3), files, files]
    for number, (order, workers) in enumerate(zip(orders, [1, 2, 4, 2, 1], strict=True)):
        learn_vocabulary(order, tmp_path / str(number), size=9000, workers=workers)
        names = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "manifest.json")
        contents.add(tuple((tmp_path / str(number) / name).read_bytes() for name in names))
    assert len(contents) == 1
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == sorted(names)
    verify_manifest(tmp_path / "0")


def test_the_vocabulary_does_not_depend_on_the_block_size(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = learn_vocabulary(files, tmp_path / "large", size=9000, workers=1)
    monkeypatch.setattr(word_counts, "BLOCK_CHARACTERS", 20_000)
    monkeypatch.setattr(word_counts, "MAX_OPEN_RUNS", 4)
    assert learn_vocabulary(files, tmp_path / "small", size=9000, workers=2) == facts
    vocabularies = {(tmp_path / name / "vocab.txt").read_bytes() for name in ("large", "small")}
    assert len(vocabularies) == 1


def test_transformers_opens_the_folder_and_gives_the_same_ids(
    files: list[str], read_lines: Callable[[str, int], list[str]], tmp_path: Path
) -> None:
    facts = learn_vocabulary(files, tmp_path / "out", size=9000, workers=1)
    assert facts["pieces"] == 9000
    assert facts["held_out"]["coverage"] > 0.99
    ours = BertTokenizer.from_pretrained(tmp_path / "out")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    lines = read_lines("text/books.txt.xz", 50_000) + read_lines("text/zhwiki.txt.xz", 50_000)
    assert ours(lines)["input_ids"] == theirs(lines)["input_ids"]


def test_the_report_describes_the_held_out_lines(tmp_path: Path) -> None:
    lines = [f"word number {number} of ж" for number in range(1000)]
    held_out = [line for line in lines if word_counts.is_held_out(line)]
    pieces, facts = learn(tmp_path, "\n".join(lines), alphabet=15)
    known = BertTokenizer.from_pretrained(tmp_path / "out")
    ids = [known(line, add_special_tokens=False)["input_ids"] for line in held_out]
    num_words = sum(len(line.split()) for line in held_out)
    assert facts["held_out"]["words"] == num_words
    assert facts["held_out"]["pieces_per_word"] == sum(map(len, ids)) / num_words
    num_unknown = sum(row.count(pieces.index("[UNK]")) for row in ids)
    assert facts["held_out"]["coverage"] == pytest.approx(1 - num_unknown / num_words)
    assert num_unknown > 0


def test_only_the_most_frequent_words_are_used_for_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "MAX_WORDS", 2)
    pieces, facts = learn(tmp_path)
    assert facts["training_words"] == 2
    assert {"newest", "low"} <= set(pieces)
    assert "widest" not in pieces


def test_a_size_too_small_for_the_alphabet_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="size 17 is too small: 5 special and unused tokens and an alphabet of 12"):
        learn(tmp_path, size=17)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(("text", "message"), [("", "no text"), (" \n", "no text"), ("\u200b", "no words")])
def test_text_without_words_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        learn(tmp_path, text)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.slow
def test_pieces_per_word_are_as_few_as_with_the_tokenizers_library(data: Path, tmp_path: Path) -> None:
    text = write_beginning(data / "text/enwiki.txt.xz", tmp_path / "text.txt", 5_000_000)
    learn_vocabulary([str(text)], tmp_path / "ours", size=20_000)
    learn_theirs(text, tmp_path / "theirs.txt", size=20_000)
    held_out = data / "text/enwiki-heldout.txt.xz"
    assert pieces_per_word(tmp_path / "ours", held_out) < 1.01 * pieces_per_word(tmp_path / "theirs.txt", held_out)
