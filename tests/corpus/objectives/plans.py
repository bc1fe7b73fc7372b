"""Plans of small corpora for tests of objectives."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from bertmill.corpus.plan import PlanFacts, Planner, PlanSettings
from bertmill.corpus.shards import Corpus
from tests.corpus.factory import write_corpus

Records = np.ndarray[Any, Any]


documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)


shard_sizes = st.sampled_from([3, 10, 1000])


def planned(
    lengths: list[list[int]], sentences_per_shard: int, plan_settings: PlanSettings, seed: int
) -> tuple[Corpus, Records, PlanFacts]:
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where fsync takes no time
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        corpus = write_corpus(Path(folder, "corpus"), lengths, sentences_per_shard=sentences_per_shard)
        planner = Planner(corpus, Path(folder, "plan"), plan_settings, seed)
        return corpus, np.array(planner.open_records(0)[:]), planner.plan(0)


def owners(lengths: list[list[int]]) -> tuple[Records, Records]:
    """Return the sentence and the document of every piece."""
    flat = [length for document in lengths for length in document]
    sentence = np.repeat(np.arange(len(flat)), flat)
    return sentence, np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
