"""Registry of pre-training objectives: one object per name, whose module is imported on first use.

    name      an instance                                                    what the model predicts
    mlm+nsp   [CLS] A [SEP] B [SEP]                                          masked pieces; whether B follows A
    mlm+sop   [CLS] A [SEP] B [SEP]                                          masked pieces; whether A and B are in order
    mlm       [CLS] sentences [SEP] sentences of the next document … [SEP]   masked pieces
    clm       the same, read from left to right                              the next piece
The label of a pair is 1 if B is from another document (NSP) or if A and B are swapped (SOP). To add an objective,
subclass `Objective` (base.py) in a new file and add a line here.
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
    """Return the objective with this name; raise UsageError if there is none."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, list(OBJECTIVES))
    objective: Objective = resolve_name(OBJECTIVES[name])()
    return objective
