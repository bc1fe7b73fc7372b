"""Finished instances for the eye: their pieces, what is hidden in them, segments and labels.

A selected piece stands as what the model sees, with what it must guess in ‹ ›: `[MASK]‹dog›`, `apple‹dog›`
(random) or `dog‹dog›` (the same). In `clm` every piece is to be guessed from those before it, so nothing is marked.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from bertmill.config.fields import Objective
from bertmill.corpus.instances import InstanceBatch
from bertmill.corpus.masking import NOT_SELECTED
from bertmill.text.tokenizer import BertTokenizer

WIDTH = 100
PAIR_LABELS: dict[Objective, tuple[str, str]] = {
    "mlm+nsp": ("label 0: B follows A", "label 1: B is from another document"),
    "mlm+sop": ("label 0: A and B are in order", "label 1: A and B are swapped"),
}


def show_instances(batch: InstanceBatch, objective: Objective, tokenizer: BertTokenizer) -> Iterator[str]:
    """The lines to print."""
    for number in range(len(batch.lengths)):
        instance = batch[number : number + 1]
        facts = [f"{len(instance.piece_ids)} pieces"]
        facts.append("each guessed from those before it" if objective == "clm" else f"{instance.num_selected} selected")
        if instance.pair_labels is not None:
            facts.append(PAIR_LABELS[objective][int(instance.pair_labels[0])])
        yield f"instance {number + 1}: {', '.join(facts)}"
        words = _words(instance, tokenizer, mark=objective != "clm")
        for segment in range(1 + int(instance.segments[-1])):
            text = " ".join(word for word, own in zip(words, instance.segments, strict=True) if own == segment)
            name = f"  {'AB'[segment]}  " if instance.pair_labels is not None else "  "
            yield from textwrap.wrap(
                text,
                WIDTH,
                initial_indent=name,
                subsequent_indent=" " * len(name),
                break_long_words=False,
                break_on_hyphens=False,
            )


def _words(instance: InstanceBatch, tokenizer: BertTokenizer, mark: bool) -> list[str]:
    seen = tokenizer.convert_ids_to_tokens(instance.piece_ids.tolist())
    if not mark:
        return list(seen)
    labels = instance.labels.tolist()
    hidden = tokenizer.convert_ids_to_tokens([max(0, label) for label in labels])
    return [
        piece if label == NOT_SELECTED else f"{piece}‹{original}›"
        for piece, label, original in zip(seen, labels, hidden, strict=True)
    ]
