"""Predict the most likely pieces at each [MASK] in a text.

If a text is longer than the model's positions, each [MASK] is predicted from as many surrounding pieces as fit. A
left-to-right model predicts it only from the pieces before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bertmill.batching.by_length import run_batched
from bertmill.errors import DataError, UsageError
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.packing import PackedBatch
from bertmill.text.tokenizer import BertTokenizer

Guess = dict[str, Any]


@dataclass(frozen=True)
class _Masks:
    """A sequence of pieces and the positions to predict."""

    ids: list[int]
    places: list[int]


class MaskFiller:
    """Predicts masked pieces with a pre-trained model."""

    def __init__(self, model: BertForMaskedLM, tokenizer: BertTokenizer) -> None:
        self.model = model
        self.tokenizer = tokenizer

    def fill(self, text: str, top_k: int) -> list[list[Guess]]:
        """Return the `top_k` predictions for each [MASK]: `score`, `token` (its id), `token_str` and `sequence`."""
        if top_k < 1:
            raise UsageError(f"top_k must be at least 1, not {top_k}")
        pieces = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids = pieces["input_ids"]
        places = [place for place, piece in enumerate(ids) if piece == self.tokenizer.mask_token_id]
        if not places:
            raise DataError(f"the text has no {self.tokenizer.mask_token}", remedy="replace a word with it")
        guesses = []
        for place, logits in zip(places, self._logits(ids, places), strict=True):
            best = logits.softmax(0).topk(min(top_k, len(logits)))
            start, end = pieces["offset_mapping"][place]
            found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            guesses.append([self._guess(score, token, text[:start], text[end:]) for score, token in found])
        return guesses

    def _logits(self, ids: list[int], places: list[int]) -> list[Tensor]:
        """Return the logits over the vocabulary at each of `places`."""
        room = self.model.config.max_position_embeddings - 2
        if len(ids) <= room:
            sequences = [_Masks(ids, places)]
        else:
            num_before = room - 1 if self.model.config.causal else room // 2
            starts = [min(max(0, place - num_before), len(ids) - room) for place in places]
            sequences = [
                _Masks(ids[start : start + room], [place - start]) for start, place in zip(starts, places, strict=True)
            ]
        logits = run_batched(sequences, lambda sequence: len(sequence.ids) + 2, self._run)
        return [row for of_sequence in logits for row in of_sequence]

    @torch.inference_mode()
    def _run(self, sequences: list[_Masks]) -> list[Tensor]:
        """Return the logits [places, V] of each sequence."""
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        ids = [piece for sequence in sequences for piece in (cls, *sequence.ids, sep)]
        lengths = [len(sequence.ids) + 2 for sequence in sequences]
        batch = PackedBatch(torch.tensor(ids, device=self.model.device), lengths)
        # The embedding may have more rows than the vocabulary. A left-to-right model predicts the next piece.
        logits = self.model(batch).logits[:, : len(self.tokenizer)]
        shift = 0 if self.model.config.causal else 1
        return [
            part[[place + shift for place in sequence.places]]
            for part, sequence in zip(logits.split(lengths), sequences, strict=True)
        ]

    def _guess(self, score: float, token: int, before: str, after: str) -> Guess:
        piece = self.tokenizer.convert_ids_to_tokens(token)
        inside = piece.removeprefix("##")
        before = before.rstrip() if inside != piece else before
        return {"score": score, "token": token, "token_str": piece, "sequence": f"{before}{inside}{after}"}
