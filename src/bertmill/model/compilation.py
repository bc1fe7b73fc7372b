"""Compile the layers of a model with torch.compile."""

from __future__ import annotations

import logging

from torch import nn

from bertmill.errors import UsageError
from bertmill.model.dropout import draw_outside_compiled_code
from bertmill.model.layers import BertLayer


def compile_layers(model: nn.Module) -> None:
    """Compile the parts of layers around attention with torch.compile.

    If compilation fails, raises UsageError and leaves the model unchanged.
    """
    from torch._dynamo.exc import TorchDynamoException  # imported here because it takes two seconds

    draw_outside_compiled_code()
    layers = [module for module in model.modules() if isinstance(module, BertLayer)]
    was_training, was_disabled = model.training, logging.root.manager.disable
    logging.disable()  # torch logs a hundred lines; our message has the reason
    try:
        model.train()
        for layer in layers:
            layer.compile_parts()
    except TorchDynamoException as error:
        for layer in layers:
            layer.uncompile_parts()
        reason = str(error).partition("\n")[0]
        remedy = "install a C++ compiler and the Python headers (on a GPU: Triton), or set compile to false"
        raise UsageError(f"torch.compile does not work here: {reason}", remedy=remedy) from None
    finally:
        model.train(was_training)
        logging.disable(was_disabled)
