"""The public models: BERT alone and with each of its heads, called as Hugging Face's classes of the same names.

A call takes padded tensors (Hugging Face's arguments; a packed batch is made of them, and the outputs are padded
again) or, as its first argument, a `PackedBatch`, which training and inference use: then labels per piece and
outputs per piece are flat, in the order of the batch. Padded or packed, the same numbers come out, but for what
Hugging Face reads off masked positions of a padded batch: the first column under left padding (the pooler), labels
there, and the softmax of a span over all columns. These we compute as they do; other masked positions are not
computed and come back as zeros (span logits: very low).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.dropout import Dropout
from bertmill.model.encoder import BertEmbeddings, BertEncoder, BertPooler, Encoded
from bertmill.model.heads import (
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
    MaskedWordOutput,
    ModelOutput,
    PieceOutput,
    PreTrainingOutput,
    SequenceOutput,
    SpanOutput,
)
from bertmill.model.packing import IGNORED_LABEL, PackedBatch, Padding, padding_of, plan_layout, the_given, unpad
from bertmill.model.pretrained import BertPreTrainedModel

# What every call takes first, and what it takes last.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
_WISHES = ("output_attentions", "output_hidden_states", "return_dict")


class _CallableModel(BertPreTrainedModel):
    """The call that all models share; `_run` says what a class makes of the encoded pieces and which targets it takes.

    Those targets stand in the signature of its `forward`, in Hugging Face's order, where `transformers.Trainer` and
    others look for the names of labels.
    """

    LABELS_PER_PIECE: ClassVar[bool] = False
    READS_FIRST_COLUMN: ClassVar[bool] = True
    _run: Callable[..., ModelOutput]  # (self, batch, encoded, *targets)

    def __init_subclass__(cls) -> None:
        if "_run" not in cls.__dict__:
            return
        signature = _signature_of_call(cls._run)

        def forward(self: Self, *given: Any, **named: Any) -> ModelOutput | tuple[Any, ...]:
            return type(self)._call(**signature.bind(self, *given, **named).arguments)

        forward.__doc__ = "Padded tensors [B, T] or, first, a `PackedBatch`; see the module's first lines."
        forward.__signature__ = signature  # type: ignore[attr-defined]
        cls.forward = forward

    @property
    def base_model(self) -> BertModel:
        """The model without its head."""
        body = getattr(self, self.base_model_prefix, self)
        assert isinstance(body, BertModel)
        return body

    def _call(
        self,
        *,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **targets: Any,
    ) -> ModelOutput | tuple[Any, ...]:
        padding = None
        if isinstance(input_ids, PackedBatch):
            batch = input_ids
            if any(each is not None for each in (attention_mask, token_type_ids, position_ids, inputs_embeds)):
                raise UsageError("a packed batch brings its own segments, positions and embeddings")
        else:
            needed = self._needed(the_given(input_ids, inputs_embeds), **targets)
            batch, padding = unpad(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, needed)
        if self.LABELS_PER_PIECE and targets.get("labels") is not None:
            targets["labels"] = _labels_of_pieces(targets["labels"], batch, padding)
        wants_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        wants_weights = self.config.output_attentions if output_attentions is None else output_attentions
        encoded = self.base_model.encode(batch, wants_states, wants_weights, self._read(batch, **targets))
        output = replace(self._run(batch, encoded, **targets), **encoded.extras())
        if padding is not None:
            output = output.padded(padding)
        wants_dict = self.config.return_dict if return_dict is None else return_dict
        return output if wants_dict else output.to_tuple()

    def _read(self, batch: PackedBatch, **_targets: Any) -> Tensor | None:
        """The numbers of the pieces whose vectors `_run` looks at; None: all."""
        return None

    def _needed(self, given: Tensor, labels: Tensor | None = None, **targets: Any) -> Tensor | None:
        """Positions [B, T] that must be computed even where the mask is 0, because Hugging Face looks at them."""
        needed = None
        if labels is not None and self.LABELS_PER_PIECE:
            needed = labels != IGNORED_LABEL
        if self.READS_FIRST_COLUMN:
            needed = torch.zeros(given.shape[:2], dtype=torch.bool, device=given.device) if needed is None else needed
            needed[:, 0] = True
        return needed


def _signature_of_call(run: Callable[..., ModelOutput]) -> inspect.Signature:
    """Of a `forward`: the inputs, what `run` takes beside the batch and its encoding, and what all outputs can have."""

    def optional(name: str) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)

    myself, _, _, *targets = inspect.signature(run).parameters.values()
    parameters = [myself, *map(optional, _INPUTS), *targets, *map(optional, _WISHES)]
    return inspect.Signature(sorted(parameters, key=lambda parameter: parameter.kind))  # those by keyword only last


def _labels_of_pieces(labels: Tensor, batch: PackedBatch, padding: Padding | None) -> Tensor:
    if padding is not None:
        return padding.flat(labels)
    if labels.shape != (batch.num_pieces,):
        raise UsageError(f"labels have the shape {list(labels.shape)}, not one for {batch.num_pieces} pieces")
    return labels


class BertModel(_CallableModel):
    """BERT without a head: a vector per piece and, with its pooler, one per sequence."""

    PARTS = ("add_pooling_layer",)

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.initialize()

    def encode(
        self, batch: PackedBatch, want_states: bool = False, want_weights: bool = False, read: Tensor | None = None
    ) -> Encoded:
        """The vectors of all pieces, or at least of those whose numbers `read` has."""
        layout = plan_layout(batch, self.dtype, self.config.causal)
        encoded: Encoded = self.encoder(self.embeddings(layout.batch), layout, want_states, want_weights, read)
        return encoded

    def pool(self, batch: PackedBatch, encoded: Encoded) -> Tensor:
        """One vector per sequence [B, H], of its first piece."""
        assert self.pooler is not None
        pooled: Tensor = self.pooler(encoded.of(batch.first_pieces))
        return pooled

    def _run(self, batch: PackedBatch, encoded: Encoded) -> ModelOutput:
        pooled = None if self.pooler is None else self.pool(batch, encoded)
        return BodyOutput(encoded.of_all(), pooled)


class _MaskedWordModel(_CallableModel):
    """With a head whose decoder is the piece embedding. No label is shifted.

    `output_logits` asks for the logits of all positions; by default they come unless a training step has `labels`,
    where the head runs on the labelled positions only.
    """

    LABELS_PER_PIECE = True
    cls: Any  # a head with `predictions`

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.base_model.embeddings.word_embeddings)

    def resize_token_embeddings(self, new_num_tokens: int) -> nn.Embedding:
        embeddings = super().resize_token_embeddings(new_num_tokens)
        head = self.cls.predictions
        head.bias = self._resized("cls.predictions.bias", head.bias)
        head.decoder.out_features = new_num_tokens
        self.tie_weights()
        return embeddings

    def get_output_embeddings(self) -> nn.Linear:
        decoder: nn.Linear = self.cls.predictions.decoder
        return decoder

    def _masked_words(
        self, encoded: Encoded, labels: Tensor | None, output_logits: bool | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Loss and number of right guesses over labelled pieces, if there are labels; logits of all, if wanted."""
        loss = num_right = logits = None
        head = self.cls.predictions
        if labels is not None:
            pieces = selected(labels)
            loss, num_right = head.loss(encoded.of(pieces), labels.index_select(0, pieces))
        if self._wants_logits(labels, output_logits):
            logits = head(encoded.of_all())  # [n, V]
        return loss, logits, num_right

    def _wants_logits(self, labels: Tensor | None, output_logits: bool | None) -> bool:
        return output_logits or (output_logits is None and (labels is None or not self.training))

    def _read(
        self, batch: PackedBatch, labels: Tensor | None = None, output_logits: bool | None = None, **_targets: Any
    ) -> Tensor | None:
        if labels is None or self._wants_logits(labels, output_logits):
            return None
        if not self.READS_FIRST_COLUMN:
            return selected(labels)
        both: Tensor = torch.cat([selected(labels), batch.first_pieces]).unique()  # a first piece may have a label
        return both


class BertForPreTraining(_MaskedWordModel):
    """Masked words and next sentence: `labels` per piece, `next_sentence_label` per sequence (1 = not the next)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config)
        self.initialize()

    def _run(
        self,
        batch: PackedBatch,
        encoded: Encoded,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        *,
        output_logits: bool | None = None,
    ) -> ModelOutput:
        mlm_loss, logits, num_right = self._masked_words(encoded, labels, output_logits)
        relationship = self.cls.seq_relationship(self.bert.pool(batch, encoded))  # [B, 2]
        nsp_loss = None
        if next_sentence_label is not None:
            nsp_loss = F.cross_entropy(relationship, next_sentence_label.flatten())
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        loss = torch.stack(losses).sum() if losses else None
        return PreTrainingOutput(loss, logits, relationship, mlm_loss=mlm_loss, nsp_loss=nsp_loss, num_right=num_right)


class BertForMaskedLM(_MaskedWordModel):
    """Masked words alone, or with `config.causal` a left-to-right model, where the label of a piece is the next one."""

    READS_FIRST_COLUMN = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertOnlyMLMHead(config)
        self.initialize()

    def _run(
        self,
        batch: PackedBatch,
        encoded: Encoded,
        labels: Tensor | None = None,
        *,
        output_logits: bool | None = None,
    ) -> ModelOutput:
        loss, logits, num_right = self._masked_words(encoded, labels, output_logits)
        return MaskedWordOutput(loss, logits, num_right=num_right)


class _SequenceModel(_CallableModel):
    """With a head that looks at the pooled vectors alone."""

    def _read(self, batch: PackedBatch, **_targets: Any) -> Tensor | None:
        return batch.first_pieces


class BertForNextSentencePrediction(_SequenceModel):
    """Does B follow A? Label 0: it does; 1: it does not."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertOnlyNSPHead(config)
        self.initialize()

    def _run(self, batch: PackedBatch, encoded: Encoded, labels: Tensor | None = None) -> ModelOutput:
        logits = self.cls.seq_relationship(self.bert.pool(batch, encoded))  # [B, 2]
        return SequenceOutput(None if labels is None else F.cross_entropy(logits, labels.flatten()), logits)


class BertForSequenceClassification(_SequenceModel):
    """One class, number or set of labels per sequence, as `config.problem_type` says or the labels suggest."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config)
        self.dropout = _head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def _run(self, batch: PackedBatch, encoded: Encoded, labels: Tensor | None = None) -> ModelOutput:
        logits = self.classifier(self.dropout(self.bert.pool(batch, encoded)))  # [B, labels]
        loss = None if labels is None else classification_loss(logits, labels, self.config.problem_type)
        return SequenceOutput(loss, logits)


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

    def _run(self, batch: PackedBatch, encoded: Encoded, labels: Tensor | None = None) -> ModelOutput:
        logits = encoded.layout.as_given(self.classifier(self.dropout(encoded.states)))  # [n, labels]
        loss = None if labels is None else F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
        return PieceOutput(loss, logits)


class BertForQuestionAnswering(_CallableModel):
    """Where an answer starts and ends. Positions count from 0 in each sequence (padded: in each row)."""

    READS_FIRST_COLUMN = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        if config.num_labels != 2:
            raise UsageError(f"a span has a start and an end, and the settings name {config.num_labels} labels, not 2")
        self.bert = BertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def _needed(self, given: Tensor, labels: Tensor | None = None, **targets: Any) -> Tensor | None:
        # Their softmax goes over all columns, masked ones too. A packed batch has only real pieces to choose from.
        if targets.get("start_positions") is None:
            return None
        return torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)

    def _run(
        self,
        batch: PackedBatch,
        encoded: Encoded,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> ModelOutput:
        logits = encoded.layout.as_given(self.qa_outputs(encoded.states))  # [n, 2]
        loss = None
        if start_positions is not None and end_positions is not None:
            rows = padding_of(batch.lengths, batch.device).padded(logits, NOWHERE)  # [B, T, 2]
            lengths = torch.tensor(batch.lengths, device=batch.device)
            loss = span_loss(rows[..., 0], rows[..., 1], start_positions, end_positions, lengths)
        return SpanOutput(loss, logits[:, 0], logits[:, 1])


class BertForMultipleChoice(_SequenceModel):
    """Which of several sequences fits: padded inputs are [B, choices, T]; a packed batch needs `num_choices`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.dropout = _head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.initialize()

    def _call(self, **arguments: Any) -> ModelOutput | tuple[Any, ...]:
        if not isinstance(arguments.get("input_ids"), PackedBatch):
            given = {name: arguments[name] for name in _INPUTS if arguments.get(name) is not None}
            arguments |= {name: value.flatten(0, 1) for name, value in given.items()}  # [B · choices, T, …]
            arguments["num_choices"] = next((value.shape[1] for value in given.values()), 0)
        return super()._call(**arguments)

    def _run(
        self, batch: PackedBatch, encoded: Encoded, labels: Tensor | None = None, *, num_choices: int = 0
    ) -> ModelOutput:
        if num_choices < 1 or len(batch.lengths) % num_choices:
            raise UsageError(f"{len(batch.lengths)} sequences are not a whole number of {num_choices} choices")
        logits = self.classifier(self.dropout(self.bert.pool(batch, encoded))).view(-1, num_choices)  # [B, choices]
        return SequenceOutput(None if labels is None else F.cross_entropy(logits, labels), logits)


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


def _head_dropout(config: BertConfig) -> Dropout:
    return Dropout(config.head_dropout_prob, config.num_hidden_layers, "head")
