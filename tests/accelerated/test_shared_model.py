"""Accelerated models give the outputs, losses and gradients of untouched ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import bertmill
from tests.accelerated.models import V, counts, inputs_for, pair
from tests.model.equality import CLASSES, SMALL, as_tuple, padded_inputs, targets_for

TOLERANCE = {"atol": 2e-5, "rtol": 0}


def assert_same(fast: Any, theirs: Any, inputs: dict[str, Any], **how: Any) -> tuple[Any, Any]:
    """Compare outputs within 2e-5 where the mask is 1, losses within 1e-6, gradients within 5e-5."""
    mine, other = fast(**inputs, **how), theirs(**inputs, **how)
    assert type(mine) is type(other)
    assert list(mine) == list(other)
    mask = inputs.get("attention_mask", torch.ones(()))
    seen = mask.bool().flatten(0, -2) if mask.ndim else None
    for name in other:
        for one, two in zip(as_tuple(mine[name]), as_tuple(other[name]), strict=True):
            assert one.dtype == two.dtype, name
            if seen is not None and one.shape[:2] == seen.shape:
                one, two = one[seen], two[seen]
            torch.testing.assert_close(one, two, **TOLERANCE, msg=lambda text, name=name: f"{name}: {text}")
    if "loss" in other:
        assert abs(mine.loss - other.loss) <= 1e-6 * max(1, abs(other.loss))
    if torch.is_grad_enabled():
        assert_same_gradients(fast, theirs, scalar(mine, seen), scalar(other, seen))
    return mine, other


def scalar(output: Any, seen: Tensor | None) -> Tensor:
    """Return the loss or, without one, a number that depends on all outputs."""
    if "loss" in output:
        return output.loss
    first = output[0] if seen is None or output[0].shape[:2] != seen.shape else output[0][seen]
    return first.square().mean() + sum(each.sin().mean() for each in output.values() if each is not output[0])


def assert_same_gradients(fast: nn.Module, theirs: nn.Module, mine: Tensor, other: Tensor) -> None:
    fast.zero_grad()
    theirs.zero_grad()
    mine.backward()
    other.backward()
    for (name, one), (other_name, two) in zip(fast.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other_name
        ours = torch.zeros_like(one) if one.grad is None else one.grad
        torch.testing.assert_close(
            ours,
            torch.zeros_like(two) if two.grad is None else two.grad,
            atol=5e-5,
            rtol=0,
            msg=lambda text, name=name: f"gradient of {name}: {text}",
        )


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("side", ["right", "left", "holes", "none"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_equal_to_the_untouched_one_wherever_the_padding_is(
    name: str, side: str, training: bool
) -> None:
    fast, theirs = pair(name)
    inputs = inputs_for(name, side=side)
    assert_same(fast.train(training), theirs.train(training), {**inputs, **targets_for(name, inputs, V)})
    assert counts(fast) == (1, {})


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_equal_without_labels_and_without_a_mask(name: str) -> None:
    fast, theirs = pair(name)
    inputs = inputs_for(name, side="none", pairs=False)
    assert_same(fast, theirs, {"input_ids": inputs["input_ids"]})
    assert counts(fast) == (1, {})


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_gives_the_hidden_states_and_tuples_of_the_untouched_one(name: str) -> None:
    fast, theirs = pair(name)
    inputs = inputs_for(name)
    with torch.no_grad():
        mine, other = assert_same(fast, theirs, inputs, output_hidden_states=True)
        assert len(mine.hidden_states) == len(other.hidden_states) == 3
        assert len(fast(**inputs, return_dict=False)) == len(theirs(**inputs, return_dict=False))
        fast.config.return_dict = theirs.config.return_dict = False
        for given in ({}, {"return_dict": None}, {"return_dict": True}):
            assert type(fast(**inputs, **given)) is type(theirs(**inputs, **given))
    assert counts(fast) == (5, {})


def test_the_last_hidden_state_is_also_the_last_of_the_hidden_states() -> None:
    fast, _ = pair("BertModel", output_hidden_states=True)
    with torch.no_grad():
        output = fast(**inputs_for("BertModel"))
    assert output.hidden_states[-1] is output.last_hidden_state


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.sampled_from(["right", "left", "none"]),
    st.booleans(),
    st.booleans(),
)
def test_any_lengths_give_equal_vectors(lengths: list[int], side: str, compute_padding: bool, positions: bool) -> None:
    fast, theirs = pair("BertModel", compute_padding=compute_padding)
    inputs = padded_inputs(V, tuple(lengths), side)
    if positions:
        inputs["position_ids"] = torch.arange(max(lengths)).flip(0)[None]
    with torch.no_grad():
        mine, other = assert_same(fast, theirs, inputs)
    if compute_padding:
        torch.testing.assert_close(mine.last_hidden_state, other.last_hidden_state, **TOLERANCE)
    else:  # the pooler reads the first column
        assert not mine.last_hidden_state[:, 1:][inputs["attention_mask"][:, 1:] == 0].any()


@pytest.mark.parametrize("name", CLASSES)
def test_compute_padding_gives_equal_outputs_at_masked_positions(name: str) -> None:
    fast, theirs = pair(name, compute_padding=True)
    inputs = inputs_for(name)
    everything = {**inputs, **targets_for(name, inputs, V)}
    with torch.no_grad():
        mine = fast(**everything, output_hidden_states=True)
        other = theirs(**everything, output_hidden_states=True)
    for key in other:
        torch.testing.assert_close(mine[key], other[key], **TOLERANCE)
    assert counts(fast) == (1, {})


def test_outputs_at_masked_positions_are_zero_by_default() -> None:
    fast, _ = pair("BertForTokenClassification")
    inputs = inputs_for("BertForTokenClassification")
    logits = fast(**inputs).logits
    assert not logits[inputs["attention_mask"] == 0].any()
    assert logits[inputs["attention_mask"] == 1].all()


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForPreTraining"])
def test_logits_of_a_training_step_can_be_dropped(name: str) -> None:
    fast, theirs = pair(name, logits=False)
    inputs = inputs_for(name)
    everything = {**inputs, **targets_for(name, inputs, V)}
    field = "logits" if name == "BertForMaskedLM" else "prediction_logits"
    fast.train()
    theirs.train()
    output = fast(**everything)
    assert output[0] is output.loss
    assert field not in output
    assert getattr(output, field) is None
    assert_same_gradients(fast, theirs, output.loss, theirs(**everything).loss)
    assert field in fast(**inputs)
    assert field in fast.eval()(**everything)


@pytest.mark.parametrize("kept", [("labels",), ("next_sentence_label",), ("labels", "next_sentence_label")])
def test_pretraining_has_a_loss_only_with_both_labels(kept: tuple[str, ...]) -> None:
    fast, theirs = pair("BertForPreTraining")
    inputs = inputs_for("BertForPreTraining")
    targets = targets_for("BertForPreTraining", inputs, V)
    mine, _ = assert_same(fast, theirs, {**inputs, **{name: targets[name] for name in kept}})
    assert ("loss" in mine) == (len(kept) == 2)


@pytest.mark.parametrize(
    ("num_labels", "labels", "chosen"),
    [
        (1, torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0, 3.0]), "regression"),
        (3, torch.tensor([0, 1, 2, 2, 1, 0]), "single_label_classification"),
        (3, torch.tensor([0, 1, 2, 2, 1, 0], dtype=torch.int32), "single_label_classification"),
        (3, torch.tensor([[1.0, 0.0, 1.0]] * 6), "multi_label_classification"),
    ],
)
def test_the_problem_type_is_chosen_and_written_to_the_config(num_labels: int, labels: Tensor, chosen: str) -> None:
    fast, theirs = pair("BertForSequenceClassification", num_labels=num_labels)
    inputs = inputs_for("BertForSequenceClassification")
    if labels.dtype == torch.int32:  # torch has no cross-entropy for these: both raise the same error
        for model in (fast, theirs):
            with pytest.raises(RuntimeError, match=r"Int"):
                model(**inputs, labels=labels)
    else:
        assert_same(fast, theirs, {**inputs, "labels": labels})
    assert fast.config.problem_type == theirs.config.problem_type == chosen


def test_a_problem_type_that_is_set_decides() -> None:
    fast, theirs = pair("BertForSequenceClassification", num_labels=3, problem_type="regression")
    assert_same(fast, theirs, {**inputs_for(""), "labels": torch.randn(6, 3)})
    assert counts(fast) == (1, {})


def cubed(states: Tensor) -> Tensor:
    return states**3


class Doubled(nn.Module):
    def forward(self, states: Tensor) -> Tensor:
        return F.relu(states) * 2


@pytest.mark.parametrize(
    "activation",
    [
        "gelu",
        "gelu_new",
        "gelu_python",
        "relu",
        "silu",
        "quick_gelu",
        "tanh",
        cubed,
        partial(F.elu, alpha=2),
        Doubled(),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_activations_may_have_any_name_or_be_callables(activation: str | Callable[[Tensor], Tensor]) -> None:
    fast, theirs = pair("BertForMaskedLM", hidden_act=activation)
    inputs = inputs_for("BertForMaskedLM")
    assert_same(fast, theirs, {**inputs, **targets_for("BertForMaskedLM", inputs, V)})
    assert counts(fast) == (1, {})


def test_embeddings_can_be_passed_and_get_gradients() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    inputs = inputs_for("")
    shape = (*inputs.pop("input_ids").shape, SMALL["hidden_size"])
    gradients = []
    for model in (fast, theirs):
        torch.manual_seed(1)
        vectors = torch.randn(shape, requires_grad=True)
        model(inputs_embeds=vectors, **inputs, labels=torch.tensor([0, 1] * 3)).loss.backward()
        gradients.append(vectors.grad)
    torch.testing.assert_close(*gradients, atol=5e-5, rtol=0)
    assert counts(fast) == (1, {})


@pytest.mark.parametrize("name", ["BertForMaskedLM", "BertForSequenceClassification"])
def test_dropout_is_active_where_the_untouched_model_has_it_active(name: str) -> None:
    fast, _ = pair(name)
    inputs = inputs_for(name)

    def varies() -> bool:
        with torch.no_grad():
            return not torch.equal(fast(**inputs).logits, fast(**inputs).logits)

    def set_p(p: float, *of: nn.Module) -> None:
        for each in of:
            for module in each.modules():
                if isinstance(module, nn.Dropout):
                    module.p = p

    fast.train()
    assert not varies()
    set_p(0.5, fast.bert.encoder.layer[1].output)
    assert varies()
    fast.bert.encoder.eval()
    assert not varies()
    fast.train()
    fast.bert.encoder.layer[1].output.dropout.eval()
    assert not varies()
    set_p(0.0, fast)
    set_p(0.5, fast.bert.encoder.layer[0].attention.self)
    assert varies()
    fast.bert.encoder.layer[0].attention.self.dropout.eval()  # attention reads only the mode of its own module
    assert varies()
    assert counts(fast)[1] == {}


def test_neither_accelerating_nor_building_the_shared_model_draws_random_numbers() -> None:
    fast, _ = pair("BertForMaskedLM")
    torch.manual_seed(3)
    before = torch.get_rng_state()
    bertmill.accelerate(fast)
    with torch.no_grad():
        fast(**inputs_for("BertForMaskedLM"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("side", ["right", "none"])
def test_a_second_derivative_is_an_error(side: str, training: bool) -> None:
    fast, _ = pair("BertForSequenceClassification", attention_probs_dropout_prob=0.1)
    inputs = inputs_for("", side=side)
    vectors = torch.randn(*inputs.pop("input_ids").shape, SMALL["hidden_size"], requires_grad=True)
    loss = fast.train(training)(inputs_embeds=vectors, **inputs, labels=torch.tensor([0, 1] * 3)).loss
    (gradient,) = torch.autograd.grad(loss, vectors, create_graph=True)
    with pytest.raises(RuntimeError, match=r"differentiate twice|is not implemented"):
        gradient.sum().backward()
    assert counts(fast) == (1, {})


class Watched(nn.Module):
    def __init__(self, calls: list[int]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, states: Tensor) -> Tensor:
        self.calls.append(len(states))
        return F.gelu(states)


def test_gradient_checkpointing_gives_the_same_gradients_and_runs_layers_twice() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    inputs = {**inputs_for(""), "labels": torch.tensor([0, 1] * 3)}
    calls = []
    fast.train().gradient_checkpointing_enable()
    fast.bert.encoder.layer[0].intermediate.intermediate_act_fn = Watched(calls)
    assert_same(fast, theirs.train(), inputs)
    assert len(calls) == 2
    fast.gradient_checkpointing_disable()
    calls.clear()
    fast(**inputs).loss.backward()
    assert len(calls) == 1
    assert counts(fast) == (2, {})


@pytest.mark.parametrize("name", ["BertModel", "BertForMaskedLM", "BertForQuestionAnswering"])
def test_autocast_gives_outputs_of_the_same_kind(name: str) -> None:
    fast, theirs = pair(name)
    inputs = inputs_for(name)
    targets = targets_for(name, inputs, V)
    with torch.autocast("cpu", torch.bfloat16):
        mine, other = fast(**inputs, **targets), theirs(**inputs, **targets)
    assert counts(fast) == (1, {})
    seen = inputs["attention_mask"].bool()
    for key in other:
        assert mine[key].dtype == other[key].dtype, key
        one, two = (each[seen] if each.shape[:2] == seen.shape else each for each in (mine[key], other[key]))
        torch.testing.assert_close(one, two, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("labels", "num_labels"),
    [(torch.tensor([4.733, 0.1, 2.0, 3.3, 0.7, 1.9]), 1), (torch.full((6, 3), 0.301), 3)],
    ids=["regression", "soft targets"],
)
def test_autocast_does_not_round_labels(labels: Tensor, num_labels: int) -> None:
    fast, theirs = pair("BertForSequenceClassification", num_labels=num_labels)
    inputs = inputs_for("")
    with torch.autocast("cpu", torch.bfloat16):
        mine, other = fast(**inputs, labels=labels), theirs(**inputs, labels=labels)
    assert mine.loss.dtype == other.loss.dtype
    loss = F.mse_loss if num_labels == 1 else F.binary_cross_entropy_with_logits
    exact = loss(mine.logits.float().squeeze(1) if num_labels == 1 else mine.logits.float(), labels)
    torch.testing.assert_close(mine.loss.float(), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(mine.loss, other.loss, rtol=2e-2, atol=0)
    assert counts(fast) == (1, {})


@pytest.mark.parametrize("activation", [nn.Identity(), nn.ReLU(), F.silu], ids=["Identity", "ReLU", "a function"])
def test_the_activation_of_the_pooler_may_be_replaced(activation: Callable[[Tensor], Tensor]) -> None:
    fast, theirs = pair("BertForSequenceClassification")
    fast(**inputs_for(""))
    for model in (fast, theirs):
        del model.bert.pooler.activation
        model.bert.pooler.activation = activation
    assert_same(fast, theirs, inputs_for(""))
    assert counts(fast) == (2, {})


def test_an_activation_that_is_a_function_may_be_reassigned() -> None:
    fast, theirs = pair("BertForMaskedLM", hidden_act=cubed)
    fast(**inputs_for(""))
    for model in (fast, theirs):
        model.bert.encoder.layer[1].intermediate.intermediate_act_fn = F.silu
    assert_same(fast, theirs, inputs_for(""))
    assert counts(fast) == (2, {})
