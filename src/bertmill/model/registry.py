"""The model classes that a model folder can name as its architecture."""

from __future__ import annotations

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
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.model.probe import BertForSequenceProbe, BertForWordProbe

MODEL_CLASSES: dict[str, type[BertPreTrainedModel]] = {
    model.__name__: model
    for model in (
        BertModel,
        BertForPreTraining,
        BertForMaskedLM,
        BertForNextSentencePrediction,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertForQuestionAnswering,
        BertForMultipleChoice,
        BertForSequenceProbe,
        BertForWordProbe,
    )
}


def class_of(config: BertConfig) -> type[BertPreTrainedModel]:
    """Return the class that a model folder names as its architecture, or `BertModel` if it names none of these."""
    named = [MODEL_CLASSES[name] for name in config.architectures or [] if name in MODEL_CLASSES]
    return named[0] if named else BertModel
