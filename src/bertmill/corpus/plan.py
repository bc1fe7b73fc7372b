"""An epoch planned: which slices of the corpus make which instance, as records in a memory-mapped file.

    epoch-00003.records   one record of fixed size per instance, block after block (a block is a shard)
    epoch-00003.json      what it was planned from and for, counts, where each block's records end, sha256
The plan needs lengths alone and one block of them at a time. A block's plan is a function of (seed, epoch, block),
so the records can be made again when they are missing or damaged; how many there are, the small file knows. The
records of the epoch before last are removed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertmill.corpus.full_sentences import plan_full_sentences
from bertmill.corpus.objectives import Counts, PlanSettings
from bertmill.corpus.pairs import LARGEST_SURPLUS, plan_pairs
from bertmill.corpus.parts import DocumentPart
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, IntegrityError, UsageError
from bertmill.randomness import keyed_generator
from bertmill.storage import new_file, read_json, sha256_of, write_file

FORMAT = 1
BALANCED = 0.01  # how far from half the share of a label may be


@dataclass(frozen=True)
class PlanFacts:
    """What the small file beside the records says."""

    counts: Counts
    block_ends: list[int]  # the number of records up to the end of each block
    sha256: str  # of the records

    @property
    def share_of_label_1(self) -> float:
        return self.counts.labels_1 / max(1, self.counts.instances)

    @property
    def remark(self) -> str | None:
        """What the user should know about the labels: one-sentence chunks can make them impossible to balance."""
        surplus = 2 * self.counts.labels_1 - self.counts.instances
        if self.share_of_label_1 <= 0.5 + BALANCED or surplus <= LARGEST_SURPLUS * len(self.block_ends):
            return None
        return (
            f"{self.share_of_label_1:.1%} of the pairs are negatives, not 50 %: {self.counts.one_sentence:,} chunks "
            "have one sentence, which nothing follows; use longer documents, a larger length, mlm or mlm+sop"
        )


class Planner:
    """The plans of a corpus, one per epoch, in a folder; made when first asked for."""

    def __init__(self, corpus: Corpus, folder: Path, settings: PlanSettings, seed: int) -> None:
        if not corpus.num_pieces:
            raise DataError("has no text to make instances of", where=corpus.folder)
        self.part = DocumentPart(corpus, settings.part, settings.heldout_share)
        if settings.objective == "mlm+nsp" and self.part.num_documents < 2:
            names = {"train": "its part to train on ", "heldout": "its held-out part "}
            is_cut = settings.heldout_share > 0
            raise DataError(
                f"{names[settings.part] if is_cut else ''}has one document only, "
                "so no sentence can come from another one",
                where=corpus.folder,
                remedy=f"use the objective mlm or mlm+sop{', or hold out another share' if is_cut else ''}",
            )
        self.corpus = corpus
        self.folder = folder
        self.settings = settings
        self.seed = seed

    def facts(self, epoch: int) -> PlanFacts:
        """What is known of an epoch's plan without its records."""
        return self._known(epoch) or self._make(epoch)

    def records(self, epoch: int) -> NDArray[Any]:
        """The instances of an epoch, mapped into memory; planned now if they are not there as they should be."""
        facts = self._known(epoch)
        path = self._path(epoch, "records")
        if facts is None or not path.is_file() or sha256_of(path) != facts.sha256:
            self._make(epoch)
        return np.memmap(path, self.settings.record, "r")

    def _path(self, epoch: int, kind: str) -> Path:
        return self.folder / f"epoch-{epoch:05d}.{kind}"

    def _origin(self, epoch: int) -> dict[str, Any]:
        """All that a plan depends on."""
        settings = dataclasses.asdict(self.settings)
        return {"format": FORMAT, "corpus": self.corpus.identity, "seed": self.seed, "epoch": epoch, **settings}

    def _known(self, epoch: int) -> PlanFacts | None:
        path = self._path(epoch, "json")
        if not path.exists():
            return None
        try:
            content = read_json(path, max_bytes=1 << 30)
        except IntegrityError:
            return None  # damaged: it is made again
        if content.pop("checksum", None) != _checksum(content):
            return None
        origin = content.pop("origin")
        different = [
            f"{key} {origin.get(key)}, not {value}"
            for key, value in self._origin(epoch).items()
            if origin.get(key) != value
        ]
        if different:
            raise UsageError(
                f"was planned for something else: {'; '.join(different)}",
                where=path,
                remedy="take what it was planned for, or another folder",
            )
        return PlanFacts(Counts(**content["counts"]), content["block_ends"], content["sha256"])

    def _make(self, epoch: int) -> PlanFacts:
        """Plan block after block; the records first, then the file that vouches for them."""
        plan_block = plan_pairs if self.settings.is_pair else plan_full_sentences
        counts, block_ends, digest = Counts(), [], hashlib.sha256()
        self.folder.mkdir(parents=True, exist_ok=True)
        with new_file(self._path(epoch, "records")) as temporary, temporary.open("wb") as file:
            for block in range(len(self.corpus.shards)):
                generator = keyed_generator(self.seed, epoch, "plan", block)
                planned = plan_block(self.part, block, self.settings, generator)
                counts.add(planned.counts)
                block_ends.append(counts.instances)
                content = planned.records.tobytes()
                digest.update(content)
                file.write(content)
            if not counts.instances:
                raise DataError("has not one sentence that can be made a pair", where=self.corpus.folder)
        facts = PlanFacts(counts, block_ends, digest.hexdigest())
        header = {"origin": self._origin(epoch), **dataclasses.asdict(facts)}
        write_file(self._path(epoch, "json"), dumps({**header, "checksum": _checksum(header)}, indent=1) + "\n")
        # A batch may lie across two epochs. Counts of earlier ones stay: the places of later steps hang on them.
        if epoch >= 2:
            self._path(epoch - 2, "records").unlink(missing_ok=True)
        return facts


def _checksum(content: dict[str, Any]) -> str:
    """A hash of what the small file says: order and counts hang on it."""
    return hashlib.sha256(dumps(content, sort_keys=True).encode()).hexdigest()
