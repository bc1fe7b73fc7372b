"""A model whose modules were changed or are watched gives what its own forward computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.models.bert import modeling_bert
from transformers.pytorch_utils import prune_linear_layer

from tests.accelerated.models import assert_falls_back, counts, inputs_for, pair, served_or_not

pytestmark = pytest.mark.filterwarnings("ignore:this .* call is not accelerated")


class Recorded(nn.Module):
    """A layer of a kind that bertmill does not know."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, states: Tensor) -> Tensor:
        self.shapes.append(tuple(states.shape))
        return self.inner(states)


def replace_a_layer(model: Any) -> None:
    model.bert.encoder.layer[0].output.dense = Recorded(model.bert.encoder.layer[0].output.dense)


def replace_the_feed_forward_layer(model: Any) -> None:
    model.bert.encoder.layer[0].feed_forward_chunk = lambda states: states


def prune_a_layer(model: Any) -> None:
    from torch.nn.utils import prune

    prune.l1_unstructured(model.bert.encoder.layer[0].output.dense, "weight", 0.5)


def parametrize_a_layer(model: Any) -> None:
    torch.nn.utils.parametrizations.weight_norm(model.bert.encoder.layer[0].output.dense)


def prune_a_head(model: Any) -> None:
    attention = model.bert.encoder.layer[0].attention
    kept = torch.arange(attention.self.attention_head_size, attention.self.all_head_size)
    for name in ("query", "key", "value"):
        setattr(attention.self, name, prune_linear_layer(getattr(attention.self, name), kept))
    attention.output.dense = prune_linear_layer(attention.output.dense, kept, dim=1)


def quantize(model: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, but in use
        torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)


def replace_a_forward(model: Any) -> None:
    layer = model.bert.encoder.layer[1]
    layer.forward = lambda states, *args, **kwargs: type(layer).forward(layer, states, *args, **kwargs) * 2


def scale_attention(model: Any) -> None:
    model.bert.encoder.layer[0].attention.self.scaling = 1.0


def reverse_positions(model: Any) -> None:
    buffer = model.bert.embeddings.position_ids
    model.bert.embeddings.position_ids = buffer.flip(1)


def change_default_segments(model: Any) -> None:
    model.bert.embeddings.token_type_ids.fill_(1)


def drop_everything(model: Any) -> None:
    model.bert.encoder.layer[0].output.dropout.p = 1.0


def hook_a_layer(how: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        getattr(model.bert.encoder.layer[0].output.dense, how)(lambda *args: None)

    return change


DENSE = "bert.encoder.layer.0.output.dense"
QUERY = "bert.encoder.layer.0.attention.self.query"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hook_a_layer("register_forward_hook"), f"a hook on {DENSE}"),
        (hook_a_layer("register_forward_pre_hook"), f"a hook on {DENSE}"),
        (hook_a_layer("register_full_backward_hook"), f"a hook on {DENSE}"),
        (hook_a_layer("register_full_backward_pre_hook"), f"a hook on {DENSE}"),
        (replace_a_forward, "a replaced forward of bert.encoder.layer.1"),
        (replace_the_feed_forward_layer, "a replaced feed_forward_chunk of bert.encoder.layer.0"),
        (replace_a_layer, f"{DENSE} is a {__name__}.Recorded"),
        (prune_a_layer, f"a hook on {DENSE}"),
        (prune_a_head, "unsupported inputs or layers"),
        (quantize, f"{QUERY} is a torch.ao.nn.quantized.dynamic.modules.linear.Linear"),
        (scale_attention, "a changed head size or scaling of attention"),
        (reverse_positions, "a changed buffer position_ids"),
        (change_default_segments, "a changed buffer token_type_ids"),
        (drop_everything, "dropout of all elements"),
        (parametrize_a_layer, f"{DENSE} is a torch.nn.utils.parametrize.ParametrizedLinear"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_changed_module_is_respected(change: Callable[[Any], None], reason: str) -> None:
    fast, theirs = pair("BertForSequenceClassification")
    fast(**inputs_for(""))
    change(fast)
    change(theirs)
    assert_falls_back(fast, theirs, reason)


def test_weights_without_data_are_left_to_the_untouched_model() -> None:
    fast, _ = pair("BertForSequenceClassification")
    fast.bert.encoder.layer[0].attention.self.query.to("meta")
    assert served_or_not(fast) == (0, {"parameters that are not plain tensors": 1})


def test_a_pooler_without_its_linear_layer_is_left_to_the_untouched_model() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    for model in (fast, theirs):
        model.bert.pooler = nn.Sequential()
        model.bert.pooler.forward = lambda states: states[:, 0]
    assert_falls_back(fast, theirs, "a replaced forward of bert.pooler")


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_hooks_of_the_model_itself_run_without_a_fallback() -> None:
    fast, _ = pair("BertForSequenceClassification")
    seen: list[str] = []
    fast.register_forward_hook(lambda module, args, output: seen.append("forward"))
    fast.register_full_backward_pre_hook(lambda module, above: seen.append("backward"))
    fast(**inputs_for(""), labels=torch.tensor([0, 1] * 3), return_dict=False)[0].backward()
    assert seen == ["forward", "backward"]
    assert counts(fast) == (1, {})


def test_a_hook_on_all_modules_sees_them() -> None:
    fast, _ = pair("BertModel")
    seen: set[type] = set()
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, output: seen.add(type(module)))
    try:
        fast(**inputs_for(""))
    finally:
        hook.remove()
    assert transformers.models.bert.modeling_bert.BertLayer in seen
    assert counts(fast) == (0, {"a global module hook": 1})


def test_the_hooks_that_transformers_installs_itself_do_not_stop_acceleration() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    with torch.no_grad():
        fast(**inputs_for(""), output_hidden_states=True)
        theirs(**inputs_for(""), output_hidden_states=True)
    fast.set_attn_implementation("eager")
    fast(**inputs_for(""), output_attentions=True)  # installs hooks
    fast.enable_input_require_grads()
    fast(**inputs_for(""))
    assert counts(fast) == (2, {"output_attentions": 1})


def test_gradient_checkpointing_of_some_layers_is_left_to_the_untouched_model() -> None:
    fast, theirs = pair("BertForSequenceClassification")
    for model in (fast, theirs):
        model.gradient_checkpointing_enable(every_n_layers=2)
    fast(**inputs_for(""))  # layers run once in evaluation mode
    assert counts(fast) == (1, {})
    assert_falls_back(fast.train(), theirs.train(), "gradient checkpointing of some layers")


def test_gradient_checkpointing_with_offloading_is_left_to_the_untouched_model() -> None:
    fast, _ = pair("BertForSequenceClassification")
    fast.train().gradient_checkpointing_enable(offload=True)
    # Without an accelerator, the untouched model cannot pin memory.
    assert served_or_not(fast) == (0, {"a custom gradient checkpointing function": 1})


@pytest.mark.parametrize("name", ["BertSelfAttention", "BertForSequenceClassification"])
def test_a_patched_forward_of_a_class_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, theirs = pair("BertForSequenceClassification")
    fast(**inputs_for(""))
    cls = getattr(modeling_bert, name)
    original, calls = cls.forward, []

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(cls, "forward", forward)
    assert_falls_back(fast, theirs, f"a patched forward of {name}")
    assert len(calls) == (4 if name == "BertSelfAttention" else 2)  # by both models
    monkeypatch.undo()
    fast(**inputs_for(""))
    assert counts(fast)[0] == 2


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_registered_attention_function_is_called(implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, theirs = pair("BertModel", _attn_implementation=implementation)
    fast(**inputs_for(""))
    calls = []

    def attention(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return modeling_bert.eager_attention_forward(*args, **kwargs)

    mapping = {**transformers.AttentionInterface._global_mapping, implementation: attention}
    monkeypatch.setattr(transformers.AttentionInterface, "_global_mapping", mapping)
    assert_falls_back(fast, theirs, "a custom attention function", attention_mask=None)
    assert calls


def test_a_registered_mask_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, theirs = pair("BertModel")
    masks = transformers.AttentionMaskInterface
    monkeypatch.setattr(masks, "_global_mapping", {**masks._global_mapping, "sdpa": lambda *_, **__: None})
    assert_falls_back(fast, theirs, "a custom attention function")
