"""Inputs that several benchmarks use: the first lines of a text file, and pre-training instances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertmill.corpus.instances import Instances
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.text.files import read_lines
from bertmill.text.tokenizer import BertTokenizer


def first_lines(path: Path, num_bytes: int) -> Iterator[str]:
    """Yield the first lines of `path` that fit into `num_bytes`, including empty lines."""
    size = 0
    for line in read_lines([str(path)]):
        size += len(line.text.encode()) + 1
        if size > num_bytes:
            return
        yield line.text


def write_beginning(source: Path, destination: Path, num_bytes: int) -> Path:
    """Write the first lines of `source` that fit into `num_bytes` to `destination`, uncompressed, and return it."""
    with destination.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in first_lines(source, num_bytes))
    return destination


def open_instances(
    corpus: Corpus,
    tokenizer: BertTokenizer,
    plans: Path,
    *,
    objective: str = "mlm+nsp",
    length: int = 128,
    short_seq_prob: float = 0.1,
    mask_rate: float = 0.15,
    whole_words: bool = False,
    seed: int = 0,
) -> Instances:
    """Open the instances of `corpus`; their plans are written to the folder `plans`."""
    plan = PlanSettings(objective, length, short_seq_prob)
    masking = MaskingSettings(mask_rate, whole_words=whole_words)
    return Instances(corpus, VocabularyIds.of(tokenizer), plans, plan, masking, seed=seed)
