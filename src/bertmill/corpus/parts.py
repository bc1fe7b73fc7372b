"""Split the documents of a corpus into two parts: training documents and held-out documents.

A keyed shuffle renumbers the documents, and the first ones are held out. So the parts have exactly the requested sizes,
the part of a document follows from its number, and the n-th document of a part is found without a list. The key is
constant: runs with different seeds hold out the same documents, and a larger fraction holds out a superset.
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
HELDOUT_SEED = 0  # constant: the same documents, instances and masks in every run on a corpus


class Span(NamedTuple):
    """The sentences of a document in one shard, from `first` to `stop`, counted from the start of the shard."""

    document: int
    first: int
    stop: int


class DocumentPart:
    """The documents of one part. If nothing is held out, `train` has all documents in their original order."""

    def __init__(self, corpus: Corpus, name: PartName, heldout_share: float) -> None:
        num_heldout = round(heldout_share * corpus.num_documents)
        if heldout_share and not 0 < num_heldout < corpus.num_documents:
            what = f"{heldout_share} of {corpus.num_documents:,} documents cannot be held out: "
            what += "at least one document must be held out, and at least one must remain for training"
            raise DataError(
                what, where=corpus.folder, remedy="use a different fraction, or a text file as held-out text"
            )
        self.corpus = corpus
        self._shuffle = Permutation(corpus.num_documents, HELDOUT_SEED, "heldout") if heldout_share else None
        self._first, self._stop = (0, num_heldout) if name == "heldout" else (num_heldout, corpus.num_documents)

    @property
    def num_documents(self) -> int:
        """Number of documents in this part."""
        return self._stop - self._first

    def documents(self, places: Numbers) -> Numbers:
        """Return the documents at the indices `places` of this part, each from 0 to num_documents − 1."""
        return places if self._shuffle is None else self._shuffle(places + self._first)

    def places(self, documents: Numbers) -> Numbers:
        """Return the index of each of `documents` in this part; it is out of range for documents of the other part."""
        return documents if self._shuffle is None else self._shuffle.places_of(documents) - self._first

    def contains(self, documents: Numbers) -> NDArray[np.bool_]:
        """Whether each of `documents` belongs to this part."""
        places = self.places(documents)
        return (places >= 0) & (places < self.num_documents)

    def pieces(self, number: int) -> NDArray[Any]:
        """Return the pieces of this part in shard `number`, in order."""
        shard = self.corpus.shards[number]
        pieces = shard.pieces[:]
        if self._shuffle is None:
            return pieces
        ends = np.append(0, shard.sentence_ends)
        spans = [pieces[ends[span.first] : ends[span.stop]] for span in self.spans(number)]
        return np.concatenate([pieces[:0], *spans])

    def spans(self, number: int) -> list[Span]:
        """Return the spans of this part in shard `number`, in order."""
        shard = self.corpus.shards[number]
        stops: list[int] = shard.document_ends.tolist()
        if len(shard.sentence_ends) > (stops[-1] if stops else 0):
            stops.append(len(shard.sentence_ends))  # of a document that continues in the next shard
        documents = int(self.corpus.document_offsets[number]) + np.arange(len(stops))
        spans = map(Span, documents.tolist(), [0, *stops[:-1]], stops)
        return [span for span, is_ours in zip(spans, self.contains(documents).tolist(), strict=True) if is_ours]
