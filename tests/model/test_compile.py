"""Compiled layers train like layers that are not compiled."""

from __future__ import annotations

import copy

import pytest
import torch
from equality import SMALL, padded_inputs, targets_for
from torch._dynamo.utils import counters

from bertmill import BertConfig, BertForPreTraining, keyed_dropout
from bertmill.errors import UsageError

LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 64, "num_hidden_layers": 1}


@pytest.mark.usefixtures("compiler")
@pytest.mark.filterwarnings("ignore")  # torch.compile triggers warnings inside torch
@pytest.mark.parametrize(
    ("dropout", "sizes"),
    [
        pytest.param(0.1, {}, id="0.1"),
        pytest.param(0.0, {}, id="0", marks=pytest.mark.slow),
        pytest.param(0.1, LARGE, id="large", marks=pytest.mark.slow),
    ],
)
def test_compiled_layers_have_the_same_dropout_and_gradients(dropout: float, sizes: dict[str, int]) -> None:
    torch._dynamo.reset()
    counters.clear()
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    plain = BertForPreTraining(BertConfig(**SMALL | rates | sizes)).train()
    compiled = copy.deepcopy(plain)
    compiled.compile_layers()
    num_compiled = counters["stats"]["unique_graphs"]
    assert num_compiled > 0
    assert all(parameter.grad is None for parameter in compiled.parameters())
    assert list(compiled.state_dict()) == list(plain.state_dict())
    inputs = padded_inputs(SMALL["vocab_size"])
    targets = targets_for("BertForPreTraining", inputs, SMALL["vocab_size"])
    losses = []
    for step in range(3):
        for model in (plain, compiled):
            model.zero_grad()
            with keyed_dropout(seed=7, step=step):
                loss = model(**inputs, **targets).loss
            loss.backward()
            losses.append(float(loss.detach()))
        for (name, one), other in zip(plain.named_parameters(), compiled.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-6, msg=name)
    # Dropout differs between steps, and both models have the same.
    assert len({round(loss, 4) for loss in losses}) == (3 if dropout else 1)
    assert counters["stats"]["unique_graphs"] == num_compiled  # training batches compiled nothing


@pytest.mark.usefixtures("no_compiler")
def test_a_model_that_cannot_be_compiled_is_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    model = BertForPreTraining(BertConfig(**SMALL))
    inputs = padded_inputs(SMALL["vocab_size"])
    before = model.eval()(**inputs).prediction_logits
    with pytest.raises(UsageError, match=r"torch\.compile does not work here: "):
        model.compile_layers()
    assert torch.equal(model(**inputs).prediction_logits, before)
    assert capfd.readouterr().err == ""
