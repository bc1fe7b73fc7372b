"""Pre-training: a corpus in, a trained encoder out, in a run folder that any process can take up again.

What the settings leave open is decided once (rate by the model's size, precision by probe) and written to config.toml,
where a resumed run reads it. A training has one or more phases, each with its own length of instances; all share one
schedule. Only the first of several ranks writes.
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
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.config import BertConfig
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.randomness import keyed_seed
from bertmill.text.files import find_files
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.initial_weights import compute_statistics, set_corpus_weights
from bertmill.training.loop import Trainer
from bertmill.training.objective_trainable import ObjectiveTrainable, PretrainingBeginning
from bertmill.training.progress import Listener
from bertmill.training.recipe import PretrainingPlan, decide
from bertmill.training.runs import open_run, prepare_model
from bertmill.training.schedule import Schedule, steps_of_epochs
from bertmill.training.state import PLANS_OF_RANK, RunFolder
from bertmill.training.trainable import Phase
from bertmill.version import __version__

COMMAND = "pretrain"


def pretrain(settings: PretrainSettings, listener: Listener) -> Path | None:
    """Train as `settings` say; returns the folder of the model, to the first of several ranks only."""
    load_objective(settings.objective)  # an unknown one is refused before anything is written
    with open_run(settings, COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        folder, ranks = run.folder, run.ranks
        if run.is_new:
            if ranks.is_first:
                folder.remove_plans()
            ranks.wait()
        corpus = Corpus(run.settings.corpus, verify=ranks.is_first)
        plan = decide(run.settings, corpus, ranks)
        init_sha256 = folder_sha256(find_model(plan.init)) if plan.init else ""
        sources = {"corpus_sha256": corpus.identity, "init_sha256": init_sha256}
        run.require_sources(sources)
        for reason in plan.reasons:
            run.journal.remark(reason)
        tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
        model = _make_model(plan, corpus, tokenizer)
        if model.load_report is not None:
            run.journal.remark(str(model.load_report).replace("\n", "; "))
        heldout = _build_heldout(plan, corpus, folder, tokenizer, ranks)
        vocabulary = VocabularyIds.of(tokenizer)
        lengths, shares = zip(*parse_phases(plan.length), strict=True)
        # Before the folder becomes a run: what cannot be planned cannot be trained on.
        trainables = [_prepare(plan, length, corpus, heldout, vocabulary, ranks) for length in lengths]
        steps = plan.steps
        if math.isfinite(plan.epochs):
            steps = steps_of_epochs(plan.epochs, [each.loader.steps_per_epoch for each in trainables], shares)
        schedule = Schedule(plan.learning_rate, steps, plan.seconds)
        prepare_model(model, plan, ranks)
        run.start(plan.decisions(), sources)
        trainer = Trainer(model, schedule, plan, folder, ranks, run.journal)
        if not trainer.resume() and plan.initial_weights == "corpus" and not plan.init:
            _start_from_corpus(trainer, plan, corpus)
        run.journal.begin(_beginning(plan, trainer, model.config, trainables[0]))
        ends = [*(round(end, 9) for end in accumulate(shares[:-1])), 1.0]  # 0.1 and 0.2 are a little more than 0.3
        trainer.train([Phase(*each) for each in zip(trainables, ends, strict=True)])
        metadata = {
            "made_by": f"bertmill {__version__}",
            "task": "pretrain",
            "objective": plan.objective,
            "vocabulary_sha256": corpus.facts["vocabulary_sha256"],
            "init": plan.init or None,
            "initial_weights": "init" if plan.init else plan.initial_weights,
            "seed": plan.seed,
            "steps": trainer.state.step,
            "seconds": round(trainer.state.seconds, 1),
            "heldout": trainer.state.heldout,
            **sources,
        }
        return run.finish(model, tokenizer, metadata)


def _make_model(plan: PretrainingPlan, corpus: Corpus, tokenizer: BertTokenizer) -> BertPreTrainedModel:
    objective = load_objective(plan.objective)
    model_class: type[BertPreTrainedModel] = MODEL_CLASSES[objective.model_class]
    changes: dict[str, Any] = {
        "causal": objective.causal,
        "hidden_dropout_prob": plan.dropout,
        "attention_probs_dropout_prob": plan.dropout,
    }
    longest = max(length for length, _ in parse_phases(plan.length))
    torch.manual_seed(keyed_seed(plan.seed, "first weights"))  # of all, or of heads that --init does not have
    if plan.init:
        of_model = BertTokenizer.from_pretrained(plan.init)
        corpus.require_vocabulary(of_model.wordpiece, plan.init)
        model = model_class.from_pretrained(plan.init, **changes)
    else:
        config = BertConfig.of_size(plan.size).with_settings(
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


def _start_from_corpus(trainer: Trainer, plan: PretrainingPlan, corpus: Corpus) -> None:
    """Give the model initial weights from the corpus. A checkpoint holds them, and the time that they took."""
    started = time.monotonic()
    if trainer.ranks.is_first:
        model: Any = trainer.model
        statistics = compute_statistics(
            model.config,
            DocumentPart(corpus, "train", plan.heldout_share),
            plan.seed,
            seconds=plan.seconds,
            on_progress=lambda share: trainer.journal.preparing("initial weights", share),
        )
        set_corpus_weights(model, statistics, plan.seed)
    trainer.ranks.share_weights(trainer.model)
    seconds = time.monotonic() - started
    trainer.journal.remark(f"initial weights from the corpus, in {seconds:.0f} s: they know which pieces are alike")
    trainer.save_initial_weights(seconds)


def _build_heldout(
    plan: PretrainingPlan, corpus: Corpus, run: RunFolder, tokenizer: BertTokenizer, ranks: Ranks
) -> Corpus | None:
    """Where the held-out text is: in the corpus itself, or, from files, in a small one of its own in the run folder."""
    if plan.heldout_share:
        return corpus
    if not plan.heldout_files:
        return None
    if ranks.is_first and not run.heldout.exists():
        build_corpus(find_files(plan.heldout_files), tokenizer, run.heldout, workers=1)
    ranks.wait()
    return Corpus(run.heldout)


def _prepare(
    plan: PretrainingPlan, length: int, corpus: Corpus, heldout: Corpus | None, vocabulary: VocabularyIds, ranks: Ranks
) -> ObjectiveTrainable:
    """The objective on instances of one length, with its first epoch planned."""
    cut = PlanSettings(plan.objective, length, plan.short_seq_prob, plan.heldout_share)
    heldout_cut = replace(cut, part="heldout") if plan.heldout_share else cut
    masking = MaskingSettings(plan.mask_rate, *parse_mask_mix(plan.mask_mix), plan.whole_words, plan.fixed_masks)

    # Figures on held-out text can be compared, whatever share of pieces is selected in training.
    heldout_masking = MaskingSettings(whole_words=plan.whole_words)

    def instances(of: Corpus, name: str, cut: PlanSettings, masking: MaskingSettings, seed: int) -> Instances:
        # Each rank plans in a folder of its own: plans are the same, and no rank waits for files of another machine.
        folder = RunFolder(plan.out).plans / f"{PLANS_OF_RANK}{ranks.rank}" / f"{name}-{length}"
        return Instances(of, vocabulary, folder, cut, masking, seed=seed)

    loader = Loader(
        instances(corpus, "train", cut, masking, plan.seed),
        batch_size=plan.batch_size,
        rank=ranks.rank,
        world_size=ranks.count,
        workers=plan.workers,
    )
    try:
        of_heldout = None
        if heldout is not None:
            of_heldout = instances(heldout, "heldout", heldout_cut, heldout_masking, HELDOUT_SEED)
            of_heldout.plan_epoch(0)
    except DataError as error:  # name the files that the user gave, not the corpus in the run folder
        where = error.where if plan.heldout_share else plan.heldout_files[0]
        raise DataError(error.what, where=where, remedy=error.remedy) from None
    loader.instances.plan_epoch(0)
    return ObjectiveTrainable(loader, of_heldout, ranks, plan.micro_batch_pieces)


def _beginning(
    plan: PretrainingPlan, trainer: Trainer, config: BertConfig, trainable: ObjectiveTrainable
) -> PretrainingBeginning:
    share = trainable.objective.predicted_share(plan.mask_rate)
    return PretrainingBeginning(
        trainer.schedule.steps,
        dict(trainer.state.sums),
        objective=trainable.objective,
        vocabulary_size=config.vocab_size,
        unigram_entropy=float(trainable.loader.instances.corpus.facts["statistics"]["unigram_entropy"]),
        weights_used=config.weights_per_piece(share),
        ranks=trainable.ranks,
        precision=torch.bfloat16 if plan.precision == "bf16" else torch.float32,
    )
