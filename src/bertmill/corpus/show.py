"""Finished instances for a person to read: their pieces, labels and segments.

A selected piece is shown as the model sees it, with the piece to predict in ‹ ›: `[MASK]‹dog›`, `apple‹dog›` (random)
or `dog‹dog›` (the same). An objective that predicts every piece shows no labels.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bertmill.corpus.instances import InstanceBatch
from bertmill.corpus.masking import NOT_SELECTED
from bertmill.corpus.objectives.base import Objective
from bertmill.text.tokenizer import BertTokenizer

WIDTH = 100


def show_instances(batch: InstanceBatch, objective: Objective, tokenizer: BertTokenizer) -> Iterator[str]:
    """The lines to print."""
    for number in range(len(batch.lengths)):
        instance = batch[number : number + 1]
        facts = [f"{len(instance.piece_ids)} pieces", *objective.describe_instance(instance)]
        yield f"instance {number + 1}: {', '.join(facts)}"
        pieces = _pieces(instance, tokenizer, with_labels=objective.shows_labels)
        for segment in range(1 + int(instance.segments[-1])):
            text = " ".join(piece for piece, own in zip(pieces, instance.segments, strict=True) if own == segment)
            name = f"  {objective.text_names[segment]}  " if objective.text_names else "  "
            yield from textwrap.wrap(
                text,
                WIDTH,
                initial_indent=name,
                subsequent_indent=" " * len(name),
                break_long_words=False,
                break_on_hyphens=False,
            )


def _pieces(instance: InstanceBatch, tokenizer: BertTokenizer, *, with_labels: bool) -> list[str]:
    seen = tokenizer.convert_ids_to_tokens(instance.piece_ids.tolist())
    if not with_labels:
        return list(seen)
    labels = instance.labels.tolist()
    hidden = tokenizer.convert_ids_to_tokens([max(0, label) for label in labels])
    return [
        piece if label == NOT_SELECTED else f"{piece}‹{original}›"
        for piece, label, original in zip(seen, labels, hidden, strict=True)
    ]
