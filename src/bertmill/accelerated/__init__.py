"""`transformers` BERT models that run on bertmill's kernels and otherwise stay unchanged."""

from typing import Final

STATE: Final = "_bertmill"  # the attribute of an accelerated model that has its options, shared model and counts
