"""Pre-training objectives: one object each, found by name; its module is imported on first use.

    mlm+nsp   [CLS] A [SEP] B [SEP]   masked pieces, and: does B follow A? (label 1: it is from another document)
    mlm+sop   [CLS] A [SEP] B [SEP]   masked pieces, and: are A and B in order? (label 1: they are swapped)
    mlm       [CLS] sentences [SEP] sentences of the next document … [SEP]   masked pieces
    clm       the same, read from left to right                              the next piece
To add an objective, subclass `Objective` (base.py) in a file of its own and add a line here.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from bertmill.config.reading import unknown_name

if TYPE_CHECKING:
    from bertmill.corpus.objectives.base import Objective

OBJECTIVES: dict[str, str] = {  # name → "module:class"
    "mlm+nsp": "bertmill.corpus.objectives.pairs:NextSentencePrediction",
    "mlm+sop": "bertmill.corpus.objectives.pairs:SentenceOrderPrediction",
    "mlm": "bertmill.corpus.objectives.full_sentences:MaskedLanguageModeling",
    "clm": "bertmill.corpus.objectives.full_sentences:CausalLanguageModeling",
}


def load_objective(name: str) -> Objective:
    """The objective of this name; UsageError if there is none."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, list(OBJECTIVES))
    objective: Objective = resolve_name(OBJECTIVES[name])()
    return objective
