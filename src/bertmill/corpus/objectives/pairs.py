"""Plan pairs of texts for next-sentence prediction (NSP) and sentence-order prediction (SOP), from lengths alone.

Consecutive sentences of a document form a chunk, until the target is reached or the next sentence does not fit. The
chunk is cut at a random sentence into A and B.

- NSP: half of the time, B comes from a random other document, and the unused sentences go into the next chunk.
- SOP: half of the time, A and B are swapped. A chunk of one sentence is cut at a random piece.
- A label that is in surplus becomes less likely, so labels stay balanced although a chunk of one sentence can only be
  an NSP negative.

A pair that is too long loses pieces from its longer side, at random from the front or back. This happens only to chunks
of one sentence, and to pairs of two sentences that become positives to balance a surplus of negatives. Sentences of up
to half the room of an instance are never cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers, document_ends, document_starts, sentence_starts, whole_sentences
from bertmill.corpus.instances import Layout, Text
from bertmill.corpus.masking import Masker
from bertmill.corpus.objectives.base import Objective
from bertmill.corpus.parts import DocumentPart, Span
from bertmill.corpus.plan import PlanFacts, PlanSettings, draw_targets
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from bertmill.corpus.instances import InstanceBatch

RECORD: np.dtype[Any] = np.dtype(
    [("a_start", "<u8"), ("b_start", "<u8"), ("a_length", "<u4"), ("b_length", "<u4"), ("label", "u1")]
)
LARGEST_SURPLUS = 4  # of one label; at this surplus, the next label is always the other one
PAIR_TARGET = "next_sentence_label"  # the model's argument for the label of a pair
REDRAWS = 8  # further draws if a text from another document does not fit next to A
BALANCED = 0.01  # allowed deviation of a label's fraction from one half


class PairObjective(Objective):
    """Masked pieces, and one label per pair of texts."""

    record = RECORD
    num_special = 3
    min_pieces = 2
    model_class = "BertForPreTraining"
    text_names = ("A", "B")
    label_texts: ClassVar[tuple[str, str]]
    borrows: ClassVar[bool]  # whether label 1 means that B is from another document; otherwise, A and B are swapped

    def plan_shard(
        self, part: DocumentPart, shard: int, settings: PlanSettings, generator: np.random.Generator
    ) -> tuple[NDArray[Any], dict[str, int]]:
        corpus, spans = part.corpus, part.spans(shard)
        ends: list[int] = [0, *corpus.shards[shard].sentence_ends.tolist()]  # sentence i: from ends[i] to ends[i + 1]
        chunks = list(_chunks(ends, spans, settings, generator, borrows=self.borrows))
        columns = np.array(chunks, np.int64).reshape(-1, len(Chunk._fields)).T
        start, cut, end, label, document, target, is_single = columns
        base = corpus.piece_offsets[shard]
        own = Sides(base + start, cut - start, base + cut, end - cut)
        negatives = np.flatnonzero(label) if self.borrows else np.empty(0, np.int64)
        whole = Sides(*(side.copy() for side in own))
        wanted, rooms = (target - own.a_length)[negatives], settings.room - own.a_length[negatives]
        borrowed = _texts_from_elsewhere(part, document[negatives], wanted, rooms, generator)
        whole.b_start[negatives], whole.b_length[negatives] = borrowed
        may_lose_a = np.ones(len(chunks), np.bool_)
        may_lose_a[negatives] = is_single[negatives] == 1
        sides = _truncated(whole, settings.room, may_lose_a, generator)
        lost = own.lengths - np.minimum(own.lengths, sides.lengths)  # [2, chunks]; without borrowed pieces
        num_pieces = sum(ends[span.stop] - ends[span.first] for span in spans)
        num_left_out = num_pieces - int(own.lengths.sum())  # SOP: chunks of a single piece
        counts = {
            "pieces": int(sides.lengths.sum()),
            "labels_1": int(label.sum()),  # pairs that have a borrowed B, or are swapped
            "one_sentence": int(is_single.sum()),  # chunks that can only become negatives in NSP
            "pieces_cut": int(lost.sum()) + num_left_out,  # pieces of this shard that are in no instance
            # Sentences that have lost pieces.
            "sentences_cut": int((lost > 0).sum() if self.borrows else (lost > 0).any(0).sum()) + num_left_out,
        }
        return _records(sides, label, swap=not self.borrows), counts

    def texts(self, corpus: Corpus, records: NDArray[Any]) -> list[list[Text]]:
        columns = (records[name].tolist() for name in ("a_start", "a_length", "b_start", "b_length"))
        return [
            [Text(a, a + a_length), Text(b, b + b_length, segment=1)]
            for a, a_length, b, b_length in zip(*columns, strict=True)
        ]

    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        return masker.mask(layout, epoch, numbers)

    def instance_targets(self, records: NDArray[Any]) -> dict[str, Numbers]:
        return {PAIR_TARGET: records["label"].astype(np.int64)}

    def counts(self, batch: InstanceBatch) -> dict[str, float]:
        return {**super().counts(batch), "nsp": len(batch.lengths)}

    def losses(self, output: Any) -> dict[str, Tensor]:
        return {"mlm": output.mlm_loss, "nsp": output.nsp_loss}

    def num_right(self, output: Any, batch: InstanceBatch) -> dict[str, float]:
        is_right = output.seq_relationship_logits.argmax(1).cpu().numpy() == batch.instance_targets[PAIR_TARGET]
        return {**super().num_right(output, batch), "nsp": float(is_right.sum())}

    def describe_instance(self, instance: InstanceBatch) -> list[str]:
        label = int(instance.instance_targets[PAIR_TARGET][0])
        return [*super().describe_instance(instance), f"label {label}: {self.label_texts[label]}"]

    def describe_plan(self, facts: PlanFacts) -> list[str]:
        return [f"{facts.counts['labels_1'] / facts.num_instances:.1%} with label 1"]

    def plan_remarks(self, facts: PlanFacts, num_pieces: int) -> list[str]:
        counts = facts.counts
        fraction = counts["labels_1"] / facts.num_instances
        remarks = []
        if num_cut := counts["pieces_cut"]:
            remarks.append(
                f"cut off:    {num_cut:,} pieces ({num_cut / num_pieces:.2%}) of "
                f"{counts['sentences_cut']:,} sentences that do not fit in a pair"
            )
        surplus = 2 * counts["labels_1"] - facts.num_instances
        if fraction > 0.5 + BALANCED and surplus > LARGEST_SURPLUS * len(facts.shard_ends):
            remarks.append(
                f"warning:    {fraction:.1%} of the pairs are negatives, not 50%, because {counts['one_sentence']:,} "
                "chunks have only one sentence; use longer documents, a larger length, or the objective mlm or mlm+sop"
            )
        return remarks


class NextSentencePrediction(PairObjective):
    """Does B follow A, or is it from another document?"""

    heads: ClassVar[Mapping[str, str]] = {"mlm": "MLM", "nsp": "NSP"}
    borrows = True
    label_texts = ("B follows A", "B is from another document")

    def check_part(self, part: DocumentPart, settings: PlanSettings) -> None:
        if part.num_documents > 1:
            return
        is_split = settings.heldout_share > 0
        whose = "its held-out part " if settings.part == "heldout" else "its training part "
        what = f"{whose if is_split else ''}has only one document, so no sentence can come from another one"
        remedy = f"use the objective mlm or mlm+sop{', or hold out a different fraction' if is_split else ''}"
        raise DataError(what, where=part.corpus.folder, remedy=remedy)


class SentenceOrderPrediction(PairObjective):
    """Are A and B in order, or swapped?"""

    heads: ClassVar[Mapping[str, str]] = {"mlm": "MLM", "nsp": "SOP"}  # NSP and SOP have the same key in the log
    borrows = False
    label_texts = ("A and B are in order", "A and B are swapped")


class Chunk(NamedTuple):
    """Sentences of one document, cut in two. Bounds are in pieces from the start of the shard."""

    start: int
    cut: int  # end of A
    end: int  # end of B; the same as `cut` if B is borrowed
    label: int
    document: int
    target: int
    has_one_sentence: bool


class Sides(NamedTuple):
    """The texts of many pairs, in pieces of the corpus; one array element per pair."""

    a_start: Numbers
    a_length: Numbers
    b_start: Numbers
    b_length: Numbers

    @property
    def lengths(self) -> Numbers:
        """Lengths of A and B [2, pairs]."""
        return np.stack([self.a_length, self.b_length])


def _chunks(
    ends: list[int], spans: list[Span], settings: PlanSettings, generator: np.random.Generator, *, borrows: bool
) -> Iterator[Chunk]:
    """Yield the sentences of a shard, in order, as chunks that are cut and labeled."""
    draws = draw_targets(settings, generator, num_more=2)
    surplus = 0  # number of labels 1 minus number of labels 0
    for document, sentence, stop in spans:
        while sentence < stop:
            target, where_to_cut, coin = next(draws)
            last = _chunk_end(ends, sentence, stop, int(target), settings.room)
            if borrows and last == sentence + 1 < stop and surplus >= LARGEST_SURPLUS:
                last += 1
            is_single = last == sentence + 1
            label = int((borrows and is_single) or coin >= 0.5 + 0.5 * surplus / LARGEST_SURPLUS)
            start, cut, end = ends[sentence], ends[last], ends[last]
            sentence_after = last
            if not is_single:
                middle = sentence + 1 + int(where_to_cut * (last - sentence - 1))
                cut = ends[middle]
                if borrows and label:
                    end, sentence_after = cut, middle
            elif not borrows:
                cut = start + 1 + int(where_to_cut * (end - start - 1))
            sentence = sentence_after
            if borrows or end - start > 1:  # one piece cannot be cut in two
                surplus += 2 * label - 1
                yield Chunk(start, cut, end, label, document, int(target), is_single)


def _chunk_end(ends: list[int], sentence: int, stop: int, target: int, room: int) -> int:
    """Return the sentence after the chunk that begins with `sentence`."""
    reaching = bisect_left(ends, ends[sentence] + target, sentence + 1, stop)
    too_much = bisect_right(ends, ends[sentence] + room, sentence + 1, stop + 1)
    return max(min(reaching, too_much - 1), sentence + 1)


def _texts_from_elsewhere(
    part: DocumentPart, own_documents: Numbers, wanted: Numbers, rooms: Numbers, generator: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """For each chunk, return start and length of consecutive sentences from another document of the same part.

    They begin at a random sentence and end like a chunk: when there are `wanted` pieces, or before a sentence that does
    not fit. If even the first sentence does not fit, the draw is repeated up to REDRAWS times.
    """
    corpus, own_places = part.corpus, part.places(own_documents)
    start, length = np.zeros_like(rooms), np.zeros_like(rooms)
    pending = np.arange(len(rooms))
    for _ in range(1 + REDRAWS):
        place = generator.integers(0, part.num_documents - 1, len(pending))
        place += place >= own_places[pending]
        document = part.documents(place)
        first, stop = document_starts(corpus, document), document_ends(corpus, document)
        sentence = first + np.floor(generator.random(len(pending)) * (stop - first)).astype(np.int64)
        start[pending] = sentence_starts(corpus, sentence)
        length[pending] = whole_sentences(corpus, sentence, stop, wanted[pending], rooms[pending])
        pending = pending[length[pending] > rooms[pending]]
        if not len(pending):
            break
    return start, length


def _truncated(sides: Sides, room: int, may_lose_a: NDArray[np.bool_], generator: np.random.Generator) -> Sides:
    """Return the pairs, truncated to `room` pieces.

    The longer side loses pieces until both are equally long; then both take turns, starting with B. If A must not lose
    pieces, only B does.
    """
    half = (room + 1) // 2
    a_length = np.minimum(sides.a_length, np.maximum(room - sides.b_length, half))
    a_length = np.where(may_lose_a, a_length, sides.a_length)
    b_length = np.minimum(sides.b_length, room - a_length)
    a_front = generator.binomial(sides.a_length - a_length, 0.5)
    b_front = generator.binomial(sides.b_length - b_length, 0.5)
    return Sides(sides.a_start + a_front, a_length, sides.b_start + b_front, b_length)


def _records(sides: Sides, label: Numbers, swap: bool) -> NDArray[Any]:
    records = np.zeros(len(label), RECORD)
    a_first = (label == 0) | (not swap)
    records["a_start"] = np.where(a_first, sides.a_start, sides.b_start)
    records["b_start"] = np.where(a_first, sides.b_start, sides.a_start)
    records["a_length"] = np.where(a_first, sides.a_length, sides.b_length)
    records["b_length"] = np.where(a_first, sides.b_length, sides.a_length)
    records["label"] = label
    return records
