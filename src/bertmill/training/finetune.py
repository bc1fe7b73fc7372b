"""Fine-tuning: a pre-trained model and labelled rows in, a model that answers out, in a run folder as pre-training has.

All weights are trained, or with `freeze` those of the head alone. The examples are measured on after every epoch (or
`eval_every` steps); the result has the weights of the best measurement. The data is read again when a run is
resumed and must be the same.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from bertmill.config import FinetuneSettings, settings_toml
from bertmill.errors import IntegrityError
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.runtime import choose_device, keep_freed_memory, keyed_seed, set_threads
from bertmill.storage import read_json, sha256_of, write_file
from bertmill.tasks.base import EncodedExample, Example, Task
from bertmill.tasks.datasets import Dataset, read_dataset
from bertmill.tasks.windows import window_maker
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks, joined_ranks
from bertmill.training.examples import ExampleLessons
from bertmill.training.loop import Trainer
from bertmill.training.progress import Beginning, Journal, Listener
from bertmill.training.runs import decide_precision, loop_settings, settings_of_run, with_whole_paths, write_model
from bertmill.training.schedule import Schedule
from bertmill.training.state import RunFolder, State
from bertmill.version import __version__

WARMUP_SHARE = 0.1


def finetune(settings: FinetuneSettings, listener: Listener) -> Path | None:
    """Train as `settings` say; returns the folder of the model, to the first of several ranks only."""
    run = RunFolder(settings.out)
    is_new = not run.config.exists()
    if is_new:
        settings.require_all()
        run.refuse_other_things()
    else:
        settings = settings_of_run(settings, run)
    device = choose_device(settings.device)
    set_threads(settings.threads)
    keep_freed_memory()
    with joined_ranks(device) as ranks, run.locked(is_owner=ranks.is_first):
        journal = Journal(run.log, listener) if ranks.is_first else Journal(None, Listener())
        if run.model.exists():
            journal.remark(f"{run.path} is finished already")
            return run.model if ranks.is_first else None
        ranks.wait()  # all have seen whether the run is new
        if is_new:
            settings = settings.model_copy(update={"precision": decide_precision(settings, ranks)})
        assert settings.model is not None
        tokenizer = BertTokenizer.from_pretrained(settings.model)
        if not is_new:
            _require_same_data(run, settings)
        data = read_dataset(settings, tokenizer)
        for line in data.remarks:
            journal.remark(line)
        model = _make_model(settings, data.task).to(device)
        lessons = _lessons(settings, data, model, tokenizer, ranks, journal)
        steps = math.ceil(settings.epochs * len(lessons.train) / settings.batch_size)
        if is_new and ranks.is_first:
            write_file(run.data, json.dumps(_hashes(settings)) + "\n")
            write_file(run.config, settings_toml(with_whole_paths(settings)))
        trainer = Trainer(
            model,
            Schedule(settings.learning_rate, steps, warmup_share=WARMUP_SHARE),
            loop_settings(
                settings,
                eval_every=settings.eval_every or math.ceil(len(lessons.train) / settings.batch_size),
                save_every=settings.save_every,
                patience=settings.patience,
            ),
            run,
            ranks,
            journal,
        )
        if settings.resume:
            trainer.resume()
        journal.begin(Beginning(steps, None))
        trainer.train(lessons)
        trainer.take_best()
        if ranks.is_first:
            write_model(run, model, tokenizer, _note(settings, data, trainer.state))
        ranks.wait()
        return run.model if ranks.is_first else None


def _make_model(settings: FinetuneSettings, task: Task) -> BertPreTrainedModel:
    changes = task.settings()
    if settings.dropout is not None:
        changes |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), settings.dropout)
    torch.manual_seed(keyed_seed(settings.seed, "first weights"))  # of the head
    assert settings.model is not None
    model: BertPreTrainedModel = MODEL_CLASSES[task.head].from_pretrained(settings.model, **changes)
    if settings.freeze:
        model.base_model.requires_grad_(False)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model


def _lessons(
    settings: FinetuneSettings,
    data: Dataset,
    model: BertPreTrainedModel,
    tokenizer: BertTokenizer,
    ranks: Ranks,
    journal: Journal,
) -> ExampleLessons:
    make_windows = window_maker(settings, tokenizer, model.config)

    def encoded(examples: list[Example]) -> list[EncodedExample]:
        return [data.task.encode(example, make_windows) for example in examples]

    train, dev = encoded(data.train), encoded(data.dev)
    if make_windows.remark:
        journal.remark(make_windows.remark)
    return ExampleLessons(data.task, train, dev, ranks, settings.seed, settings.batch_size, settings.micro_batch_pieces)


def _require_same_data(run: RunFolder, settings: FinetuneSettings) -> None:
    before = read_json(run.data)
    for name, now in _hashes(settings).items():
        if before.get(name) != now:
            raise IntegrityError(
                f"the {name.partition('_')[0]} data is not what this run began with",
                where=run.path,
                remedy="start anew",
            )


def _hashes(settings: FinetuneSettings) -> dict[str, str]:
    """What the data was, to notice when it changes."""
    assert settings.train is not None
    files = {"train": settings.train, "dev": Path(settings.dev)}
    return {f"{name}_sha256": sha256_of(path) for name, path in files.items() if path.exists()}


def _note(settings: FinetuneSettings, data: Dataset, state: State) -> dict[str, Any]:
    return {
        "made_by": f"bertmill {__version__}",
        **data.task.note(),
        "model": settings.model,
        **_hashes(settings),
        "seed": settings.seed,
        "steps": state.step,
        "best_step": state.best_step,
        "seconds": round(state.seconds, 1),
        "dev": state.best_figures,
    }
