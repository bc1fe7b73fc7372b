"""What `bertmill inspect CORPUS --show N` adds: an epoch's plan in figures and some finished instances."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from bertmill.config.commands import InspectSettings
from bertmill.corpus.instances import Instances
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.plan import PlanFacts
from bertmill.corpus.plan_settings import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.corpus.show import show_instances
from bertmill.text.tokenizer import BertTokenizer


def instance_lines(path: Path, settings: InspectSettings) -> Iterator[str]:
    """The first instances of an epoch, as training would see them with this seed."""
    plan_settings = PlanSettings(settings.objective, settings.length)
    corpus = Corpus(path)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    masking = MaskingSettings(whole_words=settings.whole_words)
    with tempfile.TemporaryDirectory() as plan_folder:
        vocabulary = VocabularyIds.of(tokenizer)
        instances = Instances(corpus, vocabulary, Path(plan_folder), plan_settings, masking, seed=settings.seed)
        facts = instances.plan_epoch(0)
        yield from _plan_lines(instances, facts)
        batch = instances.make_in_order(0, 0, min(settings.show, facts.counts.instances))
    yield from show_instances(batch, instances.objective, tokenizer)


def _plan_lines(instances: Instances, facts: PlanFacts) -> Iterator[str]:
    settings, counts = instances.settings, facts.counts
    size = f"of {counts.pieces / counts.instances:,.1f} pieces on average"
    yield (
        f"{settings.objective} in {settings.length} pieces: {counts.instances:,} instances in the first epoch, "
        f"{', '.join([size, *instances.objective.describe_plan(facts)])}"
    )
    yield from instances.objective.plan_remarks(facts, instances.corpus.num_pieces)
