"""The installed version of `transformers` is the one that acceleration was checked with.

If a test here fails after an upgrade, compare `modeling_bert.py` with the shared model and the checks, run Hugging
Face's own tests with accelerated models, and then update the pinned values.
"""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import transformers
from torch import nn
from transformers import masking_utils, modeling_layers
from transformers.models.bert import modeling_bert
from transformers.utils import generic, output_capturing

from bertmill.accelerated import transformers_internals as internals
from tests.accelerated.models import untouched
from tests.model.equality import CLASSES

SOURCES = {
    modeling_bert: "30e9e3794c350b21a2d375878630274fc42dc373142f77cb9ca615377842d288",
    generic: "a97067244e842edc1fcaa77f0b57ea8e81d821105f6fe65311b77ccebf86f897",
    output_capturing: "a188aeb10cca3a3238d7df1d4e3c08b44dac283ba5b8b7a7cafd2d2bbc532e7c",
    masking_utils: "931b92cf0deeb7a4925259a30c905bbf4d645fda88c6eebbc9e61770f5abaa89",
}
PARTS = """
embeddings BertEmbeddings
embeddings.word_embeddings Embedding
embeddings.position_embeddings Embedding
embeddings.token_type_embeddings Embedding
embeddings.LayerNorm LayerNorm
embeddings.dropout Dropout
encoder BertEncoder
encoder.layer ModuleList
encoder.layer.0 BertLayer
encoder.layer.0.attention BertAttention
encoder.layer.0.attention.self BertSelfAttention
encoder.layer.0.attention.self.query Linear
encoder.layer.0.attention.self.key Linear
encoder.layer.0.attention.self.value Linear
encoder.layer.0.attention.self.dropout Dropout
encoder.layer.0.attention.output BertSelfOutput
encoder.layer.0.attention.output.dense Linear
encoder.layer.0.attention.output.LayerNorm LayerNorm
encoder.layer.0.attention.output.dropout Dropout
encoder.layer.0.intermediate BertIntermediate
encoder.layer.0.intermediate.dense Linear
encoder.layer.0.intermediate.intermediate_act_fn GELUActivation
encoder.layer.0.output BertOutput
encoder.layer.0.output.dense Linear
encoder.layer.0.output.LayerNorm LayerNorm
encoder.layer.0.output.dropout Dropout
pooler BertPooler
pooler.dense Linear
pooler.activation Tanh
"""


def test_the_version_and_the_sources_are_those_that_were_checked() -> None:
    assert transformers.__version__ == internals.SUPPORTED
    for module, expected in SOURCES.items():
        assert hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest() == expected, module.__name__


def test_models_have_the_parts_that_the_shared_model_replaces_or_shares() -> None:
    parts = untouched("BertModel", num_hidden_layers=1).named_modules()
    assert [f"{name} {type(module).__name__}" for name, module in parts if name] == PARTS.split("\n")[1:-1]


def test_every_class_is_known_with_its_outputs() -> None:
    assert [cls.__name__ for cls in internals.MODELS] == list(CLASSES)
    for cls, output in internals.MODELS.items():
        named = inspect.signature(cls.forward).return_annotation.__args__[1]
        assert named is output, cls
        assert list(inspect.signature(cls.forward).parameters)[-1] == "kwargs"


def test_layers_have_the_private_names_that_are_read() -> None:
    layer = modeling_bert.BertLayer(transformers.BertConfig())
    assert isinstance(layer, modeling_layers.GradientCheckpointingLayer)
    assert layer.gradient_checkpointing is False
    assert layer.attention.self.is_causal is False
    assert callable(getattr(layer.intermediate, internals.activation_name(layer.intermediate)))
    for name in ("_attn_implementation", "is_decoder", "add_cross_attention", "problem_type", "return_dict"):
        assert hasattr(transformers.BertConfig(), name)
    assert not hasattr(transformers.BertConfig(), "is_causal")


def test_hooks_of_transformers_are_harmless_and_others_are_not() -> None:
    module = nn.Linear(1, 1)
    output_capturing.install_output_capuring_hook(module, "hidden_states", 0)
    (hook,) = module._forward_hooks.values()
    assert internals.is_harmless(hook)
    model = untouched("BertModel")
    model.enable_input_require_grads()
    (hook,) = model.get_input_embeddings()._forward_hooks.values()
    assert internals.is_harmless(hook)

    def output_capturing_hook() -> None: ...

    assert not internals.is_harmless(output_capturing_hook)


def test_no_class_counts_as_patched() -> None:
    assert not internals.PATCHED
    assert internals.has_own_attention("sdpa")
    assert internals.has_own_attention("eager")
