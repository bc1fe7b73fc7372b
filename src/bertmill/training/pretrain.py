"""Pre-training: trains an encoder on a corpus, in a run folder from which any process can resume.

recipe.py resolves the settings left open; config.toml records them, and a resumed run reads them from there. A run has
one or more phases, each with its own instance length; all share one schedule. Only the first rank writes.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.checkpoint.names import find_model
from bertmill.config.commands import PretrainSettings
from bertmill.config.fields import parse_mask_mix, parse_phases
from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.parts import HELDOUT_SEED, DocumentPart
from bertmill.corpus.plan import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.errors import DataError, UsageError
from bertmill.model.config import BertConfig
from bertmill.model.heads import BertWithMaskedLM
from bertmill.model.mean_layer import drop_mean_layer
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.model.registry import MODEL_CLASSES
from bertmill.randomness import keyed_seed
from bertmill.text.files import find_files
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.final_evaluation import evaluate_pretraining, write_evaluation
from bertmill.training.initial_weights import compute_statistics, set_corpus_weights
from bertmill.training.loop import Trainer, computing_in
from bertmill.training.objective_trainable import ObjectiveTrainable, PretrainingBeginning
from bertmill.training.progress import Listener
from bertmill.training.recipe import ResolvedPretraining, resolve
from bertmill.training.runs import open_run, prepare_model
from bertmill.training.schedule import Schedule, steps_of_epochs
from bertmill.training.state import PLANS_OF_RANK, RunFolder
from bertmill.training.trainable import Phase
from bertmill.version import __version__

COMMAND = "pretrain"


def pretrain(settings: PretrainSettings, listener: Listener) -> Path | None:
    """Pre-train according to `settings`. Returns the model folder on the first rank, None on the others."""
    load_objective(settings.objective)  # an unknown objective fails before anything is written
    with open_run(settings, COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        folder, ranks = run.folder, run.ranks
        if run.is_new:
            if ranks.is_first:
                folder.remove_plans()
            ranks.wait()
        corpus = Corpus(run.settings.corpus, verify=ranks.is_first)
        resolved = resolve(run.settings, corpus, ranks)
        init_sha256 = folder_sha256(find_model(resolved.init)) if resolved.init else ""
        sources = {"corpus_sha256": corpus.identity, "init_sha256": init_sha256}
        run.require_sources(sources)
        tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
        model = _make_model(resolved, corpus, tokenizer)
        if model.load_report is not None:
            run.journal.remark(str(model.load_report).replace("\n", "; "))
        heldout = _build_heldout(resolved, corpus, folder, tokenizer, ranks)
        vocabulary = VocabularyIds.of(tokenizer)
        lengths, fractions = zip(*parse_phases(resolved.length), strict=True)
        # Plan before the folder becomes a run: a failure here leaves nothing to resume.
        trainables = [_prepare(resolved, length, corpus, heldout, vocabulary, ranks) for length in lengths]
        steps = resolved.steps
        if math.isfinite(resolved.epochs):
            steps = steps_of_epochs(resolved.epochs, [each.loader.steps_per_epoch for each in trainables], fractions)
        schedule = Schedule(resolved.learning_rate, steps, resolved.seconds)
        prepare_model(model, resolved, ranks)
        run.start(resolved.decisions(), sources)
        for reason in resolved.reasons:
            run.journal.remark(reason)
        trainer = Trainer(model, schedule, resolved, folder, ranks, run.journal)
        if not trainer.resume() and resolved.starts_from_corpus:
            _start_from_corpus(trainer, resolved, corpus)
        run.journal.begin(_beginning(resolved, trainer, model.config, trainables[0]))
        ends = [*(round(end, 9) for end in accumulate(fractions[:-1])), 1.0]  # 0.1 + 0.2 exceeds 0.3
        trainer.train([Phase(*each) for each in zip(trainables, ends, strict=True)])
        if ranks.is_first:
            model.eval()
            with computing_in(resolved.precision, ranks.device):
                results = evaluate_pretraining(model, trainables[-1], tokenizer)
            write_evaluation(folder.evaluation, results)
        metadata = {
            "made_by": f"bertmill {__version__}",
            "task": "pretrain",
            "objective": resolved.objective,
            "vocabulary_sha256": corpus.facts["vocabulary_sha256"],
            "init": resolved.init or None,
            "initial_weights": "init" if resolved.init else resolved.initial_weights,
            "seed": resolved.seed,
            "steps": trainer.state.step,
            "seconds": round(trainer.state.seconds, 1),
            "heldout": trainer.state.heldout,
            **sources,
        }
        return run.finish(model, tokenizer, metadata)


def _make_model(resolved: ResolvedPretraining, corpus: Corpus, tokenizer: BertTokenizer) -> BertPreTrainedModel:
    objective = load_objective(resolved.objective)
    model_class: type[BertPreTrainedModel] = MODEL_CLASSES[objective.model_class]
    changes: dict[str, Any] = {
        "causal": objective.causal,
        "hidden_dropout_prob": resolved.dropout,
        "attention_probs_dropout_prob": resolved.dropout,
    }
    longest = max(length for length, _ in parse_phases(resolved.length))
    torch.manual_seed(keyed_seed(resolved.seed, "first weights"))  # of all layers, or of heads that `init` lacks
    if resolved.init:
        of_model = BertTokenizer.from_pretrained(resolved.init)
        corpus.require_vocabulary(of_model.wordpiece, resolved.init)
        model: BertPreTrainedModel = model_class.from_pretrained(resolved.init, **changes)
        drop_mean_layer(model)  # all its vectors are the same
    else:
        config = BertConfig.of_size(resolved.size).with_settings(
            vocab_size=len(tokenizer),
            max_position_embeddings=max(512, longest),
            pad_token_id=tokenizer.pad_token_id,
            **changes,
        )
        model = model_class(config)
    if longest > model.config.max_position_embeddings:
        positions = model.config.max_position_embeddings
        raise UsageError(f"length {longest} exceeds the {positions} positions of the model")
    return model


def _start_from_corpus(trainer: Trainer, resolved: ResolvedPretraining, corpus: Corpus) -> None:
    """Compute the initial weights and save them, with the time they took, as the checkpoint of step 0."""
    started = time.monotonic()
    if trainer.ranks.is_first:
        model = trainer.model
        assert isinstance(model, BertWithMaskedLM)
        statistics = compute_statistics(
            model.config,
            DocumentPart(corpus, "train", resolved.heldout_share),
            resolved.seed,
            budget_s=resolved.seconds,
            on_progress=lambda fraction: trainer.journal.preparing("initial weights", fraction),
        )
        set_corpus_weights(model, statistics, resolved.seed)
    trainer.ranks.share_weights(trainer.model)
    seconds = time.monotonic() - started
    trainer.journal.remark(f"computed initial weights from corpus statistics in {seconds:.0f} s")
    trainer.save_initial_weights(seconds)
    if trainer.schedule.is_over(trainer.state.step, trainer.state.seconds):
        remark = "computing the initial weights used up the budget, so no steps were trained; use a longer budget"
        trainer.journal.remark(remark)


def _build_heldout(
    resolved: ResolvedPretraining, corpus: Corpus, run: RunFolder, tokenizer: BertTokenizer, ranks: Ranks
) -> Corpus | None:
    """The corpus with the held-out text: the corpus itself for a fraction, a small one in the run folder for files."""
    if resolved.heldout_share:
        return corpus
    if not resolved.heldout_files:
        return None
    if ranks.is_first and not run.heldout.exists():
        build_corpus(find_files(resolved.heldout_files), tokenizer, run.heldout, workers=1)
    ranks.wait()
    return Corpus(run.heldout)


def _prepare(
    resolved: ResolvedPretraining, length: int, corpus: Corpus, heldout: Corpus | None, ids: VocabularyIds, ranks: Ranks
) -> ObjectiveTrainable:
    """The trainable for instances of one length, with its first epoch planned."""
    cut = PlanSettings(resolved.objective, length, resolved.short_seq_prob, resolved.heldout_share)
    heldout_cut = replace(cut, part="heldout") if resolved.heldout_share else cut
    mix = parse_mask_mix(resolved.mask_mix)
    masking = MaskingSettings(resolved.mask_rate, *mix, resolved.whole_words, resolved.fixed_masks)
    # Always the default mask rate and mix, so that held-out metrics are comparable across runs.
    heldout_masking = MaskingSettings(whole_words=resolved.whole_words)

    def instances(of: Corpus, name: str, cut: PlanSettings, masking: MaskingSettings, seed: int) -> Instances:
        # Each rank has its own plan folder: the plans are identical, and no rank waits for files from another machine.
        folder = RunFolder(resolved.out).plans / f"{PLANS_OF_RANK}{ranks.rank}" / f"{name}-{length}"
        return Instances(of, ids, folder, cut, masking, seed=seed)

    loader = Loader(
        instances(corpus, "train", cut, masking, resolved.seed),
        batch_size=resolved.batch_size,
        rank=ranks.rank,
        world_size=ranks.count,
        workers=resolved.workers,
    )
    try:
        of_heldout = None
        if heldout is not None:
            of_heldout = instances(heldout, "heldout", heldout_cut, heldout_masking, HELDOUT_SEED)
            of_heldout.plan_epoch(0)
    except DataError as error:  # name the user's files, not the corpus in the run folder
        where = error.where if resolved.heldout_share else resolved.heldout_files[0]
        raise DataError(error.what, where=where, remedy=error.remedy) from None
    loader.instances.plan_epoch(0)
    return ObjectiveTrainable(loader, of_heldout, ranks, resolved.micro_batch_pieces)


def _beginning(
    resolved: ResolvedPretraining, trainer: Trainer, config: BertConfig, trainable: ObjectiveTrainable
) -> PretrainingBeginning:
    """The reference values to show before the first step."""
    fraction = trainable.objective.predicted_share(resolved.mask_rate)
    return PretrainingBeginning(
        trainer.schedule.steps,
        dict(trainer.state.sums),
        objective=trainable.objective,
        vocabulary_size=config.vocab_size,
        unigram_entropy=float(trainable.loader.instances.corpus.facts["statistics"]["unigram_entropy"]),
        weights_used=config.weights_per_piece(fraction),
        ranks=trainable.ranks,
        precision=torch.bfloat16 if resolved.precision == "bf16" else torch.float32,
    )
