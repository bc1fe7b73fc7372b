"""The attention weights of every head in a sequence, in a compact format for the HTML report.

- A long sequence is split into pages of consecutive pieces. Weights are computed over the whole sequence; a page keeps
  those among its own pieces, so a row that sums to less than 1 also attends to other pages.
- A weight w is stored as the byte round(255 √w), which keeps small weights distinguishable.
- The bytes of a page, [layers, heads, pieces, pieces], are compressed with zlib and encoded in base64.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertmill.model.mean_layer import num_encoder_layers
from bertmill.model.packing import PackedBatch
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.text.tokenizer import BertTokenizer

PIECES_PER_PAGE = 128  # a larger matrix is hard to read
MAX_BYTES = 1 << 20  # of all encoded pages together


@torch.inference_mode()
def attention_pages(
    model: BertPreTrainedModel, tokenizer: BertTokenizer, sequences: Sequence[tuple[Sequence[int], int]]
) -> list[dict[str, Any]]:
    """The attention weights of sequences, each given as (ids, number of pieces in segment 0).

    Pages beyond MAX_BYTES in total are omitted, except for the first page of the first sequence. Pages are shorter if
    the model has many heads.
    """
    num_heads = num_encoder_layers(model.config) * model.config.num_attention_heads
    pieces_per_page = min(PIECES_PER_PAGE, int((MAX_BYTES / max(1, num_heads)) ** 0.5))
    described: list[dict[str, Any]] = []
    room = MAX_BYTES
    for ids, num_first in sequences:
        weights = _weights(model, ids, num_first)
        pages: list[dict[str, Any]] = []
        for start in range(0, len(ids), pieces_per_page):
            stop = min(start + pieces_per_page, len(ids))
            content = _compressed(weights[:, :, start:stop, start:stop])
            if len(content) > room and (described or pages):
                break
            room -= len(content)
            pages.append({"start": start, "stop": stop, "weights": content})
        if pages:
            described.append(
                {
                    "pieces": tokenizer.convert_ids_to_tokens(list(ids)),
                    "ids": [int(each) for each in ids],
                    "num_first": num_first,
                    "num_heads": model.config.num_attention_heads,
                    "pages": pages,
                }
            )
    return described


def _weights(model: BertPreTrainedModel, ids: Sequence[int], num_first: int) -> Tensor:
    """The attention weights of one sequence, [layers, heads, T, T], without those of a mean layer, which are equal."""
    segments = torch.tensor([int(place >= num_first) for place in range(len(ids))])
    batch = PackedBatch(torch.tensor([int(each) for each in ids]), [len(ids)], segments)
    body: Any = model.base_model
    attentions = body.encode(batch.to(model.device), True, False).attentions
    shown = attentions[: num_encoder_layers(model.config)]
    return torch.stack([_levels(of_layer[0]) for of_layer in shown])


def _compressed(weights: Tensor) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(weights.numpy()).tobytes(), 9)).decode()


def _levels(weights: Tensor) -> Tensor:
    """Weights as bytes."""
    return (weights.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu()
