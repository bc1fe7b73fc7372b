"""Build BERT models from text, fine-tune them, and run them.

Public names are imported on first use, so `import bertmill` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bertmill.version import __version__

if TYPE_CHECKING:
    from bertmill.accelerated.replacement import accelerate, acceleration
    from bertmill.inference.predictor import load
    from bertmill.model.bert import (
        BertForMaskedLM,
        BertForMultipleChoice,
        BertForNextSentencePrediction,
        BertForPreTraining,
        BertForQuestionAnswering,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertModel,
    )
    from bertmill.model.config import BertConfig
    from bertmill.model.dropout import keyed_dropout
    from bertmill.model.packing import PackedBatch
    from bertmill.model.pretrained import BertPreTrainedModel
    from bertmill.text.tokenizer import BertTokenizer, BertTokenizerFast
    from bertmill.training.from_python import finetune

_HOMES = {
    "BertConfig": "bertmill.model.config",
    "BertForMaskedLM": "bertmill.model.bert",
    "BertForMultipleChoice": "bertmill.model.bert",
    "BertForNextSentencePrediction": "bertmill.model.bert",
    "BertForPreTraining": "bertmill.model.bert",
    "BertForQuestionAnswering": "bertmill.model.bert",
    "BertForSequenceClassification": "bertmill.model.bert",
    "BertForTokenClassification": "bertmill.model.bert",
    "BertModel": "bertmill.model.bert",
    "BertPreTrainedModel": "bertmill.model.pretrained",
    "BertTokenizer": "bertmill.text.tokenizer",
    "BertTokenizerFast": "bertmill.text.tokenizer",
    "PackedBatch": "bertmill.model.packing",
    "accelerate": "bertmill.accelerated.replacement",
    "acceleration": "bertmill.accelerated.replacement",
    "finetune": "bertmill.training.from_python",
    "keyed_dropout": "bertmill.model.dropout",
    "load": "bertmill.inference.predictor",
}

__all__ = [
    "BertConfig",
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "BertPreTrainedModel",
    "BertTokenizer",
    "BertTokenizerFast",
    "PackedBatch",
    "__version__",
    "accelerate",
    "acceleration",
    "finetune",
    "keyed_dropout",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertmill' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
