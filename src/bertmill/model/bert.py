"""The public models: BERT alone and with each head, with the signatures of the Hugging Face classes.

Every `forward` packs the inputs, encodes them, applies the head, computes the loss and restores the padding. It takes
Hugging Face's padded tensors or, as its first argument, a `PackedBatch`, which training and inference use. With a
packed batch, labels and outputs per piece are flat, in the order of the batch. Both give the same numbers.

Hugging Face also computes outputs at padding. These models compute them only where they are read: the first column (the
pooler under left padding), positions with labels, and all columns of a span. Other outputs at padding are zeros (span
logits: very low). With the attribute `compute_padding`, they compute all of them too.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.encoder import BertEmbeddings, BertEncoder, BertPooler, Encoded
from bertmill.model.heads import (
    BertPreTrainingHeads,
    BertWithMaskedLM,
    classification_loss,
    head_dropout,
    selected_pieces,
    span_loss,
)
from bertmill.model.outputs import (
    BodyOutput,
    MaskedLMOutput,
    PieceOutput,
    PreTrainingOutput,
    Result,
    SequenceOutput,
    SpanOutput,
)
from bertmill.model.packing import IGNORED_LABEL, PackedBatch, plan_layout
from bertmill.model.padding import pack_choices
from bertmill.model.pretrained import BertPreTrainedModel


class BertModel(BertPreTrainedModel):
    """BERT without a head: one vector per piece and, with the pooler, one per sequence."""

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = BertEmbeddings(config)
        self.encoder = BertEncoder(config)
        self.pooler = BertPooler(config) if add_pooling_layer else None
        self.initialize()

    def encode(
        self,
        batch: PackedBatch,
        output_attentions: bool | None,
        output_hidden_states: bool | None,
        read: Tensor | None = None,
    ) -> Encoded:
        """Encode all pieces, or at least those at the indices `read`."""
        want_weights = self.config.output_attentions if output_attentions is None else output_attentions
        want_states = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        layout = plan_layout(batch, self.dtype, self.config.causal)
        encoded: Encoded = self.encoder(self.embeddings(layout.batch), layout, want_states, want_weights, read)
        return encoded

    def pool(self, batch: PackedBatch, encoded: Encoded) -> Tensor:
        """Return one vector per sequence [B, H], from its first piece."""
        assert self.pooler is not None
        pooled: Tensor = self.pooler(encoded.vectors_at(batch.first_pieces))
        return pooled

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Result:
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, first_column=True)
        encoded = self.encode(inputs.batch, output_attentions, output_hidden_states)
        pooled = None if self.pooler is None else self.pool(inputs.batch, encoded)
        return self.wrap(BodyOutput(encoded.vectors(), pooled), inputs, encoded, return_dict)


class BertForPreTraining(BertWithMaskedLM):
    """MLM with `labels` per piece, and next-sentence prediction with `next_sentence_label` (1: B does not follow A)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        output_logits: bool | None = None,
    ) -> Result:
        inputs = self.pack(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, labels=labels, first_column=True
        )
        labels = inputs.labels_per_piece(labels)
        selected, with_logits = selected_pieces(labels), self.wants_logits(labels, output_logits)
        read = None if with_logits or selected is None else torch.cat([selected, inputs.batch.first_pieces]).unique()
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states, read)
        logits, mlm_loss, num_right = self.cls.predictions.predict(encoded, labels, selected, with_logits)
        next_logits = self.cls.seq_relationship(self.bert.pool(inputs.batch, encoded))  # [B, 2]
        nsp_loss = None if next_sentence_label is None else F.cross_entropy(next_logits, next_sentence_label.flatten())
        losses = [loss for loss in (mlm_loss, nsp_loss) if loss is not None]
        loss = torch.stack(losses).sum() if losses else None
        output = PreTrainingOutput(loss, logits, next_logits, mlm_loss, nsp_loss, num_right)
        return self.wrap(output, inputs, encoded, return_dict)


class BertForMaskedLM(BertWithMaskedLM):
    """MLM or, with `config.causal`, left-to-right language modeling.

    Labels are not shifted: in a left-to-right model, the label of a piece must be the next piece.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.cls = BertPreTrainingHeads(config, next_sentence=False)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        output_logits: bool | None = None,
    ) -> Result:
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, labels=labels)
        labels = inputs.labels_per_piece(labels)
        selected, with_logits = selected_pieces(labels), self.wants_logits(labels, output_logits)
        read = None if with_logits else selected
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states, read)
        logits, loss, num_right = self.cls.predictions.predict(encoded, labels, selected, with_logits)
        return self.wrap(MaskedLMOutput(loss, logits, num_right=num_right), inputs, encoded, return_dict)


class BertForNextSentencePrediction(BertPreTrainedModel):
    """Next-sentence prediction: label 0 if B follows A, 1 if not."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.cls = BertPreTrainingHeads(config, mlm=False)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Result:
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, first_column=True)
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states, inputs.batch.first_pieces)
        logits = self.cls.seq_relationship(self.bert.pool(inputs.batch, encoded))  # [B, 2]
        loss = None if labels is None else F.cross_entropy(logits, labels.flatten())
        return self.wrap(SequenceOutput(loss, logits), inputs, encoded, return_dict)


class BertForSequenceClassification(BertPreTrainedModel):
    """One class, number or set of labels per sequence, according to `config.problem_type` or else to the labels."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config)
        self.dropout = head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Result:
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, first_column=True)
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states, inputs.batch.first_pieces)
        logits = self.classifier(self.dropout(self.bert.pool(inputs.batch, encoded)))  # [B, labels]
        loss = None if labels is None else classification_loss(logits, labels, self.config.problem_type)
        return self.wrap(SequenceOutput(loss, logits), inputs, encoded, return_dict)


class BertForTokenClassification(BertPreTrainedModel):
    """One class per piece. Labels of -100 are ignored."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Result:
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, labels=labels)
        labels = inputs.labels_per_piece(labels)
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states)
        logits = encoded.layout.as_given(self.classifier(self.dropout(encoded.states)))  # [n, labels]
        loss = None if labels is None else F.cross_entropy(logits, labels, ignore_index=IGNORED_LABEL)
        return self.wrap(PieceOutput(loss, logits), inputs, encoded, return_dict)


class BertForQuestionAnswering(BertPreTrainedModel):
    """Start and end of an answer. Positions count from 0 in each sequence (padded inputs: in each row)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        if config.num_labels != 2:
            raise UsageError(f"num_labels must be 2 (the start and end of a span), not {config.num_labels}")
        self.bert = BertModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, config.num_labels)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> Result:
        whole = start_positions is not None  # Hugging Face's softmax includes padding
        inputs = self.pack(input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, every_column=whole)
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states)
        logits = encoded.layout.as_given(self.qa_outputs(encoded.states))  # [n, 2]
        start_logits, end_logits = logits.unbind(1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(logits, start_positions, end_positions, inputs.batch.lengths)
        return self.wrap(SpanOutput(loss, start_logits, end_logits), inputs, encoded, return_dict)


class BertForMultipleChoice(BertPreTrainedModel):
    """A choice between several sequences. Padded inputs are [B, choices, T]; a packed batch needs `num_choices`."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config)
        self.dropout = head_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.initialize()

    def forward(
        self,
        input_ids: Tensor | PackedBatch | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        *,
        num_choices: int = 0,
    ) -> Result:
        given = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        inputs, num_choices = pack_choices(*given, num_choices=num_choices, every_column=self.compute_padding)
        encoded = self.bert.encode(inputs.batch, output_attentions, output_hidden_states, inputs.batch.first_pieces)
        scores = self.classifier(self.dropout(self.bert.pool(inputs.batch, encoded)))  # [B · choices, 1]
        logits = scores.view(-1, num_choices)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return self.wrap(SequenceOutput(loss, logits), inputs, encoded, return_dict)
