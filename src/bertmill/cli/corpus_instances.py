"""What `bertmill inspect CORPUS --show N` adds: an epoch's plan in figures and some finished instances."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bertmill.config.commands import InspectSettings
from bertmill.corpus.instances import Instances
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.objectives import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.corpus.show import show_instances
from bertmill.text.tokenizer import BertTokenizer


def instance_lines(path: Path, settings: InspectSettings) -> Iterator[str]:
    """The first instances of an epoch, as training would see them with this seed."""
    corpus = Corpus(path)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    plan_settings = PlanSettings(settings.objective, settings.length)
    masking = MaskingSettings(whole_words=settings.whole_words)
    with tempfile.TemporaryDirectory() as plan_folder:
        vocabulary = VocabularyIds.of(tokenizer)
        instances = Instances(corpus, vocabulary, Path(plan_folder), plan_settings, masking, seed=settings.seed)
        yield from _plan_lines(instances)
        batch = instances.in_order(0, 0, min(settings.show, instances.count(0)))
    yield from show_instances(batch, settings.objective, tokenizer)


def _plan_lines(instances: Instances) -> Iterator[str]:
    settings, facts = instances.settings, instances.facts(0)
    counts = facts.counts
    label = f", {facts.share_of_label_1:.1%} with label 1" if settings.is_pair else ""
    yield (
        f"{settings.objective} in {settings.length} pieces: {counts.instances:,} instances in the first epoch, "
        f"of {counts.pieces / counts.instances:,.1f} pieces on average{label}"
    )
    if counts.pieces_cut:
        share = counts.pieces_cut / instances.corpus.num_pieces
        yield (
            f"cut off:    {counts.pieces_cut:,} pieces ({share:.2%}) of {counts.sentences_cut:,} sentences "
            "that are too long for a pair"
        )
    if facts.remark:
        yield f"attention:  {facts.remark}"
