"""BERT models of `transformers` that compute with bertmill and otherwise stay unchanged."""

from typing import Final

STATE: Final = "_bertmill"  # the attribute of an accelerated model that has its options, twin and counts
