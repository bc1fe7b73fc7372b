"""Benchmarks that use bertmill's internals run, and both tools give the same predictions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertmill
from benchmarks import accelerate, answer, instances, predict
from bertmill import BertForSequenceClassification, BertTokenizer


def test_answer_compares_both_tools(tiny_data: Path) -> None:
    (row,) = answer.measure(tiny_data, rounds=1)
    assert (row.benchmark, row.unit, row.target) == ("answer", "row/s", answer.TARGET)
    assert row.ratio > 0


def test_accelerate_compares_both_sides_with_each_number_of_threads(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tiny_data / "glue/SST-2").mkdir(parents=True)
    (tiny_data / "glue/SST-2/dev.tsv").write_text("sentence\tlabel\n" + "a fine film .\t1\nno .\t0\n" * 2)
    monkeypatch.setattr(accelerate, "set_threads", lambda count: None)
    monkeypatch.setattr(accelerate, "MLM_SHAPE", (2, 8))
    monkeypatch.setattr(accelerate, "LONG_LENGTHS", (20,))
    rows = list(accelerate.measure(tiny_data, rounds=1))
    assert {row.what.rpartition(", ")[0] for row in rows} == set(accelerate.TARGETS)
    assert len(rows) == 2 * len(accelerate.TARGETS)
    assert all(row.ratio > 0 and row.target for row in rows)


def test_instances_measures_planning_and_loading(tiny_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "set_threads", lambda count: None)
    monkeypatch.setattr(instances, "NUM_SENTENCES", 100)
    monkeypatch.setattr(instances, "NUM_BATCHES", 1)
    rows = list(instances.measure(tiny_data, rounds=1))
    assert [row.what for row in rows] == [
        "plan mlm+nsp",
        "plan mlm+sop",
        "plan mlm",
        "load mlm+nsp",
        "load mlm+nsp, whole words",
    ]
    assert all(row.ours > 0 and row.theirs > 0 for row in rows)


def test_another_engine_instead_of_our_model_gives_the_same_predictions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification.from_pretrained("minilm", num_labels=2).eval()
    model.save_pretrained(tmp_path / "model")
    BertTokenizer.from_pretrained("minilm").save_pretrained(tmp_path / "model")

    @torch.inference_mode()
    def engine(inputs: list[Any]) -> Any:
        ids, segments, mask = map(torch.from_numpy, inputs)
        return model(input_ids=ids, token_type_ids=segments, attention_mask=mask).logits.numpy()

    texts = ["A fine film.", "It is far too long, and [MASK] is just text here.", "no", "A fine film, again."]
    theirs = predict._with_engine(tmp_path, engine)(texts)
    ours = bertmill.load(tmp_path / "model").predict(texts)
    predict._require_same(ours, theirs)
    assert [each["label"] for each in ours] == [each["label"] for each in theirs]
    assert json.loads(json.dumps(theirs)) == theirs
    assert len({round(each["score"], 4) for each in theirs}) > 1
    np.testing.assert_allclose([each["score"] for each in ours], [each["score"] for each in theirs], atol=1e-5)
