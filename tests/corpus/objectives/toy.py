"""A toy objective: every sentence is an instance, and its last piece is masked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.boundaries import Numbers
from bertmill.corpus.instances import Layout, Text
from bertmill.corpus.masking import NOT_SELECTED, Masker
from bertmill.corpus.objectives.base import Objective
from bertmill.corpus.parts import DocumentPart
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus


class LastPiece(Objective):
    record = np.dtype([("start", "<u8"), ("length", "<u4")])
    num_special = 2
    model_class = "BertForMaskedLM"
    heads = {"last": "last piece"}  # noqa: RUF012

    def plan_shard(
        self, part: DocumentPart, shard: int, settings: PlanSettings, generator: np.random.Generator
    ) -> tuple[NDArray[Any], dict[str, int]]:
        ends = np.append(0, part.corpus.shards[shard].sentence_ends)
        sentences = np.concatenate([np.arange(span.first, span.stop) for span in part.spans(shard)])
        records = np.empty(len(sentences), self.record)
        records["start"] = part.corpus.piece_offsets[shard] + ends[sentences]
        records["length"] = np.minimum(np.diff(ends)[sentences], settings.room)
        return records, {"pieces": int(records["length"].sum())}

    def texts(self, corpus: Corpus, records: NDArray[Any]) -> list[list[Text]]:
        return [[Text(int(start), int(start) + int(length))] for start, length in records]

    def label(self, layout: Layout, masker: Masker, epoch: int, numbers: Numbers) -> Numbers:
        labels = np.full_like(layout.piece_ids, NOT_SELECTED)
        last = np.cumsum(layout.lengths) - 2  # before [SEP]
        labels[last] = layout.piece_ids[last]
        layout.piece_ids[last] = masker.mask_id
        return labels

    def predicted_share(self, mask_rate: float) -> float:
        return 0.1

    def describe_instance(self, instance: Any) -> list[str]:
        return ["a toy"]
