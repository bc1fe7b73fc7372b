"""BERT models of `transformers` that compute with bertmill's kernels and stay the objects they are."""

from typing import Final

STATE: Final = "_bertmill"  # the attribute of an accelerated model that has its options, twin and counts
