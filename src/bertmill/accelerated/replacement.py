"""`accelerate(model)`: a `transformers` BERT model runs on bertmill's kernels and otherwise stays unchanged."""

from __future__ import annotations

import warnings
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from bertmill.accelerated import STATE
from bertmill.errors import UsageError

if TYPE_CHECKING:
    from bertmill.accelerated.forward import State

Model = TypeVar("Model")


def accelerate(model: Model, *, logits: bool = True, compute_padding: bool = False) -> Model:
    """Run a `transformers` BERT model on bertmill's kernels, in place, and return it.

    `model` may also contain such models: one with a head of your own, a PeftModel, a SentenceTransformer. Calls that
    bertmill cannot serve are computed as before; `acceleration(model)` lists them.

    - `logits`: whether models with an MLM head return logits in training mode with labels. Without them, a step is
      faster and needs less memory.
    - `compute_padding`: whether outputs at masked positions are those of `transformers`. By default they are zeros,
      which is faster.
    """
    for name, value in (("logits", logits), ("compute_padding", compute_padding)):
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be True or False, not {value!r}", where="accelerate")
    found = _bert_models(model)
    from bertmill.accelerated.forward import State, check_own_forward, install

    _warn_about_version()
    for each in found:
        check_own_forward(each)
    for each in found:
        install(each, State(logits, compute_padding))
    return model


def acceleration(model: Any) -> Acceleration:
    """Return the report of an accelerated model, or of a model that contains accelerated ones."""
    found = Acceleration(model)
    if not found.models:
        raise UsageError("this model is not accelerated", where="acceleration", remedy="call accelerate(model) first")
    return found


class Acceleration:
    """How many calls bertmill computed, and why `transformers` computed the others.

    `models` are the accelerated models.
    """

    def __init__(self, model: Any) -> None:
        modules = model.modules() if isinstance(model, nn.Module) else ()
        self.models = [each for each in modules if each.__dict__.get(STATE) is not None]

    @property
    def served(self) -> int:
        """Number of calls that bertmill computed."""
        return sum(state.served for state in self._states())

    @property
    def fallbacks(self) -> dict[str, int]:
        """Number of calls that `transformers` computed, by reason; most frequent first."""
        counts = sum((state.fallbacks for state in self._states()), Counter[str]())
        return dict(counts.most_common())

    def remove(self) -> None:
        """Give the models their own forward back."""
        from bertmill.accelerated.forward import uninstall

        for model in self.models:
            uninstall(model)
        self.models = []

    def __repr__(self) -> str:
        return f"Acceleration(served={self.served}, fallbacks={self.fallbacks})"

    def _states(self) -> list[State]:
        return [model.__dict__[STATE] for model in self.models]


@cache
def _warn_about_version() -> None:
    """Warn, once, if the installed version of `transformers` is not the one that acceleration was tested with."""
    import transformers

    from bertmill.accelerated.transformers_internals import SUPPORTED

    if transformers.__version__ != SUPPORTED:
        message = (
            f"bertmill.accelerate was tested with transformers {SUPPORTED}, "
            f"but {transformers.__version__} is installed; results may differ"
        )
        warnings.warn(message, stacklevel=3)  # the line that calls accelerate


def _bert_models(model: Any) -> list[nn.Module]:
    """Return the outermost `transformers` BERT models in `model`."""
    try:
        from bertmill.accelerated import transformers_internals as internals
    except (ImportError, AttributeError) as error:  # not installed, or a version with other private names
        what = f"requires transformers 5.22.2 ({error})"
        raise UsageError(what, where="accelerate", remedy="pip install transformers==5.22.2") from None
    found, below = [], [model] if isinstance(model, nn.Module) else []
    for each in below:  # grows during the loop
        if type(each) in internals.MODELS:
            found.append(each)
        else:
            below.extend(each.children())
    if not found:
        names = ", ".join(each.__name__ for each in internals.MODELS)
        what = f"{type(model).__name__} contains no transformers BERT model that bertmill can accelerate"
        raise UsageError(what, where="accelerate", remedy=f"pass one of {names}, or a model that contains one")
    return found
