"""Training and held-out documents are disjoint, and no plan of one part uses the other."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertmill.corpus.instances import Instances
from bertmill.corpus.masking import MaskingSettings
from bertmill.corpus.objectives import OBJECTIVES
from bertmill.corpus.parts import DocumentPart, PartName
from bertmill.corpus.plan import Planner, PlanSettings
from bertmill.errors import DataError, UsageError
from tests.corpus.factory import SPECIAL_IDS, random_documents, write_corpus

PARTS: tuple[PartName, ...] = ("train", "heldout")


any_corpus = given(
    lengths=st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=12), min_size=6, max_size=12),
    shard_size=st.sampled_from([3, 10, 1000]),
    length=st.integers(5, 64),
    share=st.sampled_from([0.3, 0.5, 0.66]),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize("objective", OBJECTIVES)
@any_corpus
@settings(max_examples=20)
def test_training_and_held_out_instances_share_no_piece(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, share: float, seed: int
) -> None:
    assert_parts_share_no_piece(objective, lengths, shard_size, length, share, seed)


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@any_corpus
@settings(max_examples=60)
def test_training_and_held_out_instances_of_many_corpora_share_no_piece(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, share: float, seed: int
) -> None:
    assert_parts_share_no_piece(objective, lengths, shard_size, length, share, seed)


def assert_parts_share_no_piece(
    objective: str, lengths: list[list[int]], shard_size: int, length: int, share: float, seed: int
) -> None:
    """Every piece of the corpus is the number of its document, so instances show which documents they come from."""
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    documents = np.repeat(np.arange(len(lengths)), [sum(document) for document in lengths])
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        corpus = write_corpus(Path(folder, "corpus"), lengths, sentences_per_shard=shard_size, pieces=documents + 5)
        seen = {}
        for part in PARTS:
            plan = PlanSettings(objective, length, part=part, heldout_share=share)
            masking = MaskingSettings(mask=0.0, random=0.0, same=1.0)
            instances = Instances(corpus, SPECIAL_IDS, Path(folder, part), plan, masking, seed=seed)
            batch = instances.make_batch(0, np.arange(instances.plan_epoch(0).num_instances))
            seen[part] = set(batch.piece_ids.tolist()) - set(SPECIAL_IDS.special)
        for part in PARTS:
            whole = DocumentPart(corpus, part, share)
            its_own = whole.documents(np.arange(whole.num_documents))
            assert seen[part] == set((its_own + 5).tolist())  # every document, and none of the other part
    assert len(seen["heldout"]) == round(share * len(lengths))
    assert not seen["train"] & seen["heldout"]
    assert seen["train"] | seen["heldout"] == set(np.unique(documents + 5).tolist())


@given(count=st.integers(2, 500), share=st.floats(0.01, 0.99))
@settings(max_examples=60)
def test_the_parts_cover_all_documents_and_have_the_requested_sizes(count: int, share: float) -> None:
    num_heldout = round(share * count)
    if num_heldout in (0, count):
        return
    in_memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:
        corpus = write_corpus(Path(folder, "corpus"), [[3]] * count)
        train, heldout = (DocumentPart(corpus, part, share) for part in PARTS)
    assert heldout.num_documents == num_heldout
    assert np.array_equal(train.contains(np.arange(count)), ~heldout.contains(np.arange(count)))
    for part in (train, heldout):
        places = np.arange(part.num_documents)
        assert np.array_equal(part.places(part.documents(places)), places)
        assert part.contains(part.documents(places)).all()


def test_full_sentences_of_a_part_lose_nothing_and_do_not_overlap(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(3000), sentences_per_shard=400)
    total = 0
    for part in PARTS:
        planner = Planner(corpus, tmp_path / part, PlanSettings("mlm", part=part, heldout_share=0.2), 3)
        records = planner.open_records(0)[:]
        total += int(records["length"].sum())
        assert planner.plan(0).counts["pieces"] == int(records["length"].sum())
        ends = records["start"] + records["length"]
        assert (ends[:-1] <= records["start"][1:]).all()
    assert total == corpus.num_pieces


def test_pieces_of_the_other_part_are_not_counted_as_lost(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[10] * 20] * 40, sentences_per_shard=90)
    for part, objective in itertools.product(PARTS, ("mlm+nsp", "mlm+sop")):
        plan = PlanSettings(objective, part=part, heldout_share=0.25)
        assert Planner(corpus, tmp_path / part / objective, plan, 3).plan(0).counts["pieces_cut"] == 0


def test_held_out_documents_are_spread_over_the_corpus_and_do_not_depend_on_the_seed(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[3]] * 10_000)
    documents = DocumentPart(corpus, "heldout", 0.1).documents(np.arange(1000))
    assert abs(np.bincount(documents // 1000) - 100).max() < 45
    smaller = DocumentPart(corpus, "heldout", 0.01).documents(np.arange(100))
    assert np.array_equal(smaller, documents[:100])  # a larger fraction holds out a superset


@pytest.mark.parametrize(("count", "share"), [(1, 0.5), (10, 0.01), (10, 0.99)])
def test_a_part_without_documents_is_rejected(count: int, share: float, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[5, 5]] * count)
    plan = PlanSettings("mlm", part="train", heldout_share=share)
    with pytest.raises(DataError, match=rf"{share} of {count} documents.*at least one"):
        Planner(corpus, tmp_path / "plan", plan, 0)


def test_next_sentence_prediction_rejects_a_part_of_one_document(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", [[5, 5]] * 10)
    plan = PlanSettings("mlm+nsp", part="heldout", heldout_share=0.1)
    with pytest.raises(DataError, match=r"held-out part has only one document.*different fraction"):
        Planner(corpus, tmp_path / "plan", plan, 0)


def test_plans_of_the_two_parts_are_not_mixed_up(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", random_documents(300))
    Planner(corpus, tmp_path / "plan", PlanSettings(part="train", heldout_share=0.4), 0).plan(0)
    for changed in (PlanSettings(part="heldout", heldout_share=0.4), PlanSettings(heldout_share=0.3), PlanSettings()):
        with pytest.raises(UsageError, match="planned with different settings"):
            Planner(corpus, tmp_path / "plan", changed, 0).plan(0)


@pytest.mark.parametrize("wrong", [{"heldout_share": 1.0}, {"heldout_share": -0.1}, {"part": "heldout"}])
def test_invalid_fractions_are_rejected(wrong: dict[str, float | str]) -> None:
    with pytest.raises(UsageError, match="share"):
        PlanSettings(**wrong)  # type: ignore[arg-type]
