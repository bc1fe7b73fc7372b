"""The plan of an epoch: every sentence that fits is covered once, lengths and labels are right, files are safe."""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertmill.corpus.objectives.pairs import LARGEST_SURPLUS, NextSentencePrediction
from bertmill.corpus.plan import PlanFacts, Planner
from bertmill.corpus.plan_settings import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, UsageError
from tests.corpus.factory import random_documents, write_corpus

Records = np.ndarray[Any, Any]

documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=8)
shard_sizes = st.sampled_from([3, 10, 1000])


def planned(
    lengths: list[list[int]], sentences_per_shard: int, plan_settings: PlanSettings, seed: int
) -> tuple[Corpus, Records, PlanFacts]:
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where making files durable takes no time
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        corpus = write_corpus(Path(folder, "corpus"), lengths, sentences_per_shard=sentences_per_shard)
        planner = Planner(corpus, Path(folder, "plan"), plan_settings, seed)
        return corpus, np.array(planner.load_records(0)), planner.plan(0)


def owners(lengths: list[list[int]]) -> tuple[Records, Records]:
    """The sentence and the document of every piece."""
    flat = [length for document in lengths for length in document]
    sentence = np.repeat(np.arange(len(flat)), flat)
    return sentence, np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])


def times_covered(corpus: Corpus, slices: list[tuple[int, int]]) -> Records:
    times = np.zeros(corpus.num_pieces, np.int64)
    for start, length in slices:
        times[start : start + length] += 1
    return times


def own_slices(records: Records, objective: str) -> list[tuple[int, int]]:
    """The texts of pairs that are the epoch's own: not what was borrowed from another document."""
    slices = [(int(r["a_start"]), int(r["a_length"])) for r in records]
    return slices + [
        (int(r["b_start"]), int(r["b_length"])) for r in records if objective == "mlm+sop" or r["label"] == 0
    ]


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
@given(
    lengths=documents,
    shard_size=shard_sizes,
    length=st.integers(5, 64),
    short=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_pairs_cover_every_sentence_that_fits_and_count_what_does_not(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, short: float, seed: int
) -> None:
    assume(max(map(max, lengths)) > 1)
    plan_settings = PlanSettings(objective, length, short)
    corpus, records, facts = planned(lengths, shard_size, plan_settings, seed)
    sentence, document = owners(lengths)
    assert (records["a_length"] >= 1).all()
    assert (records["b_length"] >= 1).all()
    assert (records["a_length"] + records["b_length"] <= plan_settings.room).all()
    times = times_covered(corpus, own_slices(records, objective))
    assert times.max() == 1
    sizes = np.bincount(sentence)
    missing = sizes - np.bincount(sentence, weights=times).astype(int)
    fits = sizes <= plan_settings.room // 2
    if objective == "mlm+sop":
        fits &= sizes > 1
    assert not missing[fits].any()
    assert missing.sum() == facts.counts.pieces_cut
    assert (missing > 0).sum() == facts.counts.sentences_cut
    assert facts.counts.pieces == (records["a_length"] + records["b_length"]).sum()
    for record in records:
        a, b = int(record["a_start"]), int(record["b_start"])
        a_documents = set(document[a : a + int(record["a_length"])])
        b_documents = set(document[b : b + int(record["b_length"])])
        assert len(a_documents) == len(b_documents) == 1
        is_borrowed = objective == "mlm+nsp" and record["label"] == 1
        assert (a_documents != b_documents) == is_borrowed
        if not is_borrowed:
            assert (b > a) == (record["label"] == 0)
            if not missing.any():
                assert a + record["a_length"] == b or b + record["b_length"] == a


@given(lengths=documents, shard_size=shard_sizes, length=st.integers(3, 64), seed=st.integers(0, 99))
@settings(max_examples=150)
def test_full_sentences_follow_each_other_and_lose_nothing(
    lengths: list[list[int]], shard_size: int, length: int, seed: int
) -> None:
    plan_settings = PlanSettings("mlm", length)
    corpus, records, facts = planned(lengths, shard_size, plan_settings, seed)
    sentence, document = owners(lengths)
    starts, sizes = records["start"].astype(int), records["length"].astype(int)
    stops = starts + sizes
    assert starts[0] == 0
    assert stops[-1] == corpus.num_pieces
    assert np.array_equal(starts[1:], stops[:-1])
    assert (sizes + records["num_breaks"] <= plan_settings.room).all()
    assert np.array_equal(records["num_breaks"], document[stops - 1] - document[starts])
    assert np.array_equal(records["first_document"], document[starts])
    inside = stops[:-1][sentence[stops[:-1] - 1] == sentence[stops[:-1]]]  # places where a sentence is cut
    assert (np.bincount(sentence)[sentence[inside]] > plan_settings.room).all()
    assert facts.counts.pieces_cut == 0


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_labels_are_balanced_in_every_shard(objective: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(4000), sentences_per_shard=500)
    planner = Planner(corpus, tmp_path / "plan", PlanSettings(objective), 5)
    facts, records = planner.plan(0), planner.load_records(0)
    assert len(facts.shard_ends) == 8
    for labels in np.split(records["label"].astype(int), facts.shard_ends[:-1]):
        assert abs(2 * labels.sum() - len(labels)) <= LARGEST_SURPLUS + 1
    assert planner.objective.plan_remarks(facts, corpus.num_pieces) == []
    assert not np.array_equal(records["label"][:-1], 1 - records["label"][1:])  # a coin, not a rhythm


def test_long_sentences_still_give_balanced_labels(tmp_path: Path) -> None:
    """Nearly every chunk has one sentence, and yet half of the pairs are positive: two sentences that were cut."""
    corpus = write_corpus(tmp_path / "corpus", [[40] * 30 for _ in range(40)])
    facts = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp", 64), 5).plan(0)
    assert facts.counts.one_sentence > 0.4 * facts.counts.instances
    assert abs(facts.share_of_label_1 - 0.5) < 0.01
    assert facts.counts.pieces_cut > 0


def test_documents_of_one_sentence_make_balance_impossible_and_the_plan_says_so(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[20]] * 50)
    planner = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp", 64), 5)
    facts = planner.plan(0)
    assert facts.share_of_label_1 == 1
    (remark,) = planner.objective.plan_remarks(facts, corpus.num_pieces)
    assert "100.0% of the pairs are negatives" in remark


def test_a_corpus_of_one_document_has_no_negatives(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[5] * 100])
    with pytest.raises(DataError, match=r"one document only.*use the objective mlm or mlm\+sop"):
        Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp"), 0)
    assert Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop"), 0).plan(0).counts.instances


def test_sentences_of_one_piece_alone_make_no_pair(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[1]] * 3)
    with pytest.raises(DataError, match="not one sentence"):
        Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop"), 0).plan(0)
    assert not list((tmp_path / "plan").iterdir())


def test_short_targets_come_as_often_as_asked(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[1] * 100_000])
    sizes = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop", 103, 0.1), 0).load_records(0)
    total = (sizes["a_length"] + sizes["b_length"]).astype(int)
    assert abs((total < 100).mean() - 0.1) < 0.03
    assert total.min() < 20


def test_seed_and_epoch_decide_the_plan(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(500))

    def content(folder: str, seed: int, epoch: int) -> bytes:
        return Planner(corpus, tmp_path / folder, PlanSettings(), seed).load_records(epoch).tobytes()

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
    records, facts = planner.load_records(2).tobytes(), planner.plan(2)
    path = planner.folder / f"epoch-00002.{kind}"
    damage(path)
    assert planner.load_records(2).tobytes() == records
    assert planner.plan(2) == facts


def test_an_intact_plan_is_only_mapped(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planner.load_records(0).tobytes()
    monkeypatch.setattr(NextSentencePrediction, "plan_shard", None)
    again = Planner(planner.corpus, planner.folder, planner.settings, planner.seed)
    assert isinstance(again.load_records(0), np.memmap)
    assert again.load_records(0).tobytes() == before


def test_the_number_of_instances_needs_no_records(planner: Planner) -> None:
    count = planner.plan(0).counts.instances
    (planner.folder / "epoch-00000.records").unlink()
    assert planner.plan(0).counts.instances == count
    assert not (planner.folder / "epoch-00000.records").exists()


def test_records_of_epochs_that_are_over_are_removed_and_made_again_for_one_who_goes_back(planner: Planner) -> None:
    before = [planner.load_records(epoch).tobytes() for epoch in range(5)]
    facts = [planner.plan(epoch) for epoch in range(5)]
    assert sorted(path.name for path in planner.folder.glob("*.records")) == [
        "epoch-00003.records",
        "epoch-00004.records",
    ]
    assert [planner.load_records(epoch).tobytes() for epoch in range(5)] == before
    assert [planner.plan(epoch) for epoch in range(5)] == facts


def test_a_plan_for_something_else_is_refused(planner: Planner, tmp_path: Path) -> None:
    planner.plan(0)
    other = write_corpus(tmp_path / "other", random_documents(400, seed=1))
    with pytest.raises(UsageError, match=r"planned for something else: corpus .*take what it was planned for"):
        Planner(other, planner.folder, planner.settings, planner.seed).load_records(0)
    with pytest.raises(UsageError, match="length 128, not 64"):
        Planner(planner.corpus, planner.folder, PlanSettings(length=64), planner.seed).load_records(0)
    with pytest.raises(UsageError, match="seed 1, not 2"):
        Planner(planner.corpus, planner.folder, planner.settings, 2).plan(0)
    assert json.loads((planner.folder / "epoch-00000.json").read_text())["origin"]["seed"] == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "nsp"}, "no objective called 'nsp'"),
        ({"length": 4}, r"length 4 is too short for mlm\+nsp; from 5 on"),
        ({"objective": "clm", "length": 2}, "from 3 on"),
        ({"short_seq_prob": 1.5}, "from 0 to 1, not 1.5"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PlanSettings(**wrong)


def test_a_million_sentences_are_planned_in_less_than_twenty_seconds(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(1_000_000), sentences_per_shard=250_000)
    started = time.perf_counter()
    facts = Planner(corpus, tmp_path / "plan", PlanSettings(), 0).plan(0)
    assert time.perf_counter() - started < 20
    assert facts.counts.instances > 200_000
