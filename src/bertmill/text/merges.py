"""Pieces learnt from counted words: again and again the most frequent pair of neighbouring pieces becomes a piece.

A word is kept as a string with one character per piece (`chr` of the piece's number), a pair as a string of two:
so finding and merging a pair in a word are `str.find` and `str.replace`. `counts` knows how often each pair occurs,
`words_with` which words may hold it (a word that no longer does is passed over), and a heap which pair comes next.
The heap is lazy: what has fallen is corrected when it comes to the top, and pairs under `floor` stay out of it until
it is empty and the floor is lowered. Equal counts go by the pieces' numbers, so that the result depends on the
words and their counts alone, in whatever order they come.
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
    """Up to `num_pieces` new pieces in order of learning; words with a character outside `alphabet` are left out.

    `alphabet` holds the pieces of one character, those inside a word with `##`.
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
    """Words, pairs and heap, as described above."""

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
        if len(word) > 1 and word[0] in self._first and self._inner_characters.issuperset(word[1:]):
            self._words.append(self._first[word[0]] + word[1:].translate(self._inner))
            self._count_of_word.append(count)

    def count_pairs(self) -> None:
        for index, (word, count) in enumerate(zip(self._words, self._count_of_word, strict=True)):
            for pair in map(str.__add__, word, word[1:]):
                self._counts[pair] += count
                self._words_with[pair].append(index)
        self._floor = max(self._counts.values(), default=0) + 1

    def most_frequent_pair(self) -> str | None:
        """The pair that is merged next, or None when no pair is frequent enough."""
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
        """Put one piece in place of `pair` in all words, and bring the counts up to date."""
        left, right = (self.pieces[ord(character)] for character in pair)
        piece = left + right.removeprefix(CONTINUATION)
        number = self._number.setdefault(piece, len(self.pieces))  # `ab` + `##c` may be known from `a` + `##bc`
        if number == len(self.pieces):
            self.pieces.append(piece)
        grown = self._replace_in_words(pair, chr(number))
        del self._counts[pair]
        for neighbours in grown:
            if (count := self._counts[neighbours]) >= self._floor:
                heapq.heappush(self._heap, (-count, neighbours))

    def _replace_in_words(self, pair: str, merged: str) -> set[str]:
        """Returns the pairs that have become more frequent."""
        words, counts, words_with = self._words, self._counts, self._words_with
        grown = set()
        for index in words_with.pop(pair):
            word = words[index]
            at = word.find(pair)
            if at < 0:
                continue
            count = self._count_of_word[index]
            words[index] = word.replace(pair, merged)
            if word.find(pair, at + 1) >= 0:  # more than once, perhaps overlapping: count the word anew
                for neighbours in map(str.__add__, word, word[1:]):
                    counts[neighbours] -= count
                for neighbours in map(str.__add__, words[index], words[index][1:]):
                    counts[neighbours] += count
                    if merged in neighbours:
                        words_with[neighbours].append(index)
                        grown.add(neighbours)
                continue
            if at > 0:
                counts[word[at - 1 : at + 1]] -= count
                neighbours = word[at - 1] + merged
                counts[neighbours] += count
                words_with[neighbours].append(index)
                grown.add(neighbours)
            if at + 2 < len(word):
                counts[word[at + 1 : at + 3]] -= count
                neighbours = merged + word[at + 2]
                counts[neighbours] += count
                words_with[neighbours].append(index)
                grown.add(neighbours)
        return grown
