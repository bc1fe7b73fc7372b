"""Pre-training defaults, and the reasons that a run reports for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bertmill.config.commands import PretrainSettings
from bertmill.corpus.shards import Corpus
from bertmill.model.config import BertConfig
from bertmill.training import recipe
from bertmill.training.distributed import Ranks
from bertmill.training.recipe import LEARNING_RATES, ResolvedPretraining, resolve
from tests.corpus.factory import write_corpus

NUM_PIECES = 64_000


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "corpus", [[32] * (NUM_PIECES // 32)])


def resolved_from(corpus: Corpus, **given: Any) -> ResolvedPretraining:
    settings = PretrainSettings(corpus=corpus.folder, out=corpus.folder.with_name("run"), **given)
    return resolve(settings, corpus, Ranks(torch.device("cpu")))


@pytest.mark.parametrize(
    ("size", "num_layers", "nearest"),
    [("base", 1, "small"), ("medium", 8, "medium"), ("tiny", 3, "tiny")],
)
def test_the_learning_rate_is_that_of_the_nearest_size(
    size: str, num_layers: int, nearest: str, pieces: Corpus, tmp_path: Path
) -> None:
    """One layer of base has as many weights as two of small, and four of mini have fewer than half of that."""
    BertConfig.of_size(size, num_hidden_layers=num_layers).save_pretrained(tmp_path / "model")
    assert resolved_from(pieces, init=str(tmp_path / "model")).learning_rate == LEARNING_RATES[nearest]


@pytest.mark.parametrize(
    ("given", "dropout", "mask_rate"),
    [
        ({}, 0.0, 0.3),
        ({"epochs": 3.9}, 0.0, 0.3),
        ({"epochs": 4}, 0.1, 0.15),
        ({"steps": 3 * NUM_PIECES // (32 * 128)}, 0.0, 0.3),
        ({"steps": 5 * NUM_PIECES // (32 * 128)}, 0.1, 0.15),
        ({"steps": 5 * NUM_PIECES // (32 * 128), "batch_size": 16}, 0.0, 0.3),
        ({"epochs": 4, "dropout": 0.0}, 0.0, 0.15),
        ({"epochs": 1, "dropout": 0.3, "mask_rate": 0.2}, 0.3, 0.2),
    ],
)
def test_a_short_run_has_no_dropout_and_selects_more_pieces(
    given: dict[str, Any], dropout: float, mask_rate: float, pieces: Corpus
) -> None:
    resolved = resolved_from(pieces, **given)
    assert (resolved.dropout, resolved.mask_rate) == (dropout, mask_rate)
    assert resolved.decisions().items() >= {"dropout": dropout, "mask_rate": mask_rate}.items()


def test_with_a_budget_the_epochs_are_estimated_from_the_speed_of_the_machine(
    pieces: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = BertConfig.of_size("mini", vocab_size=pieces.vocabulary_size).weights_per_piece(0.3)
    monkeypatch.setattr(recipe, "matrix_product_rate", lambda *_: NUM_PIECES * 6 * weights / 100)  # 100 s per epoch
    short = resolved_from(pieces, budget=390)
    assert short.dropout == 0.0
    assert short.reasons[-1].endswith("fewer than 4 epochs (at most 3.9)")
    assert resolved_from(pieces, budget=410).dropout == 0.1


def test_weights_from_the_corpus_have_a_higher_learning_rate(pieces: Corpus) -> None:
    rates = [resolved_from(pieces, initial_weights=kind).learning_rate for kind in ("corpus", "random")]
    assert rates == [2 * LEARNING_RATES["mini"], LEARNING_RATES["mini"]]


def test_only_automatic_decisions_have_a_reason(pieces: Corpus) -> None:
    assert resolved_from(pieces).reasons == (
        "size mini (default): 4 layers, hidden size 256",
        "learning rate 0.002: default for mini with weights from the corpus",
        "training for 1 epoch (default)",
        "dropout 0, mask rate 0.3: short run, fewer than 4 epochs (about 1)",
    )
    given = {"size": "tiny", "learning_rate": 1e-4, "steps": 10, "dropout": 0.1, "mask_rate": 0.15}
    assert resolved_from(pieces, **given).reasons == ()


def test_the_reason_for_a_learning_rate_names_where_it_comes_from(pieces: Corpus, tmp_path: Path) -> None:
    given = {"steps": 10, "dropout": 0.1, "mask_rate": 0.15}
    random = resolved_from(pieces, size="small", initial_weights="random", **given)
    assert random.reasons == ("learning rate 0.00025: default for small",)
    BertConfig.of_size("medium").save_pretrained(tmp_path / "model")
    continued = resolved_from(pieces, init=str(tmp_path / "model"), **given)
    assert continued.reasons == ("learning rate 0.000125: default for medium (nearest size)",)
    assert not continued.starts_from_corpus


def test_a_long_run_has_its_reason(pieces: Corpus) -> None:
    given = {"size": "tiny", "learning_rate": 1e-4, "epochs": 6}
    assert resolved_from(pieces, **given).reasons == ("dropout 0.1, mask rate 0.15: 4 epochs or more (about 6)",)


def test_the_mask_rate_has_no_reason_if_nothing_is_masked(pieces: Corpus) -> None:
    given = {"size": "tiny", "learning_rate": 1e-4, "epochs": 2, "objective": "clm"}
    resolved = resolved_from(pieces, **given)
    assert resolved.reasons == ("dropout 0: short run, fewer than 4 epochs (about 2)",)
    assert resolved.decisions()["mask_rate"] == 0.3
    assert resolved_from(pieces, **given, dropout=0.1).reasons == ()
