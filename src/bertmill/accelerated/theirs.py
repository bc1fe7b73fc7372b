"""The classes, parts and hooks of `transformers` that acceleration relies on. Most are not part of its public API.

Tests pin every name here and the source behind it, so that a new version of `transformers` fails them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import modeling_outputs as outputs
from transformers.activations import ACT2CLS, GELUActivation, NewGELUActivation
from transformers.models.bert import modeling_bert as modeling

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
CONTAINERS: Final = {
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
# Modules that compute the same for rows of pieces [n, H] as for padded inputs [B, T, H].
LEAVES: Final = {
    nn.Linear,
    nn.Embedding,
    nn.LayerNorm,
    nn.Dropout,
    nn.Identity,
    nn.ModuleList,
    nn.ModuleDict,
    nn.ParameterDict,
    *(each[0] if isinstance(each, tuple) else each for each in ACT2CLS.values()),
}
ADAPTERS: Final = ("peft.tuners.lora.", "peft.utils.other")  # the same, by the start of the module's name
ACTIVATIONS: Final = ("intermediate_act_fn", "transform_act_fn")  # attributes; their values may be of any kind

# Functions that compute the same as activations of `transformers`, in one call.
_IN_ONE_CALL: dict[type, Callable[[Tensor], Tensor]] = {
    GELUActivation: F.gelu,
    NewGELUActivation: partial(F.gelu, approximate="tanh"),
    nn.ReLU: F.relu,
}

# Hooks that may stay: they collect outputs only while a call asks for them, or let gradients flow through embeddings
# that are frozen.
_HARMLESS_HOOKS = ("output_capturing_hook", "make_inputs_require_grads", "make_inputs_require_grad")


def activation(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the activation of a feed-forward layer or MLM head."""
    found = next(getattr(module, name) for name in ACTIVATIONS if hasattr(module, name))
    chosen: Callable[[Tensor], Tensor] = _IN_ONE_CALL.get(type(found), found)
    return chosen


def is_harmless(hook: object) -> bool:
    """Whether a forward hook has no effect on the calls that bertmill serves, or the same as without bertmill."""
    return getattr(hook, "__name__", "") in _HARMLESS_HOOKS and str(getattr(hook, "__module__", "")).startswith(
        ("transformers.", "peft.")
    )
