"""The two parts of a corpus, by documents: those that are trained on, and a share that is held out.

Documents are numbered anew by a keyed shuffle, and the first so many are held out. So the parts have exactly the sizes
asked for, the part of a document follows from its number, and the n-th document of a part is found without a list.
The key is always the same: runs with other seeds hold out the same documents, and a larger share holds out the same
and more.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError
from bertmill.randomness import Permutation

PartName = Literal["train", "heldout"]
HELDOUT_SEED = 0  # the same documents, instances and masks for every run on the same text


class Span(NamedTuple):
    """A document, or what of it lies in one shard: its sentences from `first` to `stop`, counted in the shard."""

    document: int
    first: int
    stop: int


class DocumentPart:
    """The documents of one part; if nothing is held out, `train` is all of them, in their own order."""

    def __init__(self, corpus: Corpus, name: PartName, heldout_share: float) -> None:
        num_heldout = round(heldout_share * corpus.num_documents)
        if heldout_share and not 0 < num_heldout < corpus.num_documents:
            what = f"{heldout_share} of {corpus.num_documents:,} documents cannot be held out: "
            what += "there must be at least one to hold out and one to train on"
            raise DataError(what, where=corpus.folder, remedy="choose another share or give a text file")
        self.corpus = corpus
        self._shuffle = Permutation(corpus.num_documents, HELDOUT_SEED, "heldout") if heldout_share else None
        self._first, self._stop = (0, num_heldout) if name == "heldout" else (num_heldout, corpus.num_documents)

    @property
    def num_documents(self) -> int:
        return self._stop - self._first

    def documents(self, places: Numbers) -> Numbers:
        """The documents at `places` of this part, each from 0 to num_documents − 1."""
        return places if self._shuffle is None else self._shuffle(places + self._first)

    def places(self, documents: Numbers) -> Numbers:
        """Where each of `documents` stands in this part; those of the other part are before or behind it."""
        return documents if self._shuffle is None else self._shuffle.places_of(documents) - self._first

    def contains(self, documents: Numbers) -> NDArray[np.bool_]:
        """Whether each of `documents` belongs to this part."""
        places = self.places(documents)
        return (places >= 0) & (places < self.num_documents)

    def pieces(self, number: int) -> NDArray[Any]:
        """The pieces that the shard of this number holds of this part, in order."""
        shard = self.corpus.shards[number]
        if self._shuffle is None:
            return shard.pieces
        ends = np.append(0, shard.sentence_ends)
        spans = [shard.pieces[ends[span.first] : ends[span.stop]] for span in self.spans(number)]
        return np.concatenate([shard.pieces[:0], *spans])

    def spans(self, number: int) -> list[Span]:
        """What the shard of this number holds of this part, in order."""
        shard = self.corpus.shards[number]
        stops: list[int] = shard.document_ends.tolist()
        if len(shard.sentence_ends) > (stops[-1] if stops else 0):
            stops.append(len(shard.sentence_ends))  # of a document that goes on in the next shard
        documents = int(self.corpus.document_offsets[number]) + np.arange(len(stops))
        spans = map(Span, documents.tolist(), [0, *stops[:-1]], stops)
        return [span for span, is_ours in zip(spans, self.contains(documents).tolist(), strict=True) if is_ours]
