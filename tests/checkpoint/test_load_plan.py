"""The tensors of a model are compared with those in a folder; an unexpected difference is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_folders import SMALL, rewrite

from bertmill import BertConfig, BertForPreTraining, BertForSequenceClassification, BertModel
from bertmill.checkpoint.huggingface import open_folder
from bertmill.checkpoint.load_plan import load_tensors, plan_loading
from bertmill.errors import IntegrityError


def test_the_report_lists_loaded_new_and_ignored_tensors(folder: Path) -> None:
    report = BertForSequenceClassification.from_pretrained(folder, num_labels=3).load_report
    assert len(report.new) == 2
    assert "new, as expected (random until trained): classifier" in str(report)
    assert "ignored, as expected (unused by this model): cls.predictions, cls.seq_relationship" in str(report)
    whole = BertForPreTraining.from_pretrained(folder).load_report
    assert (whole.new, whole.ignored) == ([], [])


def test_all_differences_are_listed_with_their_shapes(folder: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        del tensors["bert.encoder.layer.0.output.dense.bias"]
        tensors["bert.encoder.layer.1.output.dense.bias"] = torch.zeros(3)
        tensors["something.else"] = torch.zeros(2, 2)
        tensors["bert.embeddings.LayerNorm.bias"] = torch.zeros(16, dtype=torch.int64)
        return tensors

    rewrite(folder, spoil)
    with pytest.raises(IntegrityError) as caught:
        BertForPreTraining.from_pretrained(folder)
    for words in (
        "bert.encoder.layer.0.output.dense.bias [16] is missing",
        "bert.encoder.layer.1.output.dense.bias has shape [3] instead of [16]",
        "something.else [2, 2] is unexpected",
        "bert.embeddings.LayerNorm.bias has type I64 instead of one of F64",
    ):
        assert words in str(caught.value)


def test_a_plan_finds_every_tensor_without_reading_any(folder: Path) -> None:
    wanted = BertModel(BertConfig(**SMALL)).shapes()
    sources, report = plan_loading(open_folder(folder), wanted)
    assert sources.keys() == wanted.keys()
    assert sources["pooler.dense.bias"].name == "bert.pooler.dense.bias"
    assert (report.loaded, report.new) == (list(wanted), [])
    tensors, _ = load_tensors(open_folder(folder), wanted)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == wanted


def test_a_vocabulary_larger_than_the_embedding_is_an_error(folder: Path) -> None:
    wanted = BertForPreTraining(BertConfig(**SMALL)).shapes()
    (folder / "vocab.txt").write_text("piece\n" * 50)
    plan_loading(open_folder(folder), wanted)
    (folder / "vocab.txt").write_text("piece\n" * 51)
    with pytest.raises(IntegrityError, match=r"vocab\.txt: has 51 pieces, but the model's embedding has 50 rows"):
        plan_loading(open_folder(folder), wanted)
