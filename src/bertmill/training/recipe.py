"""Pre-training defaults: resolves the settings left open. See docs/recipe.md for the reasons."""

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
# Peak learning rates for random weights. Tuned up to base (docs/benchmarks.md); large uses the rate of base.
LEARNING_RATES = {"tiny": 1e-3, "mini": 1e-3, "small": 2.5e-4, "medium": 1.25e-4, "base": 5e-5, "large": 5e-5}
CORPUS_FACTOR = 2  # weights from the corpus train stably at twice the rate (tried with mini)
SHORT_EPOCHS = 4.0  # shorter runs do not overfit
SHORT_TRAINING = {"dropout": 0.0, "mask_rate": 0.3}
LONG_TRAINING = {"dropout": 0.1, "mask_rate": 0.15}  # the paper's
OPERATIONS_PER_WEIGHT = 6  # forward 2, backward 4


class ResolvedPretraining(ResolvedTraining, PretrainFields, extra="ignore", allow_inf_nan=True):
    """The resolved settings of a pre-training run."""

    init: str  # the model to continue, or empty
    size: str  # of a new model, or the size nearest to `init`
    learning_rate: float
    dropout: float
    mask_rate: float
    steps: float
    epochs: float
    seconds: float
    heldout_share: float
    heldout_files: tuple[str, ...]
    reasons: tuple[str, ...] = ()  # one per decision, for the user

    @property
    def starts_from_corpus(self) -> bool:
        """Whether the initial weights are computed from corpus statistics."""
        return not self.init and self.initial_weights == "corpus"

    def decisions(self) -> dict[str, object]:
        """The values that config.toml records for settings left open."""
        return {
            "size": None if self.init else self.size,
            "learning_rate": self.learning_rate,
            "dropout": self.dropout,
            "mask_rate": self.mask_rate,
            "epochs": self.epochs if math.isfinite(self.epochs) else None,
        }


def resolve(settings: PretrainSettings, corpus: Corpus, ranks: Ranks) -> ResolvedPretraining:
    """Resolve the settings left open; `settings` of a resumed run include its decisions."""
    if settings.init is not None and settings.size is not None:
        raise UsageError("`init` and `size` are mutually exclusive", remedy="omit one of them")
    settings = with_whole_paths(settings)
    config = BertConfig.of_size(settings.size or DEFAULT_SIZE, vocab_size=corpus.vocabulary_size)
    size = settings.size or DEFAULT_SIZE
    if settings.init is not None:
        config = BertConfig.from_pretrained(settings.init)
        size = nearest_size(config)
    fraction = heldout_share(settings.heldout)
    values = {
        "init": settings.init or "",
        "size": size,
        "steps": settings.steps or math.inf,
        "epochs": settings.epochs or (math.inf if settings.steps or settings.budget else DEFAULT_EPOCHS),
        "seconds": settings.budget or math.inf,
        "heldout_share": fraction or 0.0,
        "heldout_files": (settings.heldout,) if settings.heldout and fraction is None else (),
    }
    given = {name: value for name, value in settings if value is not None}
    defaults = {**SHORT_TRAINING, "learning_rate": LEARNING_RATES[size]}
    resolved = ResolvedPretraining.model_validate({**defaults, **given, **values})
    if settings.learning_rate is None and resolved.starts_from_corpus:
        resolved = resolved.model_copy(update={"learning_rate": CORPUS_FACTOR * resolved.learning_rate})
    reasons = _reasons(settings, resolved, config)
    left_open = [name for name in SHORT_TRAINING if name not in given]
    if left_open:
        epochs = _expected_epochs(resolved, config, corpus, ranks)
        recipe, why = SHORT_TRAINING, f"short run, fewer than {SHORT_EPOCHS:g} epochs"
        if epochs >= SHORT_EPOCHS:
            recipe, why = LONG_TRAINING, f"{SHORT_EPOCHS:g} epochs or more"
        resolved = resolved.model_copy(update={name: recipe[name] for name in left_open})
        is_masked = load_objective(resolved.objective).is_masked
        shown = [name for name in left_open if is_masked or name != "mask_rate"]
        if shown:
            decisions = ", ".join(f"{name.replace('_', ' ')} {recipe[name]:g}" for name in shown)
            about = "at most" if math.isfinite(resolved.seconds) else "about"
            reasons.append(f"{decisions}: {why} ({about} {epochs:.2g})")
    return resolved.model_copy(update={"reasons": tuple(reasons)})


def _reasons(settings: PretrainSettings, resolved: ResolvedPretraining, config: BertConfig) -> list[str]:
    """Reasons for the size, the learning rate and the duration, if `settings` leave them open."""
    reasons = []
    if settings.size is None and settings.init is None:
        shape = f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}"
        reasons.append(f"size {resolved.size} (default): {shape}")
    if settings.learning_rate is None:
        origin = " (nearest size)" if resolved.init else ""
        if resolved.starts_from_corpus:
            origin = " with weights from the corpus"
        reasons.append(f"learning rate {resolved.learning_rate:g}: default for {resolved.size}{origin}")
    if math.isfinite(resolved.epochs) and settings.epochs is None:
        reasons.append(f"training for {resolved.epochs:g} epoch (default)")
    return reasons


def nearest_size(config: BertConfig) -> str:
    """The size whose layers have the most similar number of weights."""

    def num_weights(config: BertConfig) -> int:
        return config.num_hidden_layers * config.hidden_size**2

    wanted = num_weights(config)
    return min(LEARNING_RATES, key=lambda size: abs(math.log(num_weights(BertConfig.of_size(size)) / wanted)))


def _expected_epochs(resolved: ResolvedPretraining, config: BertConfig, corpus: Corpus, ranks: Ranks) -> float:
    """Roughly how many epochs the run will take.

    For a time budget, an upper bound: it assumes the rate of a large matrix product, which no run reaches.
    """
    if math.isfinite(resolved.epochs):
        return resolved.epochs
    if math.isfinite(resolved.steps):
        length = sum(length * fraction for length, fraction in parse_phases(resolved.length))
        return resolved.steps * resolved.batch_size * length / corpus.num_pieces
    fraction = load_objective(resolved.objective).predicted_share(resolved.mask_rate)
    rate = matrix_product_rate(ranks.device, torch.bfloat16 if resolved.precision == "bf16" else torch.float32)
    pieces_per_second = ranks.count * rate / (OPERATIONS_PER_WEIGHT * config.weights_per_piece(fraction))
    return ranks.largest([resolved.seconds * pieces_per_second / corpus.num_pieces])[0]
