"""The recipe of pre-training: what is decided where the settings leave it open. docs/recipe.md has the reasons."""

from __future__ import annotations

import math

import torch

from bertmill.config.commands import PretrainFields, PretrainSettings
from bertmill.config.fields import heldout_share, parse_phases
from bertmill.config.reading import with_whole_paths
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.shards import Corpus
from bertmill.errors import UsageError
from bertmill.machine import matrix_product_rate
from bertmill.model.config import BertConfig
from bertmill.training.distributed import Ranks
from bertmill.training.loop import ResolvedTraining

DEFAULT_SIZE = "mini"
DEFAULT_EPOCHS = 1.0
# The peak learning rate for a size: to base by trials (docs/benchmarks.md), of large that of base.
LEARNING_RATES = {"tiny": 1e-3, "mini": 1e-3, "small": 2.5e-4, "medium": 1.25e-4, "base": 5e-5, "large": 5e-5}
CORPUS_FACTOR = 2  # initial weights from the corpus bear a higher rate
SHORT_EPOCHS = 4.0  # a training of fewer epochs does not learn its text by heart
SHORT_TRAINING = {"dropout": 0.0, "mask_rate": 0.3}
LONG_TRAINING = {"dropout": 0.1, "mask_rate": 0.15}  # the paper's
OPERATIONS_PER_WEIGHT = 6  # forward 2, backward 4


class ResolvedPretraining(ResolvedTraining, PretrainFields, extra="ignore", allow_inf_nan=True):
    """The settings of a pre-training with everything resolved."""

    init: str  # the model to continue
    size: str  # that of a new model, or the one nearest to `init`
    learning_rate: float
    dropout: float
    mask_rate: float
    steps: float
    epochs: float
    seconds: float
    heldout_share: float
    heldout_files: tuple[str, ...]
    reasons: tuple[str, ...] = ()  # for each decision, for a person

    def decisions(self) -> dict[str, object]:
        """What config.toml records of settings that were left open."""
        return {
            "size": None if self.init else self.size,
            "learning_rate": self.learning_rate,
            "dropout": self.dropout,
            "mask_rate": self.mask_rate,
            "epochs": self.epochs if math.isfinite(self.epochs) else None,
        }


def resolve(settings: PretrainSettings, corpus: Corpus, ranks: Ranks) -> ResolvedPretraining:
    """Resolve what `settings` leave open; those of a resumed run have its decisions."""
    if settings.init is not None and settings.size is not None:
        raise UsageError("--init and --size exclude each other")
    settings = with_whole_paths(settings)
    config = BertConfig.of_size(settings.size or DEFAULT_SIZE, vocab_size=corpus.vocabulary_size)
    size = settings.size or DEFAULT_SIZE
    if settings.init is not None:
        config = BertConfig.from_pretrained(settings.init)
        size = _nearest_size(config)
    starts_from_corpus = settings.init is None and settings.initial_weights == "corpus"
    share = heldout_share(settings.heldout)
    values = {
        "init": settings.init or "",
        "size": size,
        "learning_rate": settings.learning_rate or default_learning_rate(size, starts_from_corpus),
        "steps": settings.steps or math.inf,
        "epochs": settings.epochs or (math.inf if settings.steps or settings.budget else DEFAULT_EPOCHS),
        "seconds": settings.budget or math.inf,
        "heldout_share": share or 0.0,
        "heldout_files": (settings.heldout,) if settings.heldout and share is None else (),
    }
    given = {name: value for name, value in settings if value is not None}
    resolved = ResolvedPretraining.model_validate({**SHORT_TRAINING, **given, **values})
    reasons = _reasons(settings, resolved, config)
    left_open = [name for name in SHORT_TRAINING if name not in given]
    if left_open:
        epochs = _expected_epochs(resolved, config, corpus, ranks)
        recipe, why = SHORT_TRAINING, f"fewer than {SHORT_EPOCHS:g} epochs"
        if epochs >= SHORT_EPOCHS:
            recipe, why = LONG_TRAINING, f"{SHORT_EPOCHS:g} epochs or more"
        resolved = resolved.model_copy(update={name: recipe[name] for name in left_open})
        decisions = ", ".join(f"{name.replace('_', ' ')} {recipe[name]:g}" for name in left_open)
        reasons.append(f"{decisions}: {why} (about {epochs:.2g})")
    return resolved.model_copy(update={"reasons": tuple(reasons)})


def _reasons(settings: PretrainSettings, resolved: ResolvedPretraining, config: BertConfig) -> list[str]:
    """Why size, learning rate and length of a training were decided as they were, where `settings` leave them open."""
    reasons = []
    if settings.size is None and settings.init is None:
        shape = f"{config.num_hidden_layers} layers, {config.hidden_size} wide"
        reasons.append(f"size {resolved.size}, the default: {shape}")
    if settings.learning_rate is None:
        which = f"the best in trials with {resolved.size}" + (", the nearest size" if resolved.init else "")
        reasons.append(f"learning rate {resolved.learning_rate:g}: {which}")
    if math.isfinite(resolved.epochs) and settings.epochs is None:
        reasons.append(f"{resolved.epochs:g} epoch, the default length")
    return reasons


def default_learning_rate(size: str, starts_from_corpus: bool) -> float:
    return LEARNING_RATES[size] * (CORPUS_FACTOR if starts_from_corpus else 1)


def _nearest_size(config: BertConfig) -> str:
    """The size whose layers have the most similar number of weights."""

    def num_weights(config: BertConfig) -> int:
        return config.num_hidden_layers * config.hidden_size**2

    wanted = num_weights(config)
    return min(LEARNING_RATES, key=lambda size: abs(math.log(num_weights(BertConfig.of_size(size)) / wanted)))


def _expected_epochs(resolved: ResolvedPretraining, config: BertConfig, corpus: Corpus, ranks: Ranks) -> float:
    """How often the training will see the corpus, roughly: by the clock, at the rate of a large matrix product."""
    if math.isfinite(resolved.epochs):
        return resolved.epochs
    if math.isfinite(resolved.steps):
        length = sum(length * share for length, share in parse_phases(resolved.length))
        return resolved.steps * resolved.batch_size * length / corpus.num_pieces
    share = load_objective(resolved.objective).predicted_share(resolved.mask_rate)
    rate = matrix_product_rate(ranks.device, torch.bfloat16 if resolved.precision == "bf16" else torch.float32)
    pieces_per_second = ranks.count * rate / (OPERATIONS_PER_WEIGHT * config.weights_per_piece(share))
    return ranks.largest([resolved.seconds * pieces_per_second / corpus.num_pieces])[0]
