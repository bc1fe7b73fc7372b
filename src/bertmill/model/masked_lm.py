"""What the models with an MLM head share: the decoder is the piece embedding, and stays so when either changes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bertmill.model.pretrained import BertPreTrainedModel


class BertWithMaskedLM(BertPreTrainedModel):
    cls: Any  # a head with `predictions`

    def tie_weights(self) -> None:
        self.cls.predictions.tie(self.get_input_embeddings())

    def adopt_shared_parameters(self) -> None:
        bias = getattr(self.cls.predictions.decoder, "bias", None)
        self.cls.predictions.bias = bias if isinstance(bias, nn.Parameter) else None  # a wrapper may have none

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

    def wants_logits(self, labels: Tensor | None, output_logits: bool | None) -> bool:
        """By default every call returns logits, except training steps with labels: their head runs on those alone."""
        return labels is None or not self.training if output_logits is None else output_logits
