"""Finished instances: fractions as in the paper on real text, every piece on synthetic text."""

import lzma
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.masking import NOT_SELECTED, MaskingSettings, VocabularyIds
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import UsageError
from bertmill.model.bert import BertForMaskedLM, BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from tests.corpus.factory import SPECIAL_IDS, random_documents, write_corpus

NUM_INSTANCES = 15_000
MANY_INSTANCES = 50_000


@pytest.fixture(scope="module")
def wikipedia(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, VocabularyIds]:
    folder = tmp_path_factory.mktemp("wikipedia")
    with lzma.open(data / "text/enwiki.txt.xz") as file:
        (folder / "text.txt").write_bytes(file.read(8_000_000).rpartition(b"\n")[0])
    tokenizer = BertTokenizer.from_pretrained(data / "vocab/bert-base-uncased-vocab.txt")
    build_corpus([str(folder / "text.txt")], tokenizer, folder / "corpus", workers=1)
    return Corpus(folder / "corpus"), VocabularyIds.of(tokenizer)


def many_batches(instances: Instances, num_instances: int) -> Iterator[InstanceBatch]:
    """Yield whole epochs, until there are enough instances."""
    seen = epoch = 0
    while seen < num_instances:
        for numbers in np.array_split(np.arange(instances.plan_epoch(epoch).num_instances), 20):
            yield instances.make_batch(epoch, numbers)
            seen += len(numbers)
        epoch += 1


@pytest.mark.parametrize(
    ("wanted_instances", "tolerance"),
    [(NUM_INSTANCES, 2.0), pytest.param(MANY_INSTANCES, 1.0, marks=pytest.mark.slow)],
)
def test_next_sentence_instances_of_real_text_have_the_fractions_of_the_paper(
    wanted_instances: int, tolerance: float, wikipedia: tuple[Corpus, VocabularyIds], tmp_path: Path
) -> None:
    corpus, vocabulary = wikipedia
    instances = Instances(corpus, vocabulary, tmp_path, PlanSettings(), MaskingSettings(), seed=1)
    total = selected = masked = same = changed = negatives = num_instances = 0
    for batch in many_batches(instances, wanted_instances):
        labels, ids = batch.labels, batch.piece_ids
        is_selected = labels != NOT_SELECTED
        assert batch.lengths.max() <= 128
        total += int((batch.lengths - 3).sum())
        selected += int(is_selected.sum())
        masked += int((ids[is_selected] == vocabulary.mask).sum())
        same += int((ids == labels).sum())
        changed += int(((ids != labels) & is_selected & (ids != vocabulary.mask)).sum())
        negatives += int(batch.instance_targets["next_sentence_label"].sum())
        num_instances += len(batch.lengths)
    assert num_instances >= wanted_instances
    assert abs(selected / total - 0.15) < 0.001 * tolerance
    assert abs(masked / selected - 0.8) < 0.005 * tolerance
    assert abs(same / selected - 0.1) < 0.005 * tolerance
    assert abs(changed / selected - 0.1) < 0.005 * tolerance
    assert abs(negatives / num_instances - 0.5) < 0.01 * tolerance


def test_no_negative_of_real_text_comes_from_its_own_document(
    wikipedia: tuple[Corpus, VocabularyIds], tmp_path: Path
) -> None:
    corpus, vocabulary = wikipedia
    instances = Instances(corpus, vocabulary, tmp_path, PlanSettings(), MaskingSettings(), seed=1)
    ends = np.concatenate(
        [
            base + shard.sentence_ends[shard.document_ends - 1]
            for base, shard in zip(corpus.piece_offsets, corpus.shards, strict=False)
        ]
    )
    num_instances = epoch = 0
    while num_instances < MANY_INSTANCES:
        records = instances.planner.open_records(epoch)[:]
        of_a, of_b = (np.searchsorted(ends, records[side], side="right") for side in ("a_start", "b_start"))
        assert np.array_equal(of_a != of_b, records["label"] == 1)
        num_instances += len(records)
        epoch += 1


def test_neither_lengths_nor_ends_reveal_the_label_of_real_text(
    wikipedia: tuple[Corpus, VocabularyIds], tmp_path: Path
) -> None:
    """Negatives must not be recognizable by where texts are cut: lengths and sentence ends are as in positives."""
    corpus, vocabulary = wikipedia
    instances = Instances(corpus, vocabulary, tmp_path, PlanSettings(), MaskingSettings(), seed=1)
    records = instances.planner.open_records(0)[:]
    bases = zip(corpus.piece_offsets, corpus.shards, strict=False)
    ends = np.concatenate([base + shard.sentence_ends for base, shard in bases])
    negative = records["label"] == 1
    for side in ("a", "b"):
        lengths = records[f"{side}_length"].astype(int)
        assert abs(lengths[negative].mean() / lengths[~negative].mean() - 1) < 0.1
        is_whole = np.isin(records[f"{side}_start"].astype(int) + lengths, ends)
        assert is_whole[negative].mean() > 0.98
        assert is_whole[~negative].mean() > 0.98


def test_half_of_the_sentence_order_instances_of_real_text_are_swapped(
    wikipedia: tuple[Corpus, VocabularyIds], tmp_path: Path
) -> None:
    corpus, vocabulary = wikipedia
    instances = Instances(corpus, vocabulary, tmp_path, PlanSettings("mlm+sop"), MaskingSettings(), seed=1)
    num_instances = swapped = epoch = 0
    while num_instances < MANY_INSTANCES:
        records = instances.planner.open_records(epoch)[:]
        assert np.array_equal(records["a_start"] > records["b_start"], records["label"] == 1)
        swapped += int(records["label"].sum())
        num_instances += len(records)
        epoch += 1
    assert abs(swapped / num_instances - 0.5) < 0.01


def test_whole_words_of_real_text_are_selected_together(
    wikipedia: tuple[Corpus, VocabularyIds], tmp_path: Path
) -> None:
    corpus, vocabulary = wikipedia
    masking = MaskingSettings(whole_words=True, mask=1, random=0, same=0)
    instances = Instances(corpus, vocabulary, tmp_path, PlanSettings("mlm"), masking, seed=1)
    numbers = np.arange(10_000)
    batch = instances.make_batch(0, numbers)
    is_selected = batch.labels != NOT_SELECTED
    original = np.where(is_selected, batch.labels, batch.piece_ids)
    is_ordinary = ~np.isin(original, vocabulary.special) | (original == 100)  # [UNK] is an ordinary piece here
    assert abs(is_selected.sum() / is_ordinary.sum() - 0.15) < 0.002
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    begins_word = np.array([not piece.startswith("##") for piece in tokenizer.convert_ids_to_tokens(original.tolist())])
    continuations = np.flatnonzero(~begins_word & np.roll(is_ordinary, 1))
    assert np.array_equal(is_selected[continuations], is_selected[continuations - 1])


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", random_documents(600, mean_length=12), sentences_per_shard=100)


def make(corpus: Corpus, folder: Path, objective: str, **masking: Any) -> Instances:
    plan_settings = PlanSettings(objective, 64)
    return Instances(corpus, SPECIAL_IDS, folder, plan_settings, MaskingSettings(**masking), seed=3)


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_a_pair_is_laid_out_with_special_pieces_and_segments(corpus: Corpus, tmp_path: Path, objective: str) -> None:
    instances = make(corpus, tmp_path / "plan", objective)
    numbers = np.arange(instances.plan_epoch(0).num_instances)[::-1]
    batch = instances.make_batch(0, numbers)
    start = 0
    for place, record in enumerate(instances.planner.open_records(0).take(numbers)):
        a, b = int(record["a_start"]), int(record["b_start"])
        text_a = corpus.pieces(a, a + int(record["a_length"]))
        text_b = corpus.pieces(b, b + int(record["b_length"]))
        stop = start + len(text_a) + len(text_b) + 3
        ids = np.where(batch.labels != NOT_SELECTED, batch.labels, batch.piece_ids)[start:stop]
        assert ids.tolist() == [SPECIAL_IDS.cls, *text_a, SPECIAL_IDS.sep, *text_b, SPECIAL_IDS.sep]
        assert batch.segments[start:stop].tolist() == [0] * (len(text_a) + 2) + [1] * (len(text_b) + 1)
        assert batch.lengths[place] == stop - start
        assert batch.instance_targets["next_sentence_label"][place] == record["label"]
        start = stop
    assert start == len(batch.piece_ids)


@pytest.mark.parametrize("objective", ["mlm", "clm"])
def test_full_sentences_have_a_separator_between_documents(corpus: Corpus, tmp_path: Path, objective: str) -> None:
    """Concatenated instances match the corpus, with one [SEP] at the end of every document and every instance."""
    instances = make(corpus, tmp_path / "plan", objective, mask=0, random=0, same=1)
    batch = instances.make_batch(0, np.arange(instances.plan_epoch(0).num_instances))
    assert batch.lengths.max() <= 64
    is_ordinary = batch.piece_ids >= 5
    assert np.array_equal(batch.piece_ids[is_ordinary], corpus.pieces(0, corpus.num_pieces))
    places = (np.cumsum(is_ordinary))[batch.piece_ids == SPECIAL_IDS.sep]  # pieces of the corpus before each [SEP]
    document_ends = np.concatenate(
        [
            base + shard.sentence_ends[shard.document_ends - 1]
            for base, shard in zip(corpus.piece_offsets, corpus.shards, strict=False)
        ]
    )
    instance_ends = np.cumsum(is_ordinary)[np.cumsum(batch.lengths) - 1]
    assert np.array_equal(np.unique(places), np.union1d(document_ends, instance_ends))
    assert len(places) == len(np.unique(places))
    assert batch.instance_targets == {}
    assert not batch.segments.any()


def test_left_to_right_labels_are_the_next_pieces(corpus: Corpus, tmp_path: Path) -> None:
    instances = make(corpus, tmp_path / "plan", "clm")
    batch = instances.make_batch(0, np.arange(20))
    assert batch.num_selected == (batch.piece_ids >= 5).sum()
    for place, label in enumerate(batch.labels):
        if label != NOT_SELECTED:
            assert label == batch.piece_ids[place + 1]
    ends = np.cumsum(batch.lengths) - 1
    assert (batch.labels[ends] == NOT_SELECTED).all()


def test_masks_change_every_epoch_unless_they_are_fixed(corpus: Corpus, tmp_path: Path) -> None:
    changing, fixed = make(corpus, tmp_path / "changing", "mlm"), make(corpus, tmp_path / "fixed", "mlm", fixed=True)
    numbers = np.arange(30)
    assert changing.make_batch(0, numbers).piece_ids.tolist() != changing.make_batch(1, numbers).piece_ids.tolist()
    assert fixed.make_batch(0, numbers).piece_ids.tolist() == fixed.make_batch(7, numbers).piece_ids.tolist()
    loader = Loader(fixed, batch_size=fixed.plan_epoch(0).num_instances, workers=0)
    first, second = loader.load(0), loader.load(1)
    assert first.piece_ids.tolist() != second.piece_ids.tolist()  # a different order
    assert sorted(texts(first)) == sorted(texts(second))  # of the same instances


def texts(batch: InstanceBatch) -> list[list[int]]:
    return [part.tolist() for part in np.split(batch.piece_ids, np.cumsum(batch.lengths)[:-1])]


def test_concatenated_micro_batches_match_the_batch(corpus: Corpus, tmp_path: Path) -> None:
    batch = make(corpus, tmp_path / "plan", "mlm+nsp").make_batch(0, np.arange(40))
    parts = list(batch.micro_batches(max_pieces=300))
    assert len(parts) > 3
    assert all(len(part.piece_ids) <= 300 for part in parts)
    assert all(len(a.piece_ids) + int(b.lengths[0]) > 300 for a, b in pairwise(parts))
    together = InstanceBatch.joined(parts)
    np.testing.assert_equal(vars(together), vars(batch))
    assert [len(part.lengths) for part in batch.micro_batches(max_pieces=1)] == [1] * 40


def test_models_accept_a_batch(corpus: Corpus, tmp_path: Path) -> None:
    config = BertConfig.of_size("tiny", vocab_size=SPECIAL_IDS.size, max_position_embeddings=64)
    torch.manual_seed(0)
    pairs = make(corpus, tmp_path / "pairs", "mlm+nsp").make_batch(0, np.arange(8))
    loss = BertForPreTraining(config)(pairs.packed(), **pairs.targets()).loss
    assert abs(float(loss.detach()) - np.log(SPECIAL_IDS.size) - np.log(2)) < 0.5
    rows = make(corpus, tmp_path / "rows", "mlm").make_batch(0, np.arange(8))
    loss = BertForMaskedLM(config)(rows.packed(), **rows.targets()).loss
    assert abs(float(loss.detach()) - np.log(SPECIAL_IDS.size)) < 0.5


def test_a_vocabulary_of_another_size_than_the_corpus_is_rejected(corpus: Corpus, tmp_path: Path) -> None:
    vocabulary = VocabularyIds(999, 2, 3, 4, (0, 1, 2, 3, 4))
    with pytest.raises(UsageError, match="a vocabulary of 1,000 pieces, not 999"):
        Instances(corpus, vocabulary, tmp_path / "plan", PlanSettings(), MaskingSettings(), seed=0)
