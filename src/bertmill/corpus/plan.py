"""The plan of an epoch: the slices of the corpus that form each instance, as records in a file.

    epoch-00003.records   one record of fixed size per instance, shard after shard
    epoch-00003.json      corpus, seed, settings, counts, where each shard's records end, sha256
Planning needs only lengths, one shard at a time. The plan of a shard is a function of (seed, epoch, shard), so missing
or damaged records can be planned again; the JSON file has their number. The records of the epoch before last are
removed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np

from bertmill.corpus.number_file import NumberFile
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.parts import DocumentPart, PartName
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, IntegrityError, UsageError
from bertmill.randomness import keyed_generator
from bertmill.storage import new_file, read_json, refuse_moved, sha256_of, write_file

FORMAT = 2
_DRAWN_AT_ONCE = 1024


@dataclass(frozen=True)
class PlanSettings:
    """Settings that, together with the seed, determine how a corpus is cut into instances."""

    objective: str = "mlm+nsp"
    length: int = 128  # maximum length of an instance, including [CLS] and [SEP]
    short_seq_prob: float = 0.1  # fraction of instances with a random shorter target length
    heldout_share: float = 0.0  # of the documents
    part: PartName = "train"  # make instances from training documents or from held-out documents

    def __post_init__(self) -> None:
        objective = load_objective(self.objective)
        if not 0 <= self.short_seq_prob <= 1:
            raise UsageError(f"short_seq_prob must be from 0 to 1, not {self.short_seq_prob}")
        if not 0 <= self.heldout_share < 1:
            raise UsageError(f"heldout_share must be at least 0 and less than 1, not {self.heldout_share}")
        if self.part == "heldout" and not self.heldout_share:
            raise UsageError("part is 'heldout', but heldout_share is 0")
        shortest = objective.num_special + objective.min_pieces
        if self.length < shortest:
            what = f"length {self.length} is too short for {self.objective}"
            raise UsageError(what, remedy=f"use at least {shortest}")

    @cached_property
    def room(self) -> int:
        """Room for pieces of the corpus in an instance."""
        return self.length - load_objective(self.objective).num_special


@dataclass(frozen=True)
class PlanFacts:
    """Content of the JSON file next to the records."""

    counts: dict[str, int]  # totals of the objective's counts; see `Objective.plan_shard`
    shard_ends: list[int]  # number of records up to the end of each shard
    sha256: str  # of the records

    @property
    def num_instances(self) -> int:
        """Number of instances in the epoch."""
        return self.shard_ends[-1]


class Planner:
    """Makes and loads the plans of a corpus, one per epoch, in a folder."""

    def __init__(self, corpus: Corpus, folder: Path, settings: PlanSettings, seed: int) -> None:
        if not corpus.num_pieces:
            raise DataError("has no text", where=corpus.folder)
        self.part = DocumentPart(corpus, settings.part, settings.heldout_share)
        self.objective = load_objective(settings.objective)
        self.objective.check_part(self.part, settings)
        self.corpus = corpus
        self.folder = folder
        self.settings = settings
        self.seed = seed

    def plan(self, epoch: int) -> PlanFacts:
        """Plan an epoch unless it is already planned; its records may have been removed since."""
        return self._known(epoch) or self._make(epoch)

    def open_records(self, epoch: int) -> NumberFile:
        """Open the records of an epoch. Plans the epoch again if they are missing or damaged."""
        facts = self._known(epoch)
        path = self._path(epoch, "records")
        if facts is None or not path.is_file() or sha256_of(path) != facts.sha256:
            self._make(epoch)
        return NumberFile(path, self.objective.record, remedy="resume the run, which plans the epoch again")

    def _path(self, epoch: int, kind: str) -> Path:
        return self.folder / f"epoch-{epoch:05d}.{kind}"

    def _origin(self, epoch: int) -> dict[str, Any]:
        """Return everything that a plan depends on."""
        settings = dataclasses.asdict(self.settings)
        return {"format": FORMAT, "corpus": self.corpus.identity, "seed": self.seed, "epoch": epoch, **settings}

    def _known(self, epoch: int) -> PlanFacts | None:
        path = self._path(epoch, "json")
        if not path.exists():
            return None
        try:
            content = read_json(path, max_bytes=1 << 30)
        except IntegrityError:
            return None  # damaged: plan again
        if content.pop("checksum", None) != _checksum(content):
            return None
        origin = content.pop("origin")
        if different := [
            f"{key} {origin.get(key)}, not {value}"
            for key, value in self._origin(epoch).items()
            if origin.get(key) != value
        ]:
            what = f"was planned with different settings: {'; '.join(different)}"
            raise UsageError(what, where=path, remedy="use the same settings, or another folder for plans")
        return PlanFacts(content["counts"], content["shard_ends"], content["sha256"])

    def _make(self, epoch: int) -> PlanFacts:
        """Plan shard by shard. Writes the records first, then the JSON file that makes them valid."""
        counts, num_instances, shard_ends, digest = Counter[str](), 0, [], hashlib.sha256()
        refuse_moved(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with new_file(self._path(epoch, "records")) as temporary, temporary.open("wb") as file:
            for shard in range(len(self.corpus.shards)):
                generator = keyed_generator(self.seed, epoch, "plan", shard)
                records, shard_counts = self.objective.plan_shard(self.part, shard, self.settings, generator)
                counts.update(shard_counts)
                num_instances += len(records)
                shard_ends.append(num_instances)
                content = records.tobytes()
                digest.update(content)
                file.write(content)
            if not num_instances:
                raise DataError("has no sentences that can form an instance", where=self.corpus.folder)
        facts = PlanFacts(dict(counts), shard_ends, digest.hexdigest())
        header = {"origin": self._origin(epoch), **dataclasses.asdict(facts)}
        write_file(self._path(epoch, "json"), dumps({**header, "checksum": _checksum(header)}, indent=1) + "\n")
        # Records of two epochs are kept, because a batch may span both. JSON files are kept for all epochs, because
        # their counts determine which instances later steps get.
        if epoch >= 2:
            self._path(epoch - 2, "records").unlink(missing_ok=True)
        return facts


def _checksum(content: dict[str, Any]) -> str:
    """Hash the content of the JSON file, on which order and counts depend."""
    return hashlib.sha256(dumps(content, sort_keys=True).encode()).hexdigest()


def draw_targets(
    settings: PlanSettings, generator: np.random.Generator, *, num_more: int
) -> Iterator[tuple[float, ...]]:
    """Yield, for each chunk, the target number of pieces and `num_more` random numbers from 0 to 1."""
    shortest = min(2, settings.room)
    while True:
        draws = generator.random((_DRAWN_AT_ONCE, 2 + num_more))
        is_short = draws[:, 0] < settings.short_seq_prob
        shorter = shortest + np.floor(draws[:, 1] * (settings.room - shortest + 1))
        draws[:, 1] = np.where(is_short, shorter, settings.room)
        yield from map(tuple, draws[:, 1:].tolist())
