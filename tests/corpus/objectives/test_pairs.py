"""Pair plans contain each sentence that fits exactly once, and balance labels where possible."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bertmill.corpus.objectives.pairs import LARGEST_SURPLUS
from bertmill.corpus.plan import Planner, PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError
from tests.corpus.factory import random_documents, write_corpus
from tests.corpus.objectives.plans import Records, documents, owners, planned, shard_sizes


def times_covered(corpus: Corpus, slices: list[tuple[int, int]]) -> Records:
    times = np.zeros(corpus.num_pieces, np.int64)
    for start, length in slices:
        times[start : start + length] += 1
    return times


def own_slices(records: Records, objective: str) -> list[tuple[int, int]]:
    """Return the texts of pairs, except those borrowed from another document."""
    slices = [(int(r["a_start"]), int(r["a_length"])) for r in records]
    return slices + [
        (int(r["b_start"]), int(r["b_length"])) for r in records if objective == "mlm+sop" or r["label"] == 0
    ]


any_plan = given(
    lengths=documents,
    shard_size=shard_sizes,
    length=st.integers(5, 64),
    short=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
@any_plan
@settings(max_examples=50)
def test_pairs_cover_every_sentence_that_fits_and_count_what_does_not(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, short: float, seed: int
) -> None:
    assert_pairs_cover_what_fits(objective, lengths, shard_size, length, short, seed)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
@any_plan
@settings(max_examples=150)
def test_pairs_of_many_plans_cover_every_sentence_that_fits_and_count_what_does_not(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, short: float, seed: int
) -> None:
    assert_pairs_cover_what_fits(objective, lengths, shard_size, length, short, seed)


def assert_pairs_cover_what_fits(
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
    assert missing.sum() == facts.counts["pieces_cut"]
    assert (missing > 0).sum() == facts.counts["sentences_cut"]
    assert facts.counts["pieces"] == (records["a_length"] + records["b_length"]).sum()
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


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_labels_are_balanced_in_every_shard(objective: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(4000), sentences_per_shard=500)
    planner = Planner(corpus, tmp_path / "plan", PlanSettings(objective), 5)
    facts, records = planner.plan(0), planner.open_records(0)[:]
    assert len(facts.shard_ends) == 8
    for labels in np.split(records["label"].astype(int), facts.shard_ends[:-1]):
        assert abs(2 * labels.sum() - len(labels)) <= LARGEST_SURPLUS + 1
    assert planner.objective.plan_remarks(facts, corpus.num_pieces) == []
    assert not np.array_equal(records["label"][:-1], 1 - records["label"][1:])  # random, not alternating


def test_long_sentences_still_give_balanced_labels(tmp_path: Path) -> None:
    """Nearly every chunk has one sentence, but half of the pairs are positives of two sentences that were cut."""
    corpus = write_corpus(tmp_path / "corpus", [[40] * 30 for _ in range(40)])
    facts = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp", 64), 5).plan(0)
    assert facts.counts["one_sentence"] > 0.4 * facts.num_instances
    assert abs(facts.counts["labels_1"] / facts.num_instances - 0.5) < 0.01
    assert facts.counts["pieces_cut"] > 0


def test_documents_of_one_sentence_make_balance_impossible_and_a_note_says_so(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[20]] * 50)
    planner = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp", 64), 5)
    facts = planner.plan(0)
    assert facts.counts["labels_1"] / facts.num_instances == 1
    (remark,) = planner.objective.plan_remarks(facts, corpus.num_pieces)
    assert "100.0% of the pairs are negatives" in remark


def test_next_sentence_prediction_rejects_a_corpus_of_one_document(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[5] * 100])
    with pytest.raises(DataError, match=r"only one document.*use the objective mlm or mlm\+sop"):
        Planner(corpus, tmp_path / "plan", PlanSettings("mlm+nsp"), 0)
    assert Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop"), 0).plan(0).num_instances


def test_single_sentences_of_one_piece_form_no_pair(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[1]] * 3)
    with pytest.raises(DataError, match="has no sentences that can form an instance"):
        Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop"), 0).plan(0)
    assert not list((tmp_path / "plan").iterdir())


def test_short_targets_are_as_frequent_as_requested(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[1] * 100_000])
    sizes = Planner(corpus, tmp_path / "plan", PlanSettings("mlm+sop", 103, 0.1), 0).open_records(0)[:]
    total = (sizes["a_length"] + sizes["b_length"]).astype(int)
    assert abs((total < 100).mean() - 0.1) < 0.03
    assert total.min() < 20
