"""Pre-train Hugging Face's BERT with the settings of a finished `bertmill pretrain --budget …` run.

    python -m benchmarks.pretrain_with_transformers RUN OUT [--learning-rate RATE]

- From RUN: instances and their order, batch size, model size, dropout, schedule, time budget, and the peak learning
  rate unless another is given. Random weights may need a lower rate.
- From `transformers`: the model, its random initial weights, its loss and its padded batches, with the fused AdamW.
- The same code evaluates both models on held-out text.
- RUN must have used --heldout FILE, --precision fp32 and the default masks.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import accumulate
from pathlib import Path

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from benchmarks.inputs import open_instances
from bertmill.config.commands import PretrainSettings
from bertmill.config.fields import heldout_share, parse_phases
from bertmill.config.reading import read_settings
from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.objectives import load_objective
from bertmill.corpus.parts import HELDOUT_SEED
from bertmill.corpus.shards import Corpus
from bertmill.model.config import BertConfig
from bertmill.model.registry import MODEL_CLASSES
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.objective_trainable import evaluate_on_heldout
from bertmill.training.optimizer import make_optimizer
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder

LOG_EVERY = 50
HELDOUT_MASK_RATE = 0.15


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder of `bertmill pretrain --budget …`")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the plans and the trained model")
    parser.add_argument("--learning-rate", type=float, metavar="RATE", help="peak learning rate (default: that of RUN)")
    given = parser.parse_args()
    train(given.run, given.out, given.learning_rate)


def train(run: Path, out: Path, learning_rate: float | None = None) -> None:
    """Train with the settings of `run`, write the model to `out` and print the held-out metrics."""
    settings = read_settings(PretrainSettings, {}, toml_path=run / "config.toml")
    assert settings.corpus is not None
    assert settings.size is not None
    assert settings.learning_rate is not None
    assert settings.budget is not None
    assert settings.dropout is not None
    assert settings.mask_rate is not None
    if heldout_share(settings.heldout or "0") is not None or settings.precision != "fp32":
        raise SystemExit(f"{run}: not comparable; use a run with --heldout FILE and --precision fp32")
    if settings.mask_mix != "80/10/10" or settings.whole_words or settings.fixed_masks:
        raise SystemExit(f"{run}: not comparable; use the default --mask-mix, and no --whole-words or --fixed-masks")
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    corpus = Corpus(settings.corpus)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    phases = parse_phases(settings.length)

    def instances(of: Corpus, name: str, length: int, mask_rate: float, seed: int) -> Instances:
        return open_instances(
            of,
            tokenizer,
            out / f"{name}-{length}",
            objective=settings.objective,
            length=length,
            short_seq_prob=settings.short_seq_prob,
            mask_rate=mask_rate,
            seed=seed,
        )

    torch.manual_seed(settings.seed)
    objective = load_objective(settings.objective)
    if objective.causal:
        raise SystemExit(f"{run}: a left-to-right objective is not supported; use a run with another --objective")
    model = _make_model(objective.model_class, settings.size, len(tokenizer), settings.dropout)
    optimizer = make_optimizer(model, settings.weight_decay)
    schedule = Schedule(learning_rate or settings.learning_rate, seconds=settings.budget)
    planned = {length: instances(corpus, "train", length, settings.mask_rate, settings.seed) for length, _ in phases}
    for of_length in planned.values():
        of_length.plan_epoch(0)  # RUN also plans before its time starts
    started, seconds, steps, pieces = time.monotonic(), 0.0, 0, 0
    model.train()
    for (length, _), end in zip(phases, accumulate(fraction for _, fraction in phases), strict=True):
        for batch in Loader(planned[length], batch_size=settings.batch_size, workers=1).batches(0):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(steps, seconds)
            optimizer.zero_grad()
            loss = model(**_padded(batch)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_gradient_norm)
            optimizer.step()
            steps, pieces = steps + 1, pieces + len(batch.piece_ids)
            step_seconds, seconds = time.monotonic() - started - seconds, time.monotonic() - started
            if steps % LOG_EVERY == 0:
                print(f"step {steps:,}  loss {loss:.3f}  {pieces / seconds:,.0f} pieces/s", flush=True)
            is_over = schedule.is_over(steps, seconds, step_seconds)
            if is_over or (end < 1 and schedule.progress(steps, seconds) >= end):
                break
    model.save_pretrained(out / "model")
    ours = MODEL_CLASSES[objective.model_class].from_pretrained(out / "model")
    with torch.inference_mode():
        heldout = instances(Corpus(RunFolder(run).heldout), "heldout", phases[-1][0], HELDOUT_MASK_RATE, HELDOUT_SEED)
        heldout.plan_epoch(0)
        metrics = evaluate_on_heldout(ours, heldout, Ranks(torch.device("cpu")))
    print(json.dumps({"steps": steps, "pieces": pieces, "seconds": round(seconds), **metrics}))


def _make_model(model_class: str, size: str, vocab_size: int, dropout: float) -> transformers.BertPreTrainedModel:
    config = BertConfig.of_size(size).with_settings(
        vocab_size=vocab_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    values = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    model: transformers.BertPreTrainedModel = getattr(transformers, model_class)(transformers.BertConfig(**values))
    return model


def _padded(batch: InstanceBatch) -> dict[str, torch.Tensor]:
    """Return the batch as keyword arguments for `transformers`: rows padded to one length, with a mask."""

    def rows(flat: torch.Tensor, padding: int) -> torch.Tensor:
        return pad_sequence(list(flat.split(batch.lengths.tolist())), batch_first=True, padding_value=padding)

    ids = torch.from_numpy(batch.piece_ids)
    targets = batch.targets()
    labels = rows(targets.pop("labels"), -100)
    return {
        "input_ids": rows(ids, 0),
        "attention_mask": rows(torch.ones_like(ids), 0),
        "token_type_ids": rows(torch.from_numpy(batch.segments), 0),
        "labels": labels,
        **targets,
    }


if __name__ == "__main__":
    main()
