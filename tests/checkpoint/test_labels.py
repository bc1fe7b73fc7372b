"""Labels are resolved from num_labels, id2label, label2id and the size of the head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from model_folders import resettle

from bertmill import BertConfig, BertForSequenceClassification
from bertmill.checkpoint.labels import MAX_LABELS, resolve_labels
from bertmill.errors import UsageError

NAMES = {"0": "bad", "1": "good"}


@pytest.mark.parametrize(
    ("given", "head_sizes", "settled", "remark"),
    [
        ({}, (), None, ""),
        ({"num_labels": 3}, (), {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}, ""),
        ({"label2id": {"good": 1, "bad": 0}}, (), {0: "bad", 1: "good"}, ""),
        ({"num_labels": 2, "id2label": NAMES}, (3,), {0: "bad", 1: "good"}, ""),
        ({"num_labels": 3, "id2label": NAMES}, (), {0: "bad", 1: "good"}, "using the names"),
        ({"num_labels": 3, "id2label": NAMES}, (2,), {0: "bad", 1: "good"}, "using the names"),
        ({"num_labels": 3, "id2label": NAMES}, (3,), {0: "bad", 1: "good", 2: "LABEL_2"}, "using num_labels"),
        ({"num_labels": 1, "id2label": NAMES}, (1,), {0: "bad"}, "using num_labels, the size of the head"),
        ({"id2label": "positive"}, (), "positive", ""),
    ],
)
def test_names_take_precedence_unless_the_head_has_num_labels_outputs(
    given: dict[str, Any], head_sizes: tuple[int, ...], settled: Any, remark: str
) -> None:
    settings, remarks = resolve_labels({"hidden_size": 8, **given}, head_sizes)
    assert settings == {"hidden_size": 8} | ({} if settled is None else {"id2label": settled})
    assert len(remarks) == bool(remark)
    assert remark in "".join(remarks)


@pytest.mark.parametrize(
    "given", [{"num_labels": 0}, {"num_labels": True}, {"num_labels": "2"}, {"label2id": {"a": []}}]
)
def test_invalid_labels_are_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"num_labels must be|label2id must map"):
        resolve_labels(given)


def test_the_number_of_labels_has_the_same_limit_everywhere() -> None:
    with pytest.raises(UsageError, match="must be an integer from 1 to 1,048,576"):
        resolve_labels({"num_labels": MAX_LABELS + 1})
    with pytest.raises(UsageError, match="must be an integer from 1 to 1,048,576"):
        resolve_labels({"num_labels": MAX_LABELS + 1, "id2label": NAMES}, [MAX_LABELS + 1])
    with pytest.raises(UsageError):
        BertConfig(num_labels=MAX_LABELS + 1)


def test_the_head_decides_when_the_number_of_labels_and_their_names_disagree(folder: Path, tmp_path: Path) -> None:
    BertForSequenceClassification.from_pretrained(folder, num_labels=3).save_pretrained(tmp_path / "three")
    resettle(tmp_path / "three", num_labels=3, id2label={"0": "bad", "1": "good"}, label2id={"bad": 0, "good": 1})
    model = BertForSequenceClassification.from_pretrained(tmp_path / "three")
    assert model.config.id2label == {0: "bad", 1: "good", 2: "LABEL_2"}
    assert "num_labels is 3, but there are 2 label names" in str(model.load_report)
