"""Learn pieces from counted words: repeatedly merge the most frequent pair of adjacent pieces into a new piece.

A word is a string with one character per piece (`chr` of the piece's number), and a pair is a string of two characters,
so a pair is found and merged with `str.find` and `str.replace`.

- `counts`: how often each pair occurs.
- `words_with`: the words that may contain a pair; a word that no longer contains it is skipped.
- `heap`: the pair to merge next. The heap is lazy: a count that has decreased is corrected when it reaches the top, and
  pairs below `floor` are left out until the heap is empty and the floor is lowered.

Ties are broken by the pieces' numbers, so the result depends only on the words and their counts, not on their order.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bertmill.text.wordpiece import CONTINUATION

_FLOOR_STEP = 4


def learn_pieces(
    counted_words: Iterable[tuple[str, int]], alphabet: Sequence[str], num_pieces: int, *, min_frequency: int = 1
) -> list[str]:
    """Learn up to `num_pieces` new pieces, in order; words with a character outside `alphabet` are ignored.

    `alphabet` lists the pieces of one character; those inside a word start with `##`.
    """
    merger = _Merger(alphabet, min_frequency)
    for word, count in counted_words:
        merger.add_word(word, count)
    merger.count_pairs()
    first_new = len(merger.pieces)
    while len(merger.pieces) < first_new + num_pieces and (pair := merger.most_frequent_pair()) is not None:
        merger.merge(pair)
    return merger.pieces[first_new:]


class _Merger:
    """The words, pairs and heap described in the module docstring."""

    def __init__(self, alphabet: Sequence[str], min_frequency: int) -> None:
        self.pieces = list(alphabet)
        self._number = {piece: number for number, piece in enumerate(self.pieces)}
        self._first = {piece: chr(number) for piece, number in self._number.items() if len(piece) == 1}
        self._inner = {
            ord(piece[-1]): chr(number) for piece, number in self._number.items() if len(piece) == len(CONTINUATION) + 1
        }
        self._inner_characters = {chr(point) for point in self._inner}
        self._words: list[str] = []
        self._count_of_word: list[int] = []
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._words_with: defaultdict[str, list[int]] = defaultdict(list)
        self._min_frequency = min_frequency
        self._floor = 0
        self._heap: list[tuple[int, str]] = []

    def add_word(self, word: str, count: int) -> None:
        """Add a counted word, unless it has no pair or a character outside the alphabet."""
        if len(word) > 1 and word[0] in self._first and self._inner_characters.issuperset(word[1:]):
            self._words.append(self._first[word[0]] + word[1:].translate(self._inner))
            self._count_of_word.append(count)

    def count_pairs(self) -> None:
        """Count the pairs of all words; call this once, after the last word."""
        for index, (word, count) in enumerate(zip(self._words, self._count_of_word, strict=True)):
            for pair in map(str.__add__, word, word[1:]):
                self._counts[pair] += count
                self._words_with[pair].append(index)
        self._floor = max(self._counts.values(), default=0) + 1

    def most_frequent_pair(self) -> str | None:
        """The pair to merge next; None if no pair is frequent enough."""
        heap, counts = self._heap, self._counts
        while True:
            while heap:
                negative_count, pair = heap[0]
                count = counts.get(pair, 0)
                if count == -negative_count:
                    return pair
                if count >= self._floor:
                    heapq.heapreplace(heap, (-count, pair))
                else:
                    heapq.heappop(heap)
            if self._floor <= self._min_frequency:
                return None
            self._floor = max(self._min_frequency, self._floor // _FLOOR_STEP)
            heap += [(-count, pair) for pair, count in counts.items() if count >= self._floor]
            heapq.heapify(heap)

    def merge(self, pair: str) -> None:
        """Replace `pair` with one piece in all words, and update the counts."""
        left, right = (self.pieces[ord(character)] for character in pair)
        piece = left + right.removeprefix(CONTINUATION)
        number = self._number.setdefault(piece, len(self.pieces))  # `ab` + `##c` may exist from `a` + `##bc`
        if number == len(self.pieces):
            self.pieces.append(piece)
        grown = self._replace_in_words(pair, chr(number))
        del self._counts[pair]
        for neighbors in grown:
            if (count := self._counts[neighbors]) >= self._floor:
                heapq.heappush(self._heap, (-count, neighbors))

    def _replace_in_words(self, pair: str, merged: str) -> set[str]:
        """Return the pairs that have become more frequent."""
        words, counts, words_with = self._words, self._counts, self._words_with
        grown = set()
        for index in words_with.pop(pair):
            word = words[index]
            at = word.find(pair)
            if at < 0:
                continue
            count = self._count_of_word[index]
            words[index] = word.replace(pair, merged)
            if word.find(pair, at + 1) >= 0:  # several occurrences, which may overlap: recount the word
                for neighbors in map(str.__add__, word, word[1:]):
                    counts[neighbors] -= count
                for neighbors in map(str.__add__, words[index], words[index][1:]):
                    counts[neighbors] += count
                    if merged in neighbors:
                        words_with[neighbors].append(index)
                        grown.add(neighbors)
                continue
            if at > 0:
                counts[word[at - 1 : at + 1]] -= count
                neighbors = word[at - 1] + merged
                counts[neighbors] += count
                words_with[neighbors].append(index)
                grown.add(neighbors)
            if at + 2 < len(word):
                counts[word[at + 1 : at + 3]] -= count
                neighbors = merged + word[at + 2]
                counts[neighbors] += count
                words_with[neighbors].append(index)
                grown.add(neighbors)
        return grown
