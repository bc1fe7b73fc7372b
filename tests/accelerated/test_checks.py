"""Every kind of call that bertmill cannot serve goes to the model's own forward, with its result and a reason."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.autograd import forward_ad

import bertmill
from tests.accelerated.models import V, assert_falls_back, counts, inputs_for, pair, served_or_not

pytestmark = pytest.mark.filterwarnings("ignore:this .* call is not accelerated")
B, T = inputs_for("")["input_ids"].shape


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"output_attentions": True}, "output_attentions"),
        ({"output_hidden_states": True}, "hidden states that need gradients"),
        ({"output_hidden_states": [1]}, "hidden states of selected layers"),
        ({"attention_mask": torch.ones(B, 1, T, T)}, "an attention mask that is not [batch, length]"),
        ({"attention_mask": torch.ones(B, T).index_fill(0, torch.tensor(2), 0)}, "a fully masked sequence"),
        ({"attention_mask": torch.ones(B, T + 1)}, "unsupported inputs or layers"),
        ({"no_such_argument": 1}, "the argument no_such_argument"),
        ({"is_causal": False}, "the argument is_causal"),
        ({"encoder_hidden_states": torch.ones(B, T, 32)}, "the argument encoder_hidden_states"),
        ({"past_key_values": transformers.DynamicCache()}, "the argument past_key_values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_argument_that_cannot_be_served(given: dict[str, Any], reason: str) -> None:
    assert_falls_back(*pair("BertModel", attn_implementation="eager"), reason, **given)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("BertModel", {"labels": torch.tensor([0, 1] * 3)}),
        ("BertForSequenceClassification", {"start_positions": torch.tensor([0, 1] * 3)}),
    ],
)
def test_an_argument_of_another_class_is_left_to_the_untouched_model(name: str, given: dict[str, Tensor]) -> None:
    assert_falls_back(*pair(name), f"the argument {next(iter(given))}", **given)


@pytest.mark.filterwarnings("ignore:The `next_sentence_label` argument is deprecated")
def test_the_old_name_of_the_labels_of_next_sentence_prediction_is_accepted() -> None:
    labels = torch.tensor([0, 1] * 3)
    fast, theirs = pair("BertForNextSentencePrediction")
    assert_falls_back(fast, theirs, "the argument next_sentence_label", next_sentence_label=labels)


def test_hidden_states_without_gradients_are_served() -> None:
    fast, theirs = pair("BertModel")
    fast(**inputs_for(""), output_hidden_states=None)
    with torch.no_grad():
        fast(**inputs_for(""), output_hidden_states=True)
    fast.requires_grad_(False)
    fast(**inputs_for(""), output_hidden_states=True)
    assert counts(fast) == (3, {})
    theirs.requires_grad_(False)
    inputs = inputs_for("")
    vectors = torch.randn(*inputs.pop("input_ids").shape, 32, requires_grad=True)
    fast(inputs_embeds=vectors, **inputs, output_hidden_states=True).hidden_states[1].sum().backward()
    assert vectors.grad is not None
    assert counts(fast) == (3, {"hidden states that need gradients": 1})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"is_decoder": True}, "a decoder or causal attention"),
        ({"is_causal": True}, "a decoder or causal attention"),
        ({"output_attentions": True, "_attn_implementation": "eager"}, "output_attentions"),
        ({"_attn_implementation": "flex_attention"}, "attention implementation flex_attention"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_served(settings: dict[str, Any], reason: str) -> None:
    if "flex_attention" in reason:  # untouched models need a GPU or a compiler for it
        fast, _ = pair("BertModel", **settings)
        assert served_or_not(fast) == (0, {reason: 1})
        return
    assert_falls_back(*pair("BertModel", **settings), reason)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"input_ids": torch.full((B, T), V)}, IndexError),
        ({"token_type_ids": torch.full((B, T), 2)}, IndexError),
        ({"position_ids": torch.full((1, T), 40)}, IndexError),
        ({"labels": torch.full((B, T), V)}, IndexError),
        ({"inputs_embeds": torch.ones(B, T, 32)}, ValueError),
        ({"input_ids": None}, ValueError),
        ({"labels": torch.zeros(B, T + 1, dtype=torch.long)}, ValueError),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else value.__name__,
)
def test_wrong_inputs_give_the_error_of_the_untouched_model(given: dict[str, Any], error: type[Exception]) -> None:
    messages = []
    fast, theirs = pair("BertForMaskedLM")
    for model in (fast, theirs):
        with pytest.raises(error) as raised:
            model(**{**inputs_for(""), **given})
        messages.append(f"{raised.type}: {raised.value}")
    assert messages[0] == messages[1]
    assert sum(counts(fast)[1].values()) == 1


def test_a_span_head_with_three_outputs_gives_the_error_of_the_untouched_model() -> None:
    for model in pair("BertForQuestionAnswering", num_labels=3):
        with pytest.raises(ValueError, match="too many values to unpack"):
            model(**inputs_for(""))


def test_labels_of_any_shape_that_fits_are_accepted() -> None:
    labels = torch.randint(0, V, (B * T,))
    assert_falls_back(*pair("BertForMaskedLM"), "labels and inputs have different shapes", labels=labels)


def test_arguments_that_do_not_fit_give_the_error_of_the_untouched_model() -> None:
    fast, _ = pair("BertForMaskedLM")
    with pytest.raises(TypeError):
        fast(*[None] * 20)
    assert counts(fast) == (0, {"arguments that do not fit the signature": 1})


def test_tensors_of_other_kinds_are_left_to_the_untouched_model() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Tagged(Tensor):
        pass

    fast, theirs = pair("BertModel")
    tagged = {name: value.as_subclass(Tagged) for name, value in inputs_for("").items()}
    assert torch.equal(fast(**tagged).pooler_output, theirs(**tagged).pooler_output)
    assert counts(fast) == (0, {"input_ids is not a plain tensor": 1})
    with FakeTensorMode() as mode, torch.no_grad():
        fake = {name: mode.from_tensor(value) for name, value in inputs_for("").items()}
        with pytest.raises(Exception, match=r"(?i)fake"):  # real weights, as in the untouched model
            fast(**fake)
    assert counts(fast)[0] == 0


def test_torch_func_works() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    inputs = inputs_for("", side="none")
    parameters = {name: value.detach() for name, value in theirs.named_parameters()}

    def loss(model: nn.Module, values: dict[str, Tensor], labels: Tensor) -> Tensor:
        return torch.func.functional_call(model, values, kwargs={**inputs, "labels": labels}).loss

    labels = torch.tensor([0, 1] * 3)
    mine, other = (torch.func.grad(loss, argnums=1)(model, parameters, labels) for model in (fast, theirs))
    for name in other:
        torch.testing.assert_close(mine[name], other[name])
    assert counts(fast) == (0, {"torch.func": 1})
    doubled = {name: 2 * value for name, value in parameters.items()}
    torch.testing.assert_close(loss(fast, doubled, labels), loss(theirs, doubled, labels))
    assert counts(fast)[0] == 1  # functional_call alone is served


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_differentiation_works() -> None:
    fast, theirs = pair("BertModel", attn_implementation="eager", _attn_implementation="eager")
    tangents = []
    for model in (fast, theirs):
        with forward_ad.dual_level():
            torch.manual_seed(0)
            vectors = forward_ad.make_dual(torch.randn(B, T, 32), torch.randn(B, T, 32))
            output = model(inputs_embeds=vectors).last_hidden_state
            tangents.append(forward_ad.unpack_dual(output).tangent)
    assert torch.equal(*tangents)
    assert counts(fast) == (0, {"forward-mode differentiation": 1})


def test_a_trace_records_the_untouched_model() -> None:
    fast, theirs = pair("BertModel", return_dict=False)
    inputs = inputs_for("", side="none")
    with torch.no_grad():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.jit.trace(fast, (inputs["input_ids"],), check_trace=False)
        longer = torch.randint(1, V, (2, T))
        torch.testing.assert_close(traced(longer)[0], theirs(longer)[0])
    assert counts(fast)[0] == 0


def test_an_exported_model_is_the_untouched_one() -> None:
    fast, theirs = pair("BertModel")
    inputs = {"input_ids": inputs_for("", side="none")["input_ids"]}
    program = torch.export.export(fast, (), inputs, strict=False)
    torch.testing.assert_close(program.module()(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state)
    assert counts(fast)[0] == 0


def test_compiled_code_is_that_of_the_untouched_model() -> None:
    fast, theirs = pair("BertModel")
    compiled = torch.compile(fast, backend="eager", fullgraph=True)
    inputs = inputs_for("", side="none")
    torch.testing.assert_close(compiled(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state)
    torch._dynamo.reset()
    assert counts(fast) == (0, {})
    fast(**inputs)
    assert bertmill.acceleration(fast).served == 1
