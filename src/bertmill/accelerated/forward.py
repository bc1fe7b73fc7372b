"""The forward of accelerated models, and what they keep: options, shared model and counts.

The forward is a bound function in the dict of the instance, under its old name and with its old signature. So deepcopy
binds it to the copy, pickling gives back a plain model, and Trainer and pipelines find the arguments they look for. It
hands a call to the shared model, or to the class's own forward if that cannot serve it.
"""

from __future__ import annotations

import inspect
import warnings
from collections import Counter
from types import MethodType
from typing import Any

import torch
from torch import nn

from bertmill.accelerated import STATE
from bertmill.accelerated.checks import SETTINGS, NotServed, check_call, check_hooks, modules_of
from bertmill.accelerated.shared_model import SharedModel
from bertmill.errors import BertmillError, UsageError

_REPLICATE = "_replicate_for_data_parallel"
_forwards: dict[type, Any] = {}  # by class


class State:
    """The options, shared model and counts of an accelerated model."""

    def __init__(self, logits: bool, compute_padding: bool) -> None:
        self.logits = logits
        self.compute_padding = compute_padding
        self.served = 0
        self.fallbacks: Counter[str] = Counter()
        self._shared_model: SharedModel | None = None

    def __deepcopy__(self, memo: object) -> State:
        return State(self.logits, self.compute_padding)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()  # a pickled model is a plain one, which can be read without bertmill

    def serve(self, model: Any, given: dict[str, Any]) -> Any:
        """Return the outputs of `model` for the arguments `given`, or raise NotServed."""
        config = model.config
        # As in transformers, an explicit None means no.
        states = given.get("output_hidden_states", config.output_hidden_states)
        weights = given.get("output_attentions", config.output_attentions)
        inputs = {name: value for name, value in given.items() if value is not None and name not in SETTINGS}
        check_call(model, inputs, states, weights)
        modules = modules_of(model)
        check_hooks(model, modules, _forwards)
        shared = self._shared_model
        if shared is None or shared.modules != modules:
            shared = self._shared_model = SharedModel(model, modules, self.compute_padding)
        outputs = shared(inputs, bool(states), self.logits)
        self.served += 1
        return outputs if _wants_dict(model, given) else outputs.to_tuple()

    def record_fallback(self, why: NotServed, model: nn.Module) -> None:
        """Count a call that the model's own forward computes. The first one warns."""
        if not self.fallbacks:
            reason = why.reason if why.details is None else f"{why.reason} ({why.details})"
            message = f"this {type(model).__name__} call is not accelerated: {reason}; see bertmill.acceleration(model)"
            warnings.warn(message, stacklevel=5)  # the line that calls the model
        self.fallbacks[why.reason] += 1


def state_of(model: nn.Module) -> State | None:
    """Return the state of an accelerated model, None for others."""
    return model.__dict__.get(STATE)


def check_own_forward(model: nn.Module) -> None:
    """Raise UsageError if another library has replaced the forward of `model`."""
    cls = type(model)
    own = model.__dict__.get("forward")
    if own is not None and getattr(own, "__func__", own) not in (cls.forward, _forwards.get(cls)):
        what = f"the forward of {cls.__name__} was replaced by another library"
        raise UsageError(what, where="accelerate", remedy="accelerate the model before that")


def install(model: nn.Module, state: State) -> None:
    """Give `model` the accelerated forward."""
    cls = type(model)
    model.__dict__[STATE] = state
    model.__dict__["forward"] = MethodType(_forward_of(cls), model)
    model.__dict__[_REPLICATE] = MethodType(_replicate_for_data_parallel, model)


def uninstall(model: nn.Module) -> None:
    """Give `model` its own forward back."""
    own = model.__dict__
    if getattr(own.get("forward"), "__func__", None) is _forwards.get(type(model)):
        del own["forward"]  # otherwise, another library wrapped it; without a state, it changes nothing
    for name in (STATE, _REPLICATE):
        own.pop(name, None)


def _forward_of(cls: type[nn.Module]) -> Any:
    if cls in _forwards:
        return _forwards[cls]
    signature = inspect.signature(cls.forward)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        state = state_of(self)
        # Not counted while compiling, because the counts would become conditions of the compiled code.
        if state is not None and not torch.compiler.is_compiling():
            why, outputs = _served(state, self, signature, args, kwargs)
            if why is None:
                return outputs
            state.record_fallback(why, self)
        return cls.forward(self, *args, **kwargs)  # looked up now, because the class may be patched

    # Not functools.wraps: libraries that unwrap a model follow `__wrapped__` back to the original.
    forward.__signature__, forward.__doc__ = signature, cls.forward.__doc__  # type: ignore[attr-defined]
    _forwards[cls] = forward
    return forward


def _served(
    state: State, model: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[NotServed | None, Any]:
    """Return why the call cannot be served, or None and the outputs."""
    try:
        given = signature.bind(model, *args, **kwargs).arguments
    except TypeError:
        return NotServed("arguments that do not fit the signature"), None
    given |= given.pop("kwargs", {})
    del given["self"]
    try:
        return None, state.serve(model, given)
    except NotServed as why:
        return why, None
    except BertmillError as error:  # ids out of range, shapes that do not fit, pruned heads
        return NotServed("unsupported inputs or layers", error.what), None


def _wants_dict(model: Any, given: dict[str, Any]) -> bool:
    wanted = given.get("return_dict", model.config.return_dict)
    if wanted is None:  # a model with a head asks its config, as if nothing was given; BertModel does not
        return model.base_model is model or bool(model.config.return_dict)
    return bool(wanted)


def _replicate_for_data_parallel(self: Any) -> Any:
    """Replicas of DataParallel compute for themselves; a bound forward would call the original."""
    replica = type(self)._replicate_for_data_parallel(self)
    uninstall(replica)
    return replica
