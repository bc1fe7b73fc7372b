"""Dropout drops the right fraction and is unbiased, independent and keyed; training steps repeat bit for bit."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from equality import SMALL, padded_inputs, targets_for

from bertmill import BertConfig, BertForPreTraining, keyed_dropout
from bertmill.model.attention import attend, attend_with_weights
from bertmill.model.dropout import Dropout
from bertmill.model.packing import PackedBatch, plan_layout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.03, 0.9])
def test_the_dropped_fraction_and_the_mean_are_right(p: float) -> None:
    torch.manual_seed(0)
    count = 4_000_001
    dropped = Dropout(p, 0, "test")(torch.ones(count))
    share = (dropped == 0).double().mean().item()
    noise = (p * (1 - p) / count) ** 0.5
    assert abs(share - p) < 4 * noise + 1 / 2**17
    assert abs(dropped.double().mean().item() - 1) < 4 * noise / (1 - p)


def test_neighbors_are_dropped_independently() -> None:
    torch.manual_seed(0)
    drawn = (Dropout(0.5, 0, "test")(torch.ones(4_000_000)) > 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5, 8):
        assert abs((drawn[distance:] * drawn[:-distance]).mean() * 4) < 0.003


def test_nothing_is_dropped_in_evaluation_or_with_probability_zero() -> None:
    states = torch.randn(100)
    assert Dropout(0.5, 0, "test").eval()(states) is states
    assert Dropout(0.0, 0, "test")(states) is states


def test_gradients_flow_where_elements_were_kept() -> None:
    states = torch.randn(1000, requires_grad=True)
    dropped = Dropout(0.3, 0, "test")(states)
    dropped.sum().backward()
    assert torch.equal(states.grad == 0, dropped == 0)
    kept = dropped != 0
    torch.testing.assert_close(states.grad[kept], (dropped / states)[kept])


def test_outside_a_training_loop_dropout_uses_torchs_generator() -> None:
    dropout = Dropout(0.5, 0, "test")
    torch.manual_seed(3)
    first, second = dropout(torch.ones(64)), dropout(torch.ones(64))
    torch.manual_seed(3)
    assert torch.equal(first, dropout(torch.ones(64)))
    assert not torch.equal(first, second)


def test_inside_a_training_loop_dropout_depends_only_on_the_key() -> None:
    drawn = []
    for key in [(1, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 1)]:
        for layer, purpose in [(0, "a"), (1, "a"), (0, "b")]:
            with keyed_dropout(*key):
                first = Dropout(0.5, layer, purpose)(torch.ones(256))
                torch.manual_seed(len(drawn))
                assert torch.equal(first, Dropout(0.5, layer, purpose)(torch.ones(256)))
            drawn.append(first)
    assert len({tuple(each.tolist()) for each in drawn}) == len(drawn)


def test_attention_with_dropout_matches_its_plain_form_and_has_the_numerical_gradient() -> None:
    lengths = [5, 3, 5, 1, 2]
    layout = plan_layout(PackedBatch(torch.arange(sum(lengths)), lengths), torch.float64)
    dropout = Dropout(0.4, 0, "weights")

    def fast(qkv: torch.Tensor) -> torch.Tensor:
        with keyed_dropout(1, 1):
            return attend(qkv, layout, 2, dropout)

    qkv = torch.randn(sum(lengths), 3 * 8, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(fast, qkv)
    one = plan_layout(PackedBatch(torch.arange(6), [3, 3]), torch.float64)
    qkv = torch.randn(6, 3 * 8, dtype=torch.float64, requires_grad=True)
    with keyed_dropout(1, 1):
        plain, weights = attend_with_weights(qkv, one, 2, dropout)
        torch.testing.assert_close(attend(qkv, one, 2, dropout), plain)
    assert (weights[0] == 0).any()


def test_attention_dropout_is_unbiased() -> None:
    times = 4000  # the same sequence, in one batch
    layout = plan_layout(PackedBatch(torch.arange(16).repeat(times), [16] * times), torch.float32)
    qkv = torch.randn(16, 3 * 8).repeat(times, 1)
    dropout = Dropout(0.2, 0, "weights")
    mean = attend(qkv, layout, 2, dropout).view(times, 16, 8).mean(0)
    torch.testing.assert_close(mean, attend(qkv, layout, 2, dropout.eval())[:16], atol=0.04, rtol=0)


def test_a_keyed_training_step_is_bit_identical_on_two_threads() -> None:
    torch.manual_seed(0)
    first = BertForPreTraining(BertConfig(**{**SMALL, "hidden_size": 128, "intermediate_size": 256}))
    inputs = padded_inputs(SMALL["vocab_size"], lengths=(40, 13, 40, 22, 39, 40, 7, 31))
    targets = targets_for("BertForPreTraining", inputs, SMALL["vocab_size"])
    results = []
    for _ in range(6):
        model = copy.deepcopy(first)
        with keyed_dropout(seed=7, step=3):
            loss = model(**inputs, **targets).loss
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    with keyed_dropout(seed=7, step=4):
        assert copy.deepcopy(first)(**inputs, **targets).loss != results[0][0]


def test_copies_of_a_model_keep_its_weights_tied() -> None:
    model = copy.deepcopy(BertForPreTraining(BertConfig(**SMALL)))
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert model.cls.predictions.decoder.bias is model.cls.predictions.bias


@pytest.mark.parametrize("keyed", [True, False])
def test_gradient_checkpointing_gives_bit_identical_gradients(keyed: bool) -> None:
    first = BertForPreTraining(BertConfig(**SMALL))
    inputs = padded_inputs(SMALL["vocab_size"])
    targets = targets_for("BertForPreTraining", inputs, SMALL["vocab_size"])
    results = []
    for checkpointing in (False, True):
        model = copy.deepcopy(first)
        runs = []
        model.bert.encoder.layer[0].register_forward_pre_hook(lambda *_, runs=runs: runs.append(1))
        if checkpointing:
            model.gradient_checkpointing_enable()
        torch.manual_seed(5)
        with keyed_dropout(seed=7, step=3) if keyed else contextlib.nullcontext():
            loss = model(**inputs, **targets).loss
        torch.rand(9)  # other draws do not matter
        with keyed_dropout(seed=7, step=4):  # nor does the key of a later step
            loss.backward()
        assert len(runs) == (2 if checkpointing else 1)
        results.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    assert all(map(torch.equal, *results))
    model.gradient_checkpointing_disable()
    model(**inputs, **targets).loss.backward()
    assert len(runs) == 3
