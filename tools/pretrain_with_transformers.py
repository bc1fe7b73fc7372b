"""Pre-train Hugging Face's BertForPreTraining as a finished `bertmill pretrain --budget …` run was, and measure it.

    python tools/pretrain_with_transformers.py RUN OUT
The instances, their order, batch size, size, rates by the clock and minutes are those of RUN; the model, its loss and
its padded batches are theirs, with the fused AdamW. The held-out figures come from the same code as those of RUN.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import accumulate
from pathlib import Path

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from bertmill.config.commands import PretrainSettings
from bertmill.config.fields import parse_phases
from bertmill.config.reading import read_settings
from bertmill.corpus.instances import InstanceBatch, Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.masking import MaskingSettings, VocabularyIds
from bertmill.corpus.plan_settings import PlanSettings
from bertmill.corpus.shards import Corpus
from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.objective_trainable import evaluate_on_heldout
from bertmill.training.optimizer import make_optimizer
from bertmill.training.pretrain import HELDOUT_SEED
from bertmill.training.schedule import Schedule

LOG_EVERY = 50


def main() -> None:
    run, out = Path(sys.argv[1]), Path(sys.argv[2])
    settings = read_settings(PretrainSettings, {}, toml_path=run / "config.toml")
    assert settings.corpus is not None
    assert settings.learning_rate is not None
    assert settings.budget is not None
    torch.set_num_threads(settings.threads or torch.get_num_threads())
    corpus = Corpus(settings.corpus)
    tokenizer = BertTokenizer.from_pretrained(corpus.vocabulary_folder)
    phases = parse_phases(settings.length)

    def instances(of: Corpus, name: str, length: int, seed: int) -> Instances:
        plan = PlanSettings(settings.objective, length, settings.short_seq_prob)
        folder = out / f"{name}-{length}"
        return Instances(of, VocabularyIds.of(tokenizer), folder, plan, MaskingSettings(), seed=seed)

    config = BertConfig.of_size(settings.size).with_settings(
        vocab_size=len(tokenizer),
        hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout,
    )
    values = {key: value for key, value in config.to_dict().items() if key != "model_type"}
    torch.manual_seed(settings.seed)
    model = transformers.BertForPreTraining(transformers.BertConfig(**values))
    optimizer = make_optimizer(model, settings.weight_decay)
    schedule = Schedule(settings.learning_rate, seconds=settings.budget)
    started, seconds, steps, pieces = time.monotonic(), 0.0, 0, 0
    model.train()
    for (length, _), end in zip(phases, accumulate(share for _, share in phases), strict=True):
        of_phase = instances(corpus, "train", length, settings.seed)
        for batch in Loader(of_phase, batch_size=settings.batch_size, workers=1).batches(0):
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
    ours = BertForPreTraining.from_pretrained(out / "model")
    with torch.inference_mode():
        heldout = instances(Corpus(run / "heldout"), "heldout", phases[-1][0], HELDOUT_SEED)
        heldout.plan_epoch(0)
        figures = evaluate_on_heldout(ours, heldout, Ranks(torch.device("cpu")))
    print(json.dumps({"steps": steps, "pieces": pieces, "seconds": round(seconds), **figures}))


def _padded(batch: InstanceBatch) -> dict[str, torch.Tensor]:
    """The batch as transformers takes it: rows of one length, with a mask."""

    def rows(flat: torch.Tensor, padding: int) -> torch.Tensor:
        return pad_sequence(list(flat.split(batch.lengths.tolist())), batch_first=True, padding_value=padding)

    ids = torch.from_numpy(batch.piece_ids)
    targets = batch.targets()
    return {
        "input_ids": rows(ids, 0),
        "attention_mask": rows(torch.ones_like(ids), 0),
        "token_type_ids": rows(torch.from_numpy(batch.segments), 0),
        "labels": rows(targets["labels"], -100),
        "next_sentence_label": targets["next_sentence_label"],
    }


if __name__ == "__main__":
    main()
