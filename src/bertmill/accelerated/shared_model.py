"""A bertmill model built around the modules of a `transformers` model, which computes in its place.

Linear layers, embeddings and LayerNorms are the same objects in both models. So nothing needs to be done when
parameters are converted, moved, loaded or resized, and a module that replaces one of these (LoRA) is called. Containers
and dropouts are bertmill's. Before every call, what they depend on is copied from the model (training mode, p,
activations, gradient checkpointing) or checked to be unchanged (buffers, attributes of attention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertmill.accelerated import transformers_internals as internals
from bertmill.accelerated.checks import NotServed, check_forwards, check_module_types, check_parameters, forwards_of
from bertmill.errors import UsageError
from bertmill.model import bert
from bertmill.model.config import BertConfig
from bertmill.model.dropout import Dropout
from bertmill.model.encoder import BertEncoder, BertPooler
from bertmill.model.heads import BertPredictionHeadTransform, BertWithMaskedLM
from bertmill.model.layers import BertIntermediate

# Buffers of the embeddings of a `transformers` model, as functions of their length.
_EXPECTED_BUFFERS: dict[str, Callable[..., Tensor]] = {"position_ids": torch.arange, "token_type_ids": torch.zeros}


class SharedModel:
    """Computes the outputs of `model`. It is valid as long as the modules of `model` are `modules`."""

    def __init__(self, model: Any, modules: Sequence[nn.Module], compute_padding: bool) -> None:
        check_module_types(model)
        self._forwards = forwards_of(modules)
        self.modules = modules
        self._parameters = [module._parameters for module in modules if module._parameters]
        cls = getattr(bert, type(model).__name__)
        body = getattr(model, model.base_model_prefix, model)
        config = BertConfig(
            hidden_size=model.config.hidden_size,
            num_hidden_layers=len(body.encoder.layer),
            num_attention_heads=model.config.num_attention_heads,
        )
        self._attentions = [layer.attention.self.__dict__ for layer in body.encoder.layer]
        self._head_size = config.hidden_size // config.num_attention_heads
        self._buffers = body.embeddings._buffers
        self._checked_buffers: dict[str, tuple[Tensor, int]] = {}  # with their versions
        named = dict(model.named_modules(remove_duplicate=False))
        parts = {"add_pooling_layer": model.pooler is not None} if cls is bert.BertModel else {}
        try:
            self._ours = cls.from_modules(config, named, **parts)
        except UsageError:
            raise NotServed("missing or wrapped modules") from None
        self._ours.compute_padding = compute_padding
        self._model, self._layers = model, body.encoder.layer
        self._encoder = next(module for module in self._ours.modules() if isinstance(module, BertEncoder))
        self._dropouts: list[tuple[Dropout, nn.Dropout, nn.Module]] = []  # ours, the one with p, the one with the mode
        self._functions: list[tuple[Any, nn.Module, str]] = []  # our module, the original, the name of its activation
        for name, module in self._ours.named_modules():
            if isinstance(module, Dropout):
                self._add_dropout(module, name, named)
            elif isinstance(module, BertIntermediate | BertPredictionHeadTransform | BertPooler):
                self._add_activation(module, named[name])

    def _add_dropout(self, ours: Dropout, name: str, named: dict[str, nn.Module]) -> None:
        its = named.get(name)
        if type(its) is not nn.Dropout:
            raise NotServed(f"{name} is not a Dropout")
        parent = named[name.rpartition(".")[0]]
        # Attention reads p, but not the mode, from its dropout.
        self._dropouts.append((ours, its, parent if type(parent) is internals.BertSelfAttention else its))

    def _add_activation(
        self, ours: BertIntermediate | BertPredictionHeadTransform | BertPooler, its: nn.Module
    ) -> None:
        name = internals.activation_name(its)
        ours.activation = internals.in_one_call(getattr(its, name))
        if name not in its._modules:  # a function, which may be replaced without changing the modules
            self._functions.append((ours, its, name))

    def __call__(self, inputs: dict[str, Tensor], states: bool, keep_logits: bool) -> Any:
        """Return the outputs for `inputs` as the `transformers` class does; with hidden states if `states`."""
        check_parameters(self._parameters)
        check_forwards(self._forwards)
        self._check_attributes()
        self._mirror()
        model = self._model
        arguments: dict[str, Any] = dict(inputs)
        if isinstance(self._ours, bert.BertForPreTraining) and not {"labels", "next_sentence_label"} <= inputs.keys():
            for name in ("labels", "next_sentence_label"):  # they compute a loss only if both are given
                arguments.pop(name, None)
        if isinstance(self._ours, bert.BertForSequenceClassification) and "labels" in inputs:
            self._resolve_problem_type(inputs["labels"])
        if isinstance(self._ours, BertWithMaskedLM):
            arguments["output_logits"] = True if keep_logits else None
        outputs = dict(self._ours(**arguments, output_attentions=False, output_hidden_states=states, return_dict=True))
        if states and isinstance(self._ours, bert.BertModel):
            outputs["hidden_states"] = (*outputs["hidden_states"][:-1], outputs["last_hidden_state"])  # one object
        return internals.MODELS[type(model)](**outputs)

    def _check_attributes(self) -> None:
        """Check that attributes and buffers which bertmill does not read have their initial values."""
        for own in self._attentions:
            if own["is_causal"]:
                raise NotServed("a decoder or causal attention")
            if own["attention_head_size"] != self._head_size or own["scaling"] != self._head_size**-0.5:
                raise NotServed("a changed head size or scaling of attention")
        for name, expected in _EXPECTED_BUFFERS.items():
            buffer, checked = self._buffers.get(name), self._checked_buffers.get(name)
            if buffer is None or buffer.is_meta:
                raise NotServed(f"a changed buffer {name}")
            if checked is None or buffer is not checked[0] or _version(buffer) != checked[1]:
                if not bool((buffer == expected(buffer.shape[-1], device=buffer.device)).all()):
                    raise NotServed(f"a changed buffer {name}")
                self._checked_buffers[name] = buffer, _version(buffer)

    def _mirror(self) -> None:
        self._ours.training = self._model.training
        for ours, its, mode in self._dropouts:
            if ours.p != its.p:
                if its.p >= 1:
                    raise NotServed("dropout of all elements")
                ours.p = its.p
            if ours.training != mode.training:
                ours.training = mode.training
        for module, owner, name in self._functions:
            module.activation = getattr(owner, name)
        self._encoder.training = self._encoder.gradient_checkpointing = self._uses_checkpointing()

    def _uses_checkpointing(self) -> bool:
        """Whether gradient checkpointing is on, for all layers and with torch's function."""
        checkpointed = [layer for layer in self._layers if layer.gradient_checkpointing and layer.training]
        if checkpointed and len(checkpointed) < len(self._layers):
            raise NotServed("gradient checkpointing of some layers")
        functions = (layer._gradient_checkpointing_func for layer in checkpointed)
        if any(getattr(function, "func", function) is not checkpoint for function in functions):
            raise NotServed("a custom gradient checkpointing function")  # such as that of offload=True
        return bool(checkpointed)

    def _resolve_problem_type(self, labels: Tensor) -> None:
        """Choose the loss as they do, and write the choice to the config as they do."""
        config = self._model.config
        if config.problem_type is None:
            if self._model.num_labels == 1:
                config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                config.problem_type = "single_label_classification"
            else:
                config.problem_type = "multi_label_classification"
        if self._ours.config.problem_type != config.problem_type:
            self._ours.config.problem_type = config.problem_type


def _version(tensor: Tensor) -> int:
    """Return a number that changes when `tensor` is changed in place."""
    return 0 if tensor.is_inference() else tensor._version
