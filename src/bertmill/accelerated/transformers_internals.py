"""The `transformers` classes, modules and hooks that acceleration relies on. Most are not part of its public API.

Tests pin every name here and the source behind it, so that a new version of `transformers` fails them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import masking_utils
from transformers import modeling_outputs as outputs
from transformers.activations import ACT2CLS, GELUActivation, NewGELUActivation
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert import modeling_bert as modeling
from transformers.models.bert.modeling_bert import BertSelfAttention as BertSelfAttention

SUPPORTED: Final = "5.22.2"  # the version of transformers that acceleration was tested with

# The classes to accelerate, and the class of their outputs.
MODELS: Final[dict[type[nn.Module], Callable[..., Any]]] = {
    modeling.BertModel: outputs.BaseModelOutputWithPoolingAndCrossAttentions,
    modeling.BertForPreTraining: modeling.BertForPreTrainingOutput,
    modeling.BertForMaskedLM: outputs.MaskedLMOutput,
    modeling.BertForNextSentencePrediction: outputs.NextSentencePredictorOutput,
    modeling.BertForSequenceClassification: outputs.SequenceClassifierOutput,
    modeling.BertForTokenClassification: outputs.TokenClassifierOutput,
    modeling.BertForQuestionAnswering: outputs.QuestionAnsweringModelOutput,
    modeling.BertForMultipleChoice: outputs.MultipleChoiceModelOutput,
}

# Modules whose computation bertmill replaces.
CONTAINERS: Final[set[type[nn.Module]]] = {
    modeling.BertModel,
    modeling.BertEmbeddings,
    modeling.BertEncoder,
    modeling.BertLayer,
    modeling.BertAttention,
    modeling.BertSelfAttention,
    modeling.BertSelfOutput,
    modeling.BertIntermediate,
    modeling.BertOutput,
    modeling.BertPooler,
    modeling.BertPredictionHeadTransform,
    modeling.BertLMPredictionHead,
    modeling.BertOnlyMLMHead,
    modeling.BertOnlyNSPHead,
    modeling.BertPreTrainingHeads,
}
_ACTIVATION_CLASSES: Any = [each[0] if isinstance(each, tuple) else each for each in ACT2CLS.values()]
# Modules that compute the same for rows of pieces [n, H] as for padded inputs [B, T, H].
LEAVES: Final[set[type[nn.Module]]] = {
    nn.Linear,
    nn.Embedding,
    nn.LayerNorm,
    nn.Dropout,
    nn.Identity,
    nn.ModuleList,
    nn.ModuleDict,
    nn.ParameterDict,
    *_ACTIVATION_CLASSES,
}
# The same, by the names of their modules and classes; None: any class.
_ADAPTERS: Final[dict[str, tuple[str, ...] | None]] = {
    "peft.tuners.lora.layer": None,
    "peft.tuners.lora.dora": None,
    "peft.utils.other": ("ModulesToSaveWrapper",),
}
_ADAPTER_VARIANTS: Final = ("DoraLinearVariant", "DoraEmbeddingVariant")  # values of a LoRA layer's `lora_variant`
# Attributes with an activation, which may be any module or function.
ACTIVATIONS: Final = ("intermediate_act_fn", "transform_act_fn", "activation")

# The forwards that the checks assume, and the classes whose forward was replaced before this module was imported.
_KNOWN: tuple[type[nn.Module], ...] = (*MODELS, *CONTAINERS, *LEAVES)
FORWARDS: Final[dict[type[nn.Module], Callable[..., Any]]] = {cls: cls.forward for cls in _KNOWN}
PATCHED: Final = {cls for cls in (*MODELS, *CONTAINERS) if FORWARDS[cls].__qualname__ != f"{cls.__qualname__}.forward"}
_ATTENTION: Final = {"sdpa": sdpa_attention_forward, "eager": modeling.eager_attention_forward}
_MASKS: Final = {"sdpa": masking_utils.sdpa_mask, "eager": masking_utils.eager_mask}

# Functions that compute the same as `transformers` activations, in one call.
_IN_ONE_CALL: dict[type, Callable[[Tensor], Tensor]] = {
    GELUActivation: F.gelu,
    NewGELUActivation: partial(F.gelu, approximate="tanh"),
    nn.ReLU: F.relu,
    nn.Tanh: torch.tanh,
}

# Hooks that may stay: they collect outputs only while a call asks for them, or let gradients flow through embeddings
# that are frozen.
_HARMLESS_HOOKS = ("output_capturing_hook", "make_inputs_require_grads", "make_inputs_require_grad")


def activation_name(module: nn.Module) -> str:
    """Return the name of the attribute of a feed-forward layer, MLM head or pooler that is its activation."""
    return next(name for name in ACTIVATIONS if hasattr(module, name))


def in_one_call(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a faster function that computes the same as `activation`, if there is one."""
    return _IN_ONE_CALL.get(type(activation), activation)


def is_adapter(module: nn.Module) -> bool:
    """Whether `module` belongs to LoRA or DoRA, or is a wrapper of a module that is trained in full."""
    module_type = type(module)
    if module_type.__module__ not in _ADAPTERS:
        return False
    names = _ADAPTERS[module_type.__module__]
    variants = getattr(module, "lora_variant", {}).values()
    return (names is None or module_type.__name__ in names) and all(
        (each if isinstance(each, type) else type(each)).__name__ in _ADAPTER_VARIANTS for each in variants
    )


def has_own_attention(implementation: str) -> bool:
    """Whether attention and masks of this implementation are computed by `transformers`' own functions."""
    function = ALL_ATTENTION_FUNCTIONS.get(implementation, modeling.eager_attention_forward)
    mask = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS.get(implementation)
    return function is _ATTENTION[implementation] and mask is _MASKS[implementation]


def is_harmless(hook: object) -> bool:
    """Whether a forward hook has no effect on the calls that bertmill serves, or the same as without bertmill."""
    return getattr(hook, "__name__", "") in _HARMLESS_HOOKS and str(getattr(hook, "__module__", "")).startswith(
        ("transformers.", "peft.")
    )
