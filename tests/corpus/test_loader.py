"""The loader gives the same instances for any number of workers and ranks and any first step, and ends cleanly."""

import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.masking import MaskingSettings
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import UsageError
from tests.corpus.factory import SPECIAL_IDS, random_documents, write_corpus

BATCH_SIZE = 7


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("loader")
    return write_corpus(folder / "corpus", random_documents(2000, mean_length=12), sentences_per_shard=400)


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plan")


def make(corpus: Corpus, plan_folder: Path, **arguments: Any) -> Loader:
    instances = Instances(corpus, SPECIAL_IDS, plan_folder, PlanSettings(length=48), MaskingSettings(), seed=11)
    return Loader(instances, **{"batch_size": BATCH_SIZE, "workers": 0, **arguments})


def first_steps(loader: Loader, num_steps: int, start_step: int = 0) -> list[InstanceBatch]:
    batches = loader.batches(start_step)
    taken = list(islice(batches, num_steps))
    batches.close()  # type: ignore[attr-defined]
    return taken


def assert_equal(ours: list[InstanceBatch], theirs: list[InstanceBatch]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_equal(vars(one), vars(other))


@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_workers_changes_nothing(corpus: Corpus, plan_folder: Path, workers: int) -> None:
    alone = make(corpus, plan_folder)
    num_steps = alone.instances.plan_epoch(0).num_instances // BATCH_SIZE + 20  # across the end of the first epoch
    expected = first_steps(alone, num_steps)
    assert_equal(first_steps(make(corpus, plan_folder, workers=workers), num_steps), expected)


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_share_each_batch_without_padding_or_repetition(
    corpus: Corpus, plan_folder: Path, world_size: int
) -> None:
    alone = make(corpus, plan_folder)
    start = alone.instances.plan_epoch(0).num_instances // BATCH_SIZE - 3
    ranks = [
        first_steps(make(corpus, plan_folder, rank=rank, world_size=world_size, workers=rank), 20, start)
        for rank in range(world_size)
    ]
    together = [InstanceBatch.joined(list(parts)) for parts in zip(*ranks, strict=True)]
    assert_equal(together, first_steps(alone, 20, start))
    shares = [len(batch.lengths) for batch in ranks[0]]
    assert max(shares) - min(shares) == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_any_step_can_be_the_first(corpus: Corpus, plan_folder: Path, workers: int) -> None:
    expected = first_steps(make(corpus, plan_folder), 787)[777:]
    assert_equal(first_steps(make(corpus, plan_folder, workers=workers), 10, 777), expected)


def test_a_late_start_needs_only_the_counts_of_earlier_epochs(corpus: Corpus, tmp_path: Path) -> None:
    loader = make(corpus, tmp_path)
    expected = first_steps(loader, 5, 777)
    num_epochs = int(777 / loader.steps_per_epoch)
    assert num_epochs > 2
    for epoch in range(num_epochs):
        (tmp_path / f"epoch-{epoch:05d}.records").unlink(missing_ok=True)  # most have been removed already
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert_equal(first_steps(make(corpus, tmp_path), 5, 777), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept


def test_an_epoch_has_every_instance_once_and_epochs_differ(corpus: Corpus, plan_folder: Path) -> None:
    loader = make(corpus, plan_folder, batch_size=1)
    count = loader.instances.plan_epoch(0).num_instances
    whole = loader.instances.make_batch(0, np.arange(count))
    first = InstanceBatch.joined([loader.load(step) for step in range(count)])
    assert texts(first) != texts(whole)
    assert sorted(texts(first)) == sorted(texts(whole))
    assert texts(loader.load(count)) != texts(loader.load(0))
    assert loader.steps_per_epoch == count


def test_steps_per_epoch_need_a_planned_epoch_and_write_nothing(corpus: Corpus, tmp_path: Path) -> None:
    loader = make(corpus, tmp_path / "plan")
    with pytest.raises(KeyError):
        _ = loader.steps_per_epoch
    assert not (tmp_path / "plan").exists()
    count = loader.instances.plan_epoch(0).num_instances
    assert loader.steps_per_epoch == count / BATCH_SIZE


def texts(batch: InstanceBatch) -> list[list[int]]:
    return [part.tolist() for part in np.split(batch.piece_ids, np.cumsum(batch.lengths)[:-1])]


def test_a_batch_larger_than_an_epoch_takes_instances_from_several(tmp_path: Path) -> None:
    tiny = write_corpus(tmp_path / "corpus", [[5, 5], [5, 5]])
    loader = make(tiny, tmp_path / "plan", batch_size=50)
    batch = loader.load(3)
    assert len(batch.lengths) == 50
    assert loader.steps_per_epoch < 0.3


def loader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("bertmill-loader")]


def test_threads_end_with_the_iteration(corpus: Corpus, plan_folder: Path) -> None:
    batches = make(corpus, plan_folder, workers=3).batches()
    next(batches)
    assert loader_threads()
    batches.close()  # type: ignore[attr-defined]
    assert not loader_threads()


def test_an_error_in_a_worker_is_raised_by_the_iterator(
    corpus: Corpus, plan_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = make(corpus, plan_folder, workers=2)
    prepare = loader.load

    def fail_at_three(step: int) -> InstanceBatch:
        if step == 3:
            raise UsageError("three")
        return prepare(step)

    monkeypatch.setattr(loader, "load", fail_at_three)
    batches = loader.batches()
    assert len(list(islice(batches, 3))) == 3
    with pytest.raises(UsageError, match="three"):
        next(batches)
    assert not loader_threads()


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_immediately(corpus: Corpus, plan_folder: Path, kind: signal.Signals) -> None:
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from bertmill.corpus.shards import Corpus
from tests.corpus.test_loader import make
for number, _ in enumerate(make(Corpus(Path({str(corpus.folder)!r})), Path({str(plan_folder)!r}), workers=2).batches()):
    if number == 5:
        print("running", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    started = time.perf_counter()
    process.send_signal(kind)
    process.communicate(timeout=20)
    assert process.returncode == -kind
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rank": 2, "world_size": 2}, "rank must be from 0 to 1, not 2"),
        ({"world_size": 8}, r"batch_size 7 is smaller than the number of ranks \(8\)"),
        ({"workers": -1}, "workers must be 0 or more"),
    ],
)
def test_invalid_settings_are_rejected(corpus: Corpus, plan_folder: Path, wrong: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(corpus, plan_folder, **wrong)
