"""Merging learns the same pieces as the naive algorithm, whatever the order of the words."""

import random
from collections import Counter
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from bertmill.text.merges import learn_pieces

WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 5), max_size=12)
ALPHABET = ["a", "b", "c", "##a", "##b", "##c"]


def learn_naively(counted_words: dict[str, int], num_pieces: int, min_frequency: int) -> list[str]:
    """The naive algorithm: recount all pairs for each merge."""
    pieces = list(ALPHABET)
    words = [([word[0], *(f"##{character}" for character in word[1:])], n) for word, n in counted_words.items()]
    while len(pieces) < len(ALPHABET) + num_pieces:
        counts: Counter[tuple[str, str]] = Counter()
        for word, count in words:
            for pair in pairwise(word):
                counts[pair] += count
        frequent = [pair for pair in counts if counts[pair] >= min_frequency]
        if not frequent:
            break
        best = min(frequent, key=lambda pair: (-counts[pair], pieces.index(pair[0]), pieces.index(pair[1])))
        merged = best[0] + best[1].removeprefix("##")
        if merged not in pieces:
            pieces.append(merged)
        for word, _ in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = [merged]
                at += 1
    return pieces[len(ALPHABET) :]


@given(WORDS, st.integers(0, 40), st.integers(1, 6), st.randoms())
@example({"aaaa": 1, "aaa": 2, "abab": 3}, 40, 1, random.Random(0))
def test_pieces_match_the_naive_algorithm(
    words: dict[str, int], num_pieces: int, min_frequency: int, rng: random.Random
) -> None:
    shuffled = list(words.items())
    rng.shuffle(shuffled)
    learned = learn_pieces(shuffled, ALPHABET, num_pieces, min_frequency=min_frequency)
    assert learned == learn_naively(words, num_pieces, min_frequency)


def test_the_most_frequent_pair_comes_first_and_the_alphabet_breaks_ties() -> None:
    words = [("bc", 3), ("ab", 3), ("ac", 5), ("ba", 1)]
    assert learn_pieces(words, ALPHABET, 10) == ["ac", "ab", "bc", "ba"]
    assert learn_pieces(words, ALPHABET, 10, min_frequency=3) == ["ac", "ab", "bc"]


def test_words_with_a_character_outside_the_alphabet_are_ignored() -> None:
    assert learn_pieces([("abx", 9), ("xa", 9), ("bc", 1)], ALPHABET, 10) == ["bc"]


def test_counts_may_exceed_64_bits() -> None:
    assert learn_pieces([("ab", 1 << 70), ("bc", (1 << 70) + 1)], ALPHABET, 2) == ["bc", "ab"]
