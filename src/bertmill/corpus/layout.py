"""The layout of instances: [CLS], then each text followed by [SEP], many instances in one flat row without padding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.masking import Flags, VocabularyIds
from bertmill.corpus.shards import Corpus


class Text(NamedTuple):
    """Consecutive pieces of the corpus, from `start` to `stop`."""

    start: int
    stop: int
    segment: int = 0


class Layout(NamedTuple):
    """Instances before anything is selected; n pieces, B instances."""

    piece_ids: Numbers  # [n]
    segments: Numbers  # [n]
    lengths: Numbers  # [B]
    is_ordinary: Flags  # [n] whether a piece is of the corpus
    begins_word: Flags | None  # [n] only where whole words are selected


def lay_out(
    instances: list[list[Text]], corpus: Corpus, vocabulary: VocabularyIds, *, with_word_starts: bool
) -> Layout:
    lengths = [1 + sum(text.stop - text.start + 1 for text in texts) for texts in instances]
    ids = np.full(sum(lengths), vocabulary.sep, np.int64)
    segments, is_ordinary = np.zeros_like(ids), np.zeros(len(ids), np.bool_)
    begins_word = np.zeros(len(ids), np.bool_) if with_word_starts else None
    place = 0
    for texts in instances:
        ids[place] = vocabulary.cls
        place += 1
        for start, stop, segment in texts:
            end = place + stop - start
            ids[place:end] = corpus.pieces(start, stop)
            is_ordinary[place:end] = True
            segments[place : end + 1] = segment
            if begins_word is not None:
                begins_word[place:end] = corpus.begins_word(start, stop)
            place = end + 1
    return Layout(ids, segments, np.array(lengths), is_ordinary, begins_word)
