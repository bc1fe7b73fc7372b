"""Pre-training: a corpus in, a trained encoder out, in a run folder that any process can take up again.

The settings are resolved once (rate by the model's size, precision by probe), written to config.toml, and never
decided again: a resumed run reads them there. A training has one or more phases, each with its own length of instances;
all share one schedule. Only the first of several ranks writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.checkpoint.names import find_model
from bertmill.config.commands import PretrainSettings
from bertmill.config.fields import heldout_share, parse_mask_mix, parse_phases
from bertmill.config.reading import with_whole_paths
from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.parts import HELDOUT_SEED
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, UsageError
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.config import BertConfig
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.randomness import keyed_seed
from bertmill.text.files import find_files
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.loop import Trainer
from bertmill.training.objective_trainable import ObjectiveTrainable, PretrainingBeginning
from bertmill.training.progress import Listener
from bertmill.training.runs import open_run, prepare_model
from bertmill.training.schedule import Schedule, steps_of_epochs
from bertmill.training.state import PLANS_OF_RANK, RunFolder, State
from bertmill.training.trainable import Phase
from bertmill.version import __version__

COMMAND = "pretrain"
DEFAULT_SIZE = "mini"
DEFAULT_EPOCHS = 1.0
# The highest learning rate for a size: to base by trials (docs/benchmarks.md), of large that of base.
LEARNING_RATES = {"tiny": 1e-3, "mini": 1e-3, "small": 2.5e-4, "medium": 1.25e-4, "base": 5e-5, "large": 5e-5}


def pretrain(settings: PretrainSettings, listener: Listener) -> Path | None:
    """Train as `settings` say; returns the folder of the model, to the first of several ranks only."""
    load_objective(settings.objective)  # an unknown one is refused before anything is written
    with open_run(settings, COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        settings, folder, ranks = run.settings, run.folder, run.ranks
        if run.is_new:
            settings = _decide(settings)
            if ranks.is_first:
                folder.remove_plans()
            ranks.wait()
        corpus = Corpus(settings.corpus, verify=ranks.is_first)
        init_sha256 = "" if settings.init is None else folder_sha256(find_model(settings.init))
        sources = {"corpus_sha256": corpus.identity, "init_sha256": init_sha256}
        run.require_sources(sources)
        tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
        model = _make_model(settings, corpus, tokenizer)
        if model.load_report is not None:
            run.journal.remark(str(model.load_report).replace("\n", "; "))
        heldout = _build_heldout(settings, corpus, folder, tokenizer, ranks)
        lengths, shares = zip(*parse_phases(settings.length), strict=True)
        vocabulary = VocabularyIds.of(tokenizer)
        # Before the folder becomes a run: what cannot be planned cannot be trained on.
        trainables = [_prepare(settings, length, corpus, heldout, vocabulary, folder, ranks) for length in lengths]
        schedule = _schedule(settings, [each.loader.steps_per_epoch for each in trainables], shares)
        prepare_model(model, settings, ranks)
        run.start(settings, sources)
        trainer = Trainer(model, schedule, settings, folder, ranks, run.journal, eval_every=settings.eval_every)
        trainer.resume()
        run.journal.begin(_beginning(settings, schedule.steps, trainer.state, model, trainables[0]))
        ends = [*(round(end, 9) for end in accumulate(shares[:-1])), 1.0]  # 0.1 and 0.2 are a little more than 0.3
        trainer.train([Phase(*each) for each in zip(trainables, ends, strict=True)])
        return run.finish(model, tokenizer, {**_provenance(settings, corpus, trainer.state), **sources})


def _decide(given: PretrainSettings) -> PretrainSettings:
    """The settings of a new run, with everything decided that was left open."""
    if given.init is not None and given.size is not None:
        raise UsageError("--init and --size exclude each other")
    decided: dict[str, object] = {"learning_rate": _peak_rate(given)}
    if given.init is None:
        decided["size"] = given.size or DEFAULT_SIZE
    if given.steps is None and given.epochs is None and given.budget is None:
        decided["epochs"] = DEFAULT_EPOCHS
    return with_whole_paths(given).model_copy(update=decided)


def _peak_rate(settings: PretrainSettings) -> float:
    size = settings.size or (DEFAULT_SIZE if settings.init is None else _nearest_size(settings.init))
    return settings.learning_rate or LEARNING_RATES[size]


def _schedule(settings: PretrainSettings, steps_per_epoch: Sequence[float], shares: Sequence[float]) -> Schedule:
    steps: float = settings.steps or math.inf
    if settings.epochs is not None:
        steps = steps_of_epochs(settings.epochs, steps_per_epoch, shares)
    return Schedule(_peak_rate(settings), steps, settings.budget or math.inf)


def _nearest_size(model: str) -> str:
    """The size whose layers have the most similar number of weights."""

    def num_weights(config: BertConfig) -> int:
        return config.num_hidden_layers * config.hidden_size**2

    wanted = num_weights(BertConfig.from_pretrained(model))
    return min(LEARNING_RATES, key=lambda size: abs(math.log(num_weights(BertConfig.of_size(size)) / wanted)))


def _make_model(settings: PretrainSettings, corpus: Corpus, tokenizer: BertTokenizer) -> BertPreTrainedModel:
    objective = load_objective(settings.objective)
    model_class: type[BertPreTrainedModel] = MODEL_CLASSES[objective.model_class]
    changes: dict[str, Any] = {
        "causal": objective.causal,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
    }
    longest = max(length for length, _ in parse_phases(settings.length))
    torch.manual_seed(keyed_seed(settings.seed, "first weights"))  # of all, or of heads that --init does not have
    if settings.init is not None:
        of_model = BertTokenizer.from_pretrained(settings.init)
        corpus.require_vocabulary(of_model.wordpiece, settings.init)
        model = model_class.from_pretrained(settings.init, **changes)
    else:
        assert settings.size is not None
        config = BertConfig.of_size(settings.size).with_settings(
            vocab_size=len(tokenizer),
            max_position_embeddings=max(512, longest),
            pad_token_id=tokenizer.pad_token_id,
            **changes,
        )
        model = model_class(config)
    if longest > model.config.max_position_embeddings:
        positions = model.config.max_position_embeddings
        raise UsageError(f"--length {longest} is longer than the {positions} positions of the model")
    return model


def _build_heldout(
    settings: PretrainSettings, corpus: Corpus, run: RunFolder, tokenizer: BertTokenizer, ranks: Ranks
) -> Corpus | None:
    """Where the held-out text is: in the corpus itself, or, from files, in a small one of its own in the run folder."""
    if settings.heldout is None:
        return None
    if heldout_share(settings.heldout) is not None:
        return corpus
    if ranks.is_first and not run.heldout.exists():
        build_corpus(find_files([settings.heldout]), tokenizer, run.heldout, workers=1)
    ranks.wait()
    return Corpus(run.heldout)


def _prepare(
    settings: PretrainSettings,
    length: int,
    corpus: Corpus,
    heldout: Corpus | None,
    vocabulary: VocabularyIds,
    run: RunFolder,
    ranks: Ranks,
) -> ObjectiveTrainable:
    """The objective on instances of one length, with its first epoch planned."""
    share = heldout_share(settings.heldout) or 0.0
    plan = PlanSettings(settings.objective, length, settings.short_seq_prob, heldout_share=share)
    heldout_plan = replace(plan, part="heldout") if share else plan
    mask, random, same = parse_mask_mix(settings.mask_mix)
    masking = MaskingSettings(settings.mask_rate, mask, random, same, settings.whole_words, settings.fixed_masks)

    def instances(of: Corpus, name: str, plan: PlanSettings, seed: int) -> Instances:
        # Each rank plans in a folder of its own: plans are the same, and no rank waits for files of another machine.
        folder = run.plans / f"{PLANS_OF_RANK}{ranks.rank}" / f"{name}-{length}"
        return Instances(of, vocabulary, folder, plan, masking, seed=seed)

    loader = Loader(
        instances(corpus, "train", plan, settings.seed),
        batch_size=settings.batch_size,
        rank=ranks.rank,
        world_size=ranks.count,
        workers=settings.workers,
    )
    try:
        of_heldout = None if heldout is None else instances(heldout, "heldout", heldout_plan, HELDOUT_SEED)
        if of_heldout is not None:
            of_heldout.plan_epoch(0)
    except DataError as error:  # name the files that the user gave, not the corpus in the run folder
        raise DataError(error.what, where=error.where if share else settings.heldout, remedy=error.remedy) from None
    loader.instances.plan_epoch(0)
    return ObjectiveTrainable(loader, of_heldout, ranks, settings.micro_batch_pieces)


def _beginning(
    settings: PretrainSettings,
    steps: float,
    state: State,
    model: BertPreTrainedModel,
    trainable: ObjectiveTrainable,
) -> PretrainingBeginning:
    share = trainable.objective.predicted_share(settings.mask_rate)
    return PretrainingBeginning(
        steps,
        dict(state.sums),
        objective=trainable.objective,
        vocabulary_size=model.config.vocab_size,
        unigram_entropy=float(trainable.loader.instances.corpus.facts["statistics"]["unigram_entropy"]),
        weights_used=model.config.weights_per_piece(share),
        ranks=trainable.ranks,
        precision=torch.bfloat16 if settings.precision == "bf16" else torch.float32,
    )


def _provenance(settings: PretrainSettings, corpus: Corpus, state: State) -> dict[str, object]:
    return {
        "made_by": f"bertmill {__version__}",
        "task": "pretrain",
        "objective": settings.objective,
        "vocabulary_sha256": corpus.facts["vocabulary_sha256"],
        "init": settings.init,
        "seed": settings.seed,
        "steps": state.step,
        "seconds": round(state.seconds, 1),
        "heldout": state.heldout,
    }
