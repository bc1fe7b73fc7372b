"""The training runs of the demo: pre-training, then fine-tuning from the encoder, from random weights and from MiniLM.

Each is a run folder. An unfinished run is resumed.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from bertmill.checkpoint.names import METADATA_FILE, METADATA_FORMAT
from bertmill.config.commands import FinetuneSettings, PretrainSettings
from bertmill.demo.documentation import SEED
from bertmill.demo.folder import Demo, Tuning
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.randomness import keyed_seed
from bertmill.storage import new_folder, write_file
from bertmill.tasks import PRETRAINED as PRETRAINED_TASK
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.finetune import finetune
from bertmill.training.pretrain import pretrain
from bertmill.training.progress import Listener
from bertmill.training.state import RunFolder
from bertmill.version import __version__

DEV_SHARE = "0.15"  # of the train rows
SAVE_EVERY = 50  # steps of pre-training, about half a minute
LOG_EVERY = 25  # steps


def is_finished(run: Path) -> bool:
    """Whether the run has written its model."""
    return RunFolder(run).model.exists()


def pretrain_encoder(demo: Demo, listener: Listener) -> None:
    """Pre-train the encoder on the corpus, for a number of steps or a time budget."""
    if not is_finished(demo.pretraining):
        settings = PretrainSettings(
            corpus=demo.corpus,
            out=demo.pretraining,
            resume=True,
            size=demo.plan.encoder,
            steps=demo.plan.steps,
            budget=demo.plan.budget_s,
            heldout=str(demo.heldout_text),
            seed=SEED,
            log_every=LOG_EVERY,
            save_every=SAVE_EVERY,
            keep=1,
            threads=demo.settings.threads,
        )
        pretrain(settings, listener)


def write_random_encoder(demo: Demo) -> None:
    """Write a model folder with the same encoder and random weights."""
    if demo.random.exists():
        return
    pretrained = RunFolder(demo.pretraining).model
    torch.manual_seed(keyed_seed(SEED, "random encoder"))
    model = BertForMaskedLM(BertConfig.from_pretrained(pretrained))
    metadata = {
        "format": METADATA_FORMAT,
        "made_by": f"bertmill {__version__}",
        "task": PRETRAINED_TASK,
        "initial_weights": "random",
        "steps": 0,
    }
    with new_folder(demo.random) as folder:
        model.save_pretrained(folder)
        BertTokenizer.from_pretrained(pretrained).save_pretrained(folder)
        write_file(folder / METADATA_FILE, json.dumps(metadata, indent=1) + "\n")


def finetune_model(demo: Demo, tuning: Tuning, listener: Listener) -> None:
    """Fine-tune a model on the train rows of its task."""
    run = demo.run_of(tuning)
    if not is_finished(run):
        settings = FinetuneSettings(
            task=tuning.task,
            model=demo.start_of(tuning),
            train=demo.rows_of(tuning.task, "train"),
            dev=DEV_SHARE,
            out=run,
            resume=True,
            method="full",
            epochs=tuning.epochs,
            learning_rate=tuning.learning_rate,
            batch_size=tuning.batch_size,
            seed=SEED,
            log_every=LOG_EVERY,
            keep=1,
            threads=demo.settings.threads,
        )
        finetune(settings, listener)
