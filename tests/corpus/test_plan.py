"""The plan of an epoch is a function of seed and epoch, and its files are safe."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertmill.corpus.objectives.pairs import NextSentencePrediction
from bertmill.corpus.plan import Planner, PlanSettings, _checksum
from bertmill.errors import UsageError
from tests.corpus.factory import random_documents, write_corpus


def test_seed_and_epoch_determine_the_plan(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(500))

    def content(folder: str, seed: int, epoch: int) -> bytes:
        return Planner(corpus, tmp_path / folder, PlanSettings(), seed).open_records(epoch)[:].tobytes()

    assert content("one", 1, 0) == content("again", 1, 0)
    assert content("one", 1, 0) != content("one", 1, 1)
    assert content("one", 1, 0) != content("other", 2, 0)


@pytest.fixture
def planner(tmp_path: Path) -> Planner:
    corpus = write_corpus(tmp_path / "corpus", random_documents(500), sentences_per_shard=200)
    return Planner(corpus, tmp_path / "plan", PlanSettings(), 1)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100] ^= 4
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, empty, Path.unlink])
@pytest.mark.parametrize("kind", ["records", "json"])
def test_a_damaged_plan_is_made_again(planner: Planner, kind: str, damage: Callable[[Path], None]) -> None:
    records, facts = planner.open_records(2)[:].tobytes(), planner.plan(2)
    path = planner.folder / f"epoch-00002.{kind}"
    damage(path)
    assert planner.open_records(2)[:].tobytes() == records
    assert planner.plan(2) == facts


def test_an_intact_plan_is_only_opened(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planner.open_records(0)[:].tobytes()
    monkeypatch.setattr(NextSentencePrediction, "plan_shard", None)
    again = Planner(planner.corpus, planner.folder, planner.settings, planner.seed)
    assert again.open_records(0)[:].tobytes() == before


def test_the_number_of_instances_is_known_without_records(planner: Planner) -> None:
    count = planner.plan(0).num_instances
    (planner.folder / "epoch-00000.records").unlink()
    assert planner.plan(0).num_instances == count
    assert not (planner.folder / "epoch-00000.records").exists()


def test_a_plan_with_the_counts_of_an_earlier_version_is_read(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, path = planner.plan(0), planner.folder / "epoch-00000.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content["counts"] = {"instances": facts.num_instances, **content["counts"]}
    path.write_text(json.dumps({**content, "checksum": _checksum(content)}))
    monkeypatch.setattr(NextSentencePrediction, "plan_shard", None)
    again = planner.plan(0)
    assert again.num_instances == facts.num_instances
    assert again.counts.items() >= facts.counts.items()


def test_records_of_past_epochs_are_removed_and_planned_again_on_request(planner: Planner) -> None:
    before = [planner.open_records(epoch)[:].tobytes() for epoch in range(5)]
    facts = [planner.plan(epoch) for epoch in range(5)]
    assert sorted(path.name for path in planner.folder.glob("*.records")) == [
        "epoch-00003.records",
        "epoch-00004.records",
    ]
    assert [planner.open_records(epoch)[:].tobytes() for epoch in range(5)] == before
    assert [planner.plan(epoch) for epoch in range(5)] == facts


def test_a_plan_with_different_settings_is_rejected(planner: Planner, tmp_path: Path) -> None:
    planner.plan(0)
    other = write_corpus(tmp_path / "other", random_documents(400, seed=1))
    with pytest.raises(UsageError, match=r"planned with different settings: corpus .*use the same settings"):
        Planner(other, planner.folder, planner.settings, planner.seed).open_records(0)
    with pytest.raises(UsageError, match="length 128, not 64"):
        Planner(planner.corpus, planner.folder, PlanSettings(length=64), planner.seed).open_records(0)
    with pytest.raises(UsageError, match="seed 1, not 2"):
        Planner(planner.corpus, planner.folder, planner.settings, 2).plan(0)
    assert json.loads((planner.folder / "epoch-00000.json").read_text())["origin"]["seed"] == 1


@pytest.mark.slow  # it measures time
def test_a_million_sentences_are_planned_in_less_than_twenty_seconds(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(1_000_000), sentences_per_shard=250_000)
    started = time.perf_counter()
    facts = Planner(corpus, tmp_path / "plan", PlanSettings(), 0).plan(0)
    assert time.perf_counter() - started < 20
    assert facts.num_instances > 200_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "nsp"}, "no objective called 'nsp'"),
        ({"length": 4}, r"length 4 is too short for mlm\+nsp; use at least 5"),
        ({"objective": "clm", "length": 2}, "use at least 3"),
        ({"short_seq_prob": 1.5}, "from 0 to 1, not 1.5"),
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PlanSettings(**wrong)
