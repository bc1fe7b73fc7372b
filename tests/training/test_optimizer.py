"""The optimizer: which parameters decay, clipping, and saving and restoring its state."""

from __future__ import annotations

import copy

import torch

from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.training.optimizer import (
    clip_gradients,
    gradient_norm,
    make_optimizer,
    optimizer_tensors,
    restore_optimizer,
    set_rate,
)


def small_model() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(BertConfig.of_size("tiny").with_settings(vocab_size=50, num_hidden_layers=1))


def test_weight_decay_applies_to_matrices_but_not_to_biases_or_layer_norms() -> None:
    model = small_model()
    optimizer = make_optimizer(model, weight_decay=0.01)
    decayed = {id(parameter) for parameter in optimizer.param_groups[0]["params"]}
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    for name, parameter in model.named_parameters():
        assert (id(parameter) in decayed) == (not name.endswith("bias") and "LayerNorm" not in name), name


def test_frozen_parameters_are_left_alone() -> None:
    model = small_model()
    model.bert.requires_grad_(False)
    optimizer = make_optimizer(model, weight_decay=0.01)
    ids = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert ids == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}


def test_a_restored_optimizer_takes_the_same_step() -> None:
    model = small_model()
    optimizer = make_optimizer(model, weight_decay=0.01)

    def step(of_model: torch.nn.Module, with_optimizer: torch.optim.Optimizer) -> None:
        set_rate(with_optimizer, 1e-3)
        for number, parameter in enumerate(of_model.parameters()):
            parameter.grad = torch.full_like(parameter, 0.1 * (number + 1))
        with_optimizer.step()

    step(model, optimizer)
    again = copy.deepcopy(model)
    other = make_optimizer(again, weight_decay=0.01)
    restore_optimizer(other, again, optimizer_tensors(optimizer, model))
    step(model, optimizer)
    step(again, other)
    for ours, theirs in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_optimizer_restored_from_before_the_first_step_has_no_state() -> None:
    model = small_model()
    optimizer = make_optimizer(model, weight_decay=0.01)
    before = optimizer_tensors(optimizer, model)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    restore_optimizer(optimizer, model, before)
    assert not optimizer_tensors(optimizer, model)


def test_large_gradients_are_scaled_down_and_small_ones_are_not() -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 0.0, 4.0]])
    assert gradient_norm(model) == 5
    clip_gradients(model, 5.0, max_norm=10.0)
    assert model.weight.grad.tolist() == [[3, 0, 4]]
    clip_gradients(model, 5.0, max_norm=1.0)
    assert abs(gradient_norm(model) - 1) < 1e-6
