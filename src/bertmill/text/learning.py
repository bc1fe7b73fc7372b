"""Learn a WordPiece vocabulary from text: count words, choose an alphabet, merge pairs, write the tokenizer files.

Pieces are ordered: special tokens, `[unused…]`, the alphabet by code point, then merged pieces as they were learned.
The alphabet contains the most frequent characters: those that begin words and, with `##`, those inside words.
The output is byte-identical regardless of how the text is split into files and of the number of processes.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from bertmill.errors import DataError, UsageError
from bertmill.storage import new_folder
from bertmill.text.merges import learn_pieces
from bertmill.text.repair import Repairs
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS
from bertmill.text.word_counts import Row, count_words
from bertmill.text.wordpiece import CONTINUATION, UNKNOWN, WordPiece

ALPHABET_COVERAGE = 0.99995  # fraction of all characters in the text
MAX_WORDS = 1_000_000  # to learn from


@dataclass
class WordTable:
    """Counts from the text: the words to learn from, the characters, and the total number of words."""

    words: list[tuple[str, int]] = field(default_factory=list)
    characters: Counter[str] = field(default_factory=Counter)
    first_characters: set[str] = field(default_factory=set)
    inner_characters: set[str] = field(default_factory=set)
    num_words: int = 0
    num_different: int = 0

    def alphabet(self, limit: int | None) -> set[str]:
        """The `limit` most frequent characters; without a limit, those that make up nearly all of the text."""
        by_frequency = sorted(self.characters.items(), key=lambda item: (-item[1], item[0]))
        if limit is not None:
            return {character for character, _ in by_frequency[:limit]}
        needed = sum(self.characters.values()) * ALPHABET_COVERAGE
        covered = accumulate((count for _, count in by_frequency), initial=0)  # before each character
        return {character for (character, _), before in zip(by_frequency, covered, strict=False) if before < needed}


def learn_vocabulary(
    files: Sequence[str],
    out: Path,
    *,
    size: int,
    cased: bool = False,
    alphabet: int | None = None,
    unused: int = 0,
    min_frequency: int = 2,
    workers: int | None = None,
    text_field: str = "text",
    encoding: str | None = None,
    repairs: Repairs | None = None,
    on_progress: Callable[[int, int], object] = lambda _read, _text: None,
    on_counted: Callable[[WordTable], object] = lambda _table: None,
) -> dict[str, Any]:
    """Write a tokenizer of up to `size` pieces to the folder `out` and return facts about it.

    `alphabet` limits the number of characters. `on_progress` is called while words are counted (see `count_words`),
    `on_counted` with the result.
    """
    splitter = WordPiece({UNKNOWN: 0}, lowercase=not cased)
    with new_folder(out) as folder:
        runs = folder / "runs"
        runs.mkdir()
        held_out_path = runs / "held-out"
        rows = count_words(
            files,
            splitter,
            runs,
            workers=workers,
            text_field=text_field,
            encoding=encoding,
            repairs=repairs,
            on_progress=on_progress,
        )
        table = tabulate(_set_apart_held_out(rows, held_out_path), min_frequency)
        if not table.num_words:
            raise DataError("contains no words", where=", ".join(files))
        on_counted(table)
        characters = table.alphabet(alphabet)
        vocabulary = _learn(table, characters, unused, size, min_frequency)
        tokenizer = BertTokenizer(vocabulary, do_lower_case=not cased)
        held_out = measure(tokenizer.wordpiece, _read_counts(held_out_path))
        tokenizer.save_pretrained(folder)
        shutil.rmtree(runs)
    dropped = {character: count for character, count in table.characters.items() if character not in characters}
    return {
        "pieces": len(vocabulary),
        "words": table.num_words,
        "different_words": table.num_different,
        "training_words": len(table.words),
        "alphabet": len(characters),
        "dropped_characters": sorted(dropped, key=lambda character: (-dropped[character], character)),
        "dropped_share": sum(dropped.values()) / sum(table.characters.values()),
        "held_out": held_out,
    }


def tabulate(rows: Iterable[Row], min_frequency: int) -> WordTable:
    """Collect all characters, and the words that occur at least `min_frequency` times (at most `MAX_WORDS`)."""
    table = WordTable()
    for word, count, _ in rows:
        if not count:
            continue
        table.num_words += count
        table.num_different += 1
        for character in word:
            table.characters[character] += count
        table.first_characters.add(word[0])
        table.inner_characters.update(word[1:])
        if count >= min_frequency:
            table.words.append((word, count))
            if len(table.words) >= 2 * MAX_WORDS:
                table.words = _most_frequent(table.words)
    table.words = _most_frequent(table.words)
    return table


def _most_frequent(words: list[tuple[str, int]]) -> list[tuple[str, int]]:
    if len(words) <= MAX_WORDS:
        return words
    return sorted(words, key=lambda item: (-item[1], item[0]))[:MAX_WORDS]


def _learn(table: WordTable, characters: set[str], num_unused: int, size: int, min_frequency: int) -> dict[str, int]:
    """The complete vocabulary: piece → id."""
    reserved = [*SPECIAL_TOKENS, *(f"[unused{number}]" for number in range(num_unused))]
    alphabet = sorted(characters & table.first_characters)
    alphabet += [CONTINUATION + character for character in sorted(characters & table.inner_characters)]
    num_free = size - len(reserved) - len(alphabet)
    if num_free < 0:
        what = f"size {size:,} is too small: {len(reserved):,} special and unused tokens and an alphabet of "
        what += f"{len(characters):,} characters, at the start of and inside words, need {size - num_free:,} pieces"
        raise UsageError(what, remedy="increase size or reduce alphabet")
    learned = learn_pieces(table.words, alphabet, num_free, min_frequency=min_frequency)
    return {piece: number for number, piece in enumerate([*reserved, *alphabet, *learned])}


def _set_apart_held_out(rows: Iterable[Row], path: Path) -> Iterator[Row]:
    """Yield the rows, and write the words of held-out lines to a file, to measure the vocabulary on them later."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            if row[2]:
                file.write(f"{row[0]}\t{row[2]}\n")
            yield row


def _read_counts(path: Path) -> Iterator[tuple[str, int]]:
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            word, count = line.split("\t")
            yield word, int(count)


def measure(wordpiece: WordPiece, counted_words: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Measure a vocabulary on counted words: their number, pieces per word, fractions of whole and of unknown words."""
    num_words = num_pieces = num_whole = num_unknown = 0
    unknown = [wordpiece.vocabulary[UNKNOWN]]
    for word, count in counted_words:
        ids, _ = wordpiece.match(word)
        num_words += count
        num_pieces += count * len(ids)
        if ids == unknown:
            num_unknown += count
        elif len(ids) == 1:
            num_whole += count
    total = num_words or 1
    return {
        "words": num_words,
        "pieces_per_word": num_pieces / total,
        "whole_words": num_whole / total,
        "coverage": 1 - num_unknown / total,
        "unknown_pieces": num_unknown / (num_pieces or 1),
    }
