"""The public models: BERT alone and with each of its heads, called as Hugging Face's classes of the same names.

A call takes padded tensors (Hugging Face's arguments; a packed batch is made of them, and the outputs are padded
again) or, as its first argument, a `PackedBatch`, which training and inference use: then labels per piece and
outputs per piece are flat, in the order of the batch. Padded or packed, the same numbers come out, but for what
Hugging Face reads off masked positions of a padded batch: the first column under left padding (the pooler), labels
there, and the softmax of a span over all columns. These we compute as they do; other masked positions are not
computed and come back as zeros (span logits: very low).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.dropout import Dropout
from bertmill.model.encoder import BertEmbeddings, BertEncoder, BertPooler, Encoded
from bertmill.model.heads import (
    BertLMPredictionHead,
    BertOnlyMLMHead,
    BertOnlyNSPHead,
    BertPreTrainingHeads,
    classification_loss,
    selected,
    span_loss,
)
from bertmill.model.outputs import (
    NOWHERE,
    BodyOutput,
    ModelOutput,
    PieceOutput,
    PreTrainingOutput,
    SequenceOutput,
    SpanOutput,
)
from bertmill.model.packing import IGNORED_LABEL, PackedBatch, padding_of, plan_layout, the_given, unpad
from bertmill.model.pretrained import BertPreTrainedModel


class _CallableModel(BertPreTrainedModel):
    """The call that all models share; a model says what it does with a packed batch in `_run`."""

    TARGETS: ClassVar[tuple[str, ...]] = ("labels",)  # in Hugging Face's order of positional arguments
    LABELS_PER_PIECE: ClassVar[bool] = False
    READS_FIRST_COLUMN: ClassVar[bool] = True

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        *positional_targets: Tensor | None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **targets: Any,
    ) -> ModelOutput | tuple[Any, ...]:
        """Padded tensors [B, T] or a `PackedBatch`; `targets` are the further arguments that this class takes."""
        if len(positional_targets) > len(self.TARGETS):
            raise TypeError(f"this model takes {', '.join(self.TARGETS)} after inputs_embeds, and no more")
        targets = {**dict(zip(self.TARGETS, positional_targets, strict=False)), **targets}
        labels = targets.pop("labels", None)
        wishes = {
            "want_states": self.config.output_hidden_states if output_hidden_states is None else output_hidden_states,
            "want_weights": self.config.output_attentions if output_attentions is None else output_attentions,
        }
        if isinstance(input_ids, PackedBatch):
            if any(each is not None for each in (attention_mask, token_type_ids, position_ids, inputs_embeds)):
                raise UsageError("a packed batch brings its own segments, positions and embeddings")
            if self.LABELS_PER_PIECE and labels is not None and labels.shape != (input_ids.num_pieces,):
                raise UsageError(
                    f"labels have the shape {list(labels.shape)}, not one for {input_ids.num_pieces} pieces"
                )
            output = self._run(input_ids, labels=labels, **wishes, **targets)
        else:
            needed = self._needed(the_given(input_ids, inputs_embeds), labels, targets)
            batch, padding = unpad(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, needed)
            if labels is not None and self.LABELS_PER_PIECE:
                labels = padding.flat(labels)
            output = self._run(batch, labels=labels, **wishes, **targets).padded(padding)
        wants_dict = self.config.return_dict if return_dict is None else return_dict
        return output if wants_dict else output.to_tuple()

    def _run(
        self, batch: PackedBatch, *, labels: Tensor | None, want_states: bool, want_weights: bool, **targets: Any
    ) -> ModelOutput:
        raise NotImplementedError

    def _needed(self, given: Tensor, labels: Tensor | None, targets: dict[str, Any]) -> Tensor | None:
        """Positions [B, T] that must be computed even where the mask is 0, because Hugging Face looks at them."""
        needed = None
        if labels is not None and self.LABELS_PER_PIECE:
            needed = labels != IGNORED_LABEL
        if self.READS_FIRST_COLUMN:
            needed = torch.zeros(given.shape[:2], dtype=torch.bool, device=given.device) if needed is None else needed
            needed[:, 0] = True
        return needed


class BertModel(_CallableModel):
    """BERT without a head: a vector per piece and, with its pooler, one per sequence."""

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.initialize()

    def encode(self, batch: PackedBatch, want_states: bool = False, want_weights: bool = False) -> Encoded:
        """The vectors of all pieces, in the order that suits attention; `Encoded.layout` leads back."""
        layout = plan_layout(batch, self.dtype, self.config.causal)
        encoded: Encoded = self.encoder(self.embeddings(layout.batch), layout, want_states, want_weights)
        return encoded

    def pool(self, encoded: Encoded) -> Tensor:
        """One vector per sequence [B, H], of its first piece."""
        assert self.pooler is not None
        pooled: Tensor = self.pooler(encoded.layout.first_pieces(encoded.states))
        return pooled

    def _run(
        self, batch: PackedBatch, *, labels: Tensor | None, want_states: bool, want_weights: bool, **targets: Any
    ) -> ModelOutput:
        _refuse(targets, labels=labels)
        encoded = self.encode(batch, want_states, want_weights)
        return BodyOutput(
            encoded.layout.as_given(encoded.states),
            None if self.pooler is None else self.pool(encoded),
            **encoded.extras(),
        )


class BertForPreTraining(_CallableModel):
    """Masked words and next sentence: `labels` per piece, `next_sentence_label` per sequence (1 = not the next)."""

    TARGETS = ("labels", "next_sentence_label")
    LABELS_PER_PIECE = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config)
        self.initialize()

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.bert.embeddings.word_embeddings)

    def get_output_embeddings(self) -> nn.Linear:
        return self.cls.predictions.decoder

    def _run(
        self,
        batch: PackedBatch,
        *,
        labels: Tensor | None,
        want_states: bool,
        want_weights: bool,
        next_sentence_label: Tensor | None = None,
        output_logits: bool | None = None,
        **targets: Any,
    ) -> ModelOutput:
        _refuse(targets)
        encoded = self.bert.encode(batch, want_states, want_weights)
        mlm_loss, logits = _masked_words(self, self.cls.predictions, encoded, labels, output_logits)
        relationship = self.cls.seq_relationship(self.bert.pool(encoded))  # [B, 2]
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = F.cross_entropy(relationship, next_sentence_label.flatten())
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        return PreTrainingOutput(
            torch.stack(losses).sum() if losses else None,
            logits,
            relationship,
            **encoded.extras(),
            mlm_loss=mlm_loss,
            nsp_loss=nsp_loss,
        )


class BertForMaskedLM(_CallableModel):
    """Masked words alone, or with `config.causal` a left-to-right model: `labels` say what each piece predicts.

    `output_logits` asks for the logits of all positions; by default they come unless a training step has `labels`,
    where the head runs on the labelled positions only. No label is shifted: a left-to-right label is the next piece.
    """

    LABELS_PER_PIECE = True
    READS_FIRST_COLUMN = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.initialize()

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.bert.embeddings.word_embeddings)

    def get_output_embeddings(self) -> nn.Linear:
        return self.cls.predictions.decoder

    def _run(
        self,
        batch: PackedBatch,
        *,
        labels: Tensor | None,
        want_states: bool,
        want_weights: bool,
        output_logits: bool | None = None,
        **targets: Any,
    ) -> ModelOutput:
        _refuse(targets)
        encoded = self.bert.encode(batch, want_states, want_weights)
        loss, logits = _masked_words(self, self.cls.predictions, encoded, labels, output_logits)
        return PieceOutput(loss, logits, **encoded.extras())


class BertForNextSentencePrediction(_CallableModel):
    """Does B follow A? Label 0: it does; 1: it does not."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertOnlyNSPHead(config)
        self.initialize()

    def _run(
        self, batch: PackedBatch, *, labels: Tensor | None, want_states: bool, want_weights: bool, **targets: Any
    ) -> ModelOutput:
        _refuse(targets)
        encoded = self.bert.encode(batch, want_states, want_weights)
        logits = self.cls.seq_relationship(self.bert.pool(encoded))  # [B, 2]
        loss = None if labels is None else F.cross_entropy(logits, labels.flatten())
        return SequenceOutput(loss, logits, **encoded.extras())


class BertForSequenceClassification(_CallableModel):
    """One class, number or set of labels per sequence, as `config.problem_type` says or the labels suggest."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config)
        self.dropout = _head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def _run(
        self, batch: PackedBatch, *, labels: Tensor | None, want_states: bool, want_weights: bool, **targets: Any
    ) -> ModelOutput:
        _refuse(targets)
        encoded = self.bert.encode(batch, want_states, want_weights)
        logits = self.classifier(self.dropout(self.bert.pool(encoded)))  # [B, labels]
        loss = None if labels is None else classification_loss(logits, labels, self.config.problem_type)
        return SequenceOutput(loss, logits, **encoded.extras())


class BertForTokenClassification(_CallableModel):
    """One class per piece; a label of -100 does not count."""

    LABELS_PER_PIECE = True
    READS_FIRST_COLUMN = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = _head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def _run(
        self, batch: PackedBatch, *, labels: Tensor | None, want_states: bool, want_weights: bool, **targets: Any
    ) -> ModelOutput:
        _refuse(targets)
        encoded = self.bert.encode(batch, want_states, want_weights)
        logits = encoded.layout.as_given(self.classifier(self.dropout(encoded.states)))  # [n, labels]
        loss = None if labels is None else F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
        return PieceOutput(loss, logits, **encoded.extras())


class BertForQuestionAnswering(_CallableModel):
    """Where an answer starts and ends. Positions count from 0 in each sequence (padded: in each row)."""

    TARGETS = ("start_positions", "end_positions")
    READS_FIRST_COLUMN = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        if config.num_labels != 2:
            raise UsageError(f"a span has a start and an end, and the settings name {config.num_labels} labels, not 2")
        self.bert = BertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def _needed(self, given: Tensor, labels: Tensor | None, targets: dict[str, Any]) -> Tensor | None:
        # Their softmax goes over all columns, masked ones too. A packed batch has only real pieces to choose from.
        if targets.get("start_positions") is None:
            return None
        return torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)

    def _run(
        self,
        batch: PackedBatch,
        *,
        labels: Tensor | None,
        want_states: bool,
        want_weights: bool,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **targets: Any,
    ) -> ModelOutput:
        _refuse(targets, labels=labels)
        encoded = self.bert.encode(batch, want_states, want_weights)
        logits = encoded.layout.as_given(self.qa_outputs(encoded.states))  # [n, 2]
        loss = None
        if start_positions is not None and end_positions is not None:
            rows = padding_of(batch.lengths, batch.device).padded(logits, NOWHERE)  # [B, T, 2]
            lengths = torch.tensor(batch.lengths, device=batch.device)
            loss = span_loss(rows[..., 0], rows[..., 1], start_positions, end_positions, lengths)
        start_logits, end_logits = logits.unbind(1)
        return SpanOutput(loss, start_logits, end_logits, **encoded.extras())


class BertForMultipleChoice(_CallableModel):
    """Which of several sequences fits: padded inputs are [B, choices, T]; a packed batch needs `num_choices`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.dropout = _head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.initialize()

    def forward(self, input_ids: Tensor | PackedBatch | None = None, *rest: Any, **named: Any) -> Any:
        if isinstance(input_ids, PackedBatch):
            return super().forward(input_ids, *rest, **named)
        names = ("attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "labels")
        named = {"input_ids": input_ids, **dict(zip(names, rest, strict=False)), **named}
        given = named["input_ids"] if named["input_ids"] is not None else named.get("inputs_embeds")
        if given is None:
            raise UsageError("exactly one of input_ids and inputs_embeds must be given")
        for name in ("input_ids", *names[:-1]):
            if named.get(name) is not None:
                named[name] = named[name].flatten(0, 1)  # [B · choices, T, …]
        return super().forward(num_choices=given.shape[1], **named)

    def _run(
        self,
        batch: PackedBatch,
        *,
        labels: Tensor | None,
        want_states: bool,
        want_weights: bool,
        num_choices: int = 0,
        **targets: Any,
    ) -> ModelOutput:
        _refuse(targets)
        if num_choices < 1 or len(batch.lengths) % num_choices:
            raise UsageError(f"{len(batch.lengths)} sequences are not a whole number of {num_choices} choices")
        encoded = self.bert.encode(batch, want_states, want_weights)
        logits = self.classifier(self.dropout(self.bert.pool(encoded))).view(-1, num_choices)  # [B, choices]
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SequenceOutput(loss, logits, **encoded.extras())


MODEL_CLASSES: dict[str, type[_CallableModel]] = {
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
    )
}


def class_of(config: BertConfig) -> type[_CallableModel]:
    """The class that a folder says its model is; without a word of it, the one without a head."""
    named = [MODEL_CLASSES[name] for name in config.architectures or [] if name in MODEL_CLASSES]
    return named[0] if named else BertModel


def _masked_words(
    model: nn.Module,
    head: BertLMPredictionHead,
    encoded: Encoded,
    labels: Tensor | None,
    output_logits: bool | None,
) -> tuple[Tensor | None, Tensor | None]:
    """The loss over labelled pieces, if there are labels, and the logits of all pieces, if wanted."""
    loss = logits = None
    if labels is not None:
        pieces = selected(labels)
        loss = head.loss(encoded.layout.at(encoded.states, pieces), labels.index_select(0, pieces))
    if output_logits or (output_logits is None and (labels is None or not model.training)):
        logits = head(encoded.layout.as_given(encoded.states))  # [n, V]
    return loss, logits


def _head_dropout(config: BertConfig) -> Dropout:
    return Dropout(config.head_dropout_prob, config.num_hidden_layers, "head")


def _refuse(targets: dict[str, Any], **not_taken: Any) -> None:
    unknown = [name for name, value in {**targets, **not_taken}.items() if name in targets or value is not None]
    if unknown:
        raise TypeError(f"this model does not take {', '.join(unknown)}")
