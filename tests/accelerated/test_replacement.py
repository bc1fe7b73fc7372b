"""`accelerate` finds the models, `acceleration` reports, and `remove` restores."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import bertmill
from bertmill.accelerated import replacement, transformers_internals
from bertmill.errors import UsageError
from tests.accelerated.models import counts, inputs_for, pair, untouched
from tests.model.equality import SMALL


class WithOwnHead(nn.Module):
    """Two encoders and a head of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = untouched("BertModel"), untouched("BertModel")
        self.head = nn.Linear(SMALL["hidden_size"], 2)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.head(self.left(**inputs).pooler_output - self.right(**inputs).pooler_output.roll(1, 0))


def test_models_inside_another_are_accelerated_and_reported_together() -> None:
    model = WithOwnHead()
    expected = model(inputs_for(""))
    assert bertmill.accelerate(model) is model
    torch.testing.assert_close(model(inputs_for("")), expected, atol=2e-5, rtol=0)
    assert counts(model) == (2, {})
    assert counts(model.left) == (1, {})


def test_the_body_of_a_model_can_be_accelerated_alone() -> None:
    model, theirs = untouched("BertForSequenceClassification"), untouched("BertForSequenceClassification")
    bertmill.accelerate(model.bert)
    inputs = {**inputs_for(""), "labels": torch.tensor([0, 1] * 3)}
    torch.testing.assert_close(model(**inputs).loss, theirs(**inputs).loss)
    assert counts(model.bert) == (1, {})
    bertmill.accelerate(model)  # and then the whole
    model(**inputs)
    assert bertmill.acceleration(model).served == 2


def test_calls_of_the_body_are_served_if_it_is_accelerated_as_well() -> None:
    model, theirs = untouched("BertForSequenceClassification"), untouched("BertForSequenceClassification")
    bertmill.accelerate(model)
    model.bert(**inputs_for(""))
    assert counts(model) == (0, {})
    bertmill.accelerate(model.bert)
    pooled = model.bert(**inputs_for("")).pooler_output
    torch.testing.assert_close(pooled, theirs.bert(**inputs_for("")).pooler_output, atol=2e-5, rtol=0)
    assert counts(model) == counts(model.bert) == (1, {})
    torch.testing.assert_close(model(**inputs_for("")).logits, theirs(**inputs_for("")).logits, atol=2e-5, rtol=0)
    assert (counts(model), counts(model.bert)) == ((2, {}), (1, {}))


@pytest.mark.parametrize("option", ["logits", "compute_padding"])
def test_options_must_be_bool(option: str) -> None:
    model = untouched("BertModel")
    with pytest.raises(UsageError, match=f"^accelerate: {option} must be True or False, not 'x'$"):
        bertmill.accelerate(model, **{option: "x"})
    assert "forward" not in model.__dict__


def test_other_classes_with_such_a_body_are_accelerated_there() -> None:
    class Mine(transformers.BertForSequenceClassification):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    model = Mine(transformers.BertConfig(**SMALL)).eval()
    expected = model(**inputs_for("")).logits
    bertmill.accelerate(model)
    assert "forward" not in model.__dict__
    torch.testing.assert_close(model(**inputs_for("")).logits, expected, atol=2e-5, rtol=0)
    assert counts(model) == (1, {})


@pytest.mark.parametrize("thing", [nn.Linear(1, 1), "bert-base-uncased", None], ids=str)
def test_other_objects_are_an_error(thing: Any) -> None:
    with pytest.raises(
        UsageError, match=r"^accelerate: \w+ contains no transformers BERT model .*; pass one of BertModel, "
    ):
        bertmill.accelerate(thing)
    with pytest.raises(UsageError, match=r"^acceleration: this model is not accelerated; call accelerate"):
        bertmill.acceleration(thing)


@pytest.mark.parametrize("module", ["transformers", "transformers.models.bert.modeling_bert"])
def test_without_a_supported_transformers_the_error_says_what_to_install(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "bertmill.accelerated.transformers_internals", raising=False)
    monkeypatch.delattr("bertmill.accelerated.transformers_internals", raising=False)
    monkeypatch.delattr("transformers.models.bert.modeling_bert", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=r"^accelerate: requires transformers 5.22.2 \(.*\); pip install tr"):
        bertmill.accelerate(nn.Linear(1, 1))


def test_the_first_fallback_warns_and_all_are_counted_by_reason() -> None:
    fast, _ = pair("BertModel", _attn_implementation="eager")
    inputs = inputs_for("")
    with pytest.warns(UserWarning, match=r"this BertModel call is not accelerated: output_attentions; see") as warned:
        fast(**inputs, output_attentions=True)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    fast(**inputs, output_attentions=True)
    fast(**inputs, unknown=1)
    fast(**inputs)
    assert repr(bertmill.acceleration(fast)) == (
        "Acceleration(served=1, fallbacks={'output_attentions': 2, 'the argument unknown': 1})"
    )


def test_removing_restores_the_model() -> None:
    fast, _ = pair("BertForMaskedLM")
    fast(**inputs_for(""))
    report = bertmill.acceleration(fast)
    report.remove()
    plain = untouched("BertForMaskedLM")
    assert fast.__dict__.keys() == plain.__dict__.keys()
    assert fast(**inputs_for("")).logits[inputs_for("")["attention_mask"] == 0].any()
    with pytest.raises(UsageError):
        bertmill.acceleration(fast)


def test_accelerating_again_changes_the_options_and_starts_new_counts() -> None:
    fast, _ = pair("BertForMaskedLM")
    masked = inputs_for("")["attention_mask"] == 0
    assert not fast(**inputs_for("")).logits[masked].any()
    bertmill.accelerate(fast, compute_padding=True)
    assert fast(**inputs_for("")).logits[masked].any()
    assert counts(fast) == (1, {})


def test_another_version_of_transformers_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replacement._warn_about_version.cache_clear()
    monkeypatch.setattr(transformers_internals, "SUPPORTED", "5.0.0")
    models = nn.ModuleList([untouched("BertModel"), untouched("BertModel")])
    with pytest.warns(UserWarning, match=r"was tested with transformers 5\.0\.0, but 5\.22\.2 is installed") as warned:
        bertmill.accelerate(models)
    bertmill.accelerate(models)  # warnings are errors in tests
    assert len(warned) == 1
    assert warned[0].filename == __file__
    replacement._warn_about_version.cache_clear()


def test_the_first_warning_contains_the_details() -> None:
    fast, _ = pair("BertModel")
    details = r"unsupported inputs or layers \(piece id 97 is out of range"
    with pytest.warns(UserWarning, match=details), pytest.raises(IndexError):
        fast(torch.tensor([[SMALL["vocab_size"]]]))
    assert counts(fast) == (0, {"unsupported inputs or layers": 1})
