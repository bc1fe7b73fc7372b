"""Fine-tuning: a pre-trained model and labelled rows in, a model that answers out, in a run folder as pre-training has.

All weights are trained, or with `freeze` those of the head alone. The examples are measured on after every epoch (or
`eval_every` steps); the result has the weights of the best measurement. The data is read again when a run is
resumed and must be the same.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.checkpoint.names import find_model
from bertmill.config.commands import FinetuneSettings
from bertmill.config.fields import heldout_share
from bertmill.corpus.shards import vocabulary_sha256
from bertmill.errors import UsageError
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.config import BertConfig
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.randomness import keyed_seed
from bertmill.storage import sha256_of
from bertmill.tasks.base import EncodedExample, Example, Task
from bertmill.tasks.datasets import Dataset, read_dataset
from bertmill.tasks.windows import WindowMaker, window_maker
from bertmill.text.files import STANDARD_INPUT
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.distributed import Ranks
from bertmill.training.examples import ExampleLessons
from bertmill.training.progress import Beginning, Journal, Listener
from bertmill.training.runs import opened_run, require_same_data, with_whole_paths
from bertmill.training.schedule import Schedule, steps_of_epochs
from bertmill.training.state import State
from bertmill.training.trainable import Phase
from bertmill.version import __version__

WARMUP_SHARE = 0.1


def finetune(settings: FinetuneSettings, listener: Listener) -> Path | None:
    """Train as `settings` say; returns the folder of the model, to the first of several ranks only."""
    with opened_run(settings, listener) as run:
        if run.is_finished:
            return run.model
        settings, ranks = run.settings, run.ranks
        assert settings.model is not None
        tokenizer = BertTokenizer.from_pretrained(settings.model)
        sources = hashes_of_data(settings, tokenizer)
        if not run.is_new:
            require_same_data(run.folder, sources)
        data = read_dataset(settings, tokenizer)
        for line in data.remarks:
            run.journal.remark(line)
        model = _make_model(settings, data.task, run.journal)
        make_windows = window_maker(settings, tokenizer, model.config, data.task.max_length, data.task.stride)
        lessons = _lessons(settings, data, make_windows, ranks, run.journal)
        steps_per_epoch = len(lessons.train) / settings.batch_size
        steps = steps_of_epochs(settings.epochs, [steps_per_epoch], [1.0])
        run.begin(model, settings, sources)
        trainer = run.trainer(
            model,
            Schedule(settings.learning_rate, steps, warmup_share=WARMUP_SHARE),
            settings,
            eval_every=settings.eval_every or math.ceil(steps_per_epoch),
            patience=settings.patience,
        )
        run.journal.begin(Beginning(steps, dict(trainer.state.sums)))
        trainer.train([Phase(lessons, 1.0)])
        trainer.take_best()
        task: Task = data.task
        tuned: dict[str, float] = {}
        if task.is_to_be_tuned:
            model.eval()
            task, tuned = lessons.tuned_task(model)
            figures = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in tuned.items())
            run.journal.remark(f"tuned on dev: {task.tuning}; {figures}")
        note = {
            "task": task.name,
            **task.note(),
            "metric": data.metric,
            "windows": make_windows.note(),
            "model": with_whole_paths(settings).model,  # as a resumed run would say it
            **sources,
        }
        return run.finish(model, tokenizer, {**note, **_provenance(settings, trainer.state, tuned)})


def _make_model(settings: FinetuneSettings, task: Task, journal: Journal) -> BertPreTrainedModel:
    """The pre-trained model with the task's head: its own if it has learnt exactly these labels, else a new one."""
    changes = task.settings()
    if settings.dropout is not None:
        kinds = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        changes |= dict.fromkeys(kinds, settings.dropout)
    assert settings.model is not None
    before = BertConfig.from_pretrained(settings.model)
    if before.causal and task.reads_first_piece:
        raise UsageError(
            f"reads from left to right, so that nothing of a text reaches [CLS], which {task.name} looks at",
            where=settings.model,
            remedy="use a model that was pre-trained with masked words",
        )
    config = before.with_settings(**changes)
    goes_on = (
        task.head in (before.architectures or [])
        and before.id2label == config.id2label
        and before.problem_type in (None, config.problem_type)
    )
    torch.manual_seed(keyed_seed(settings.seed, "first weights"))  # of the head
    kind: type[BertPreTrainedModel] = MODEL_CLASSES[task.head]
    model = kind.from_pretrained(settings.model, config=config, new_classifier=not goes_on)
    assert model.load_report is not None
    journal.remark(str(model.load_report).replace("\n", "; "))
    if settings.freeze:
        for name, parameter in model.named_parameters():
            if name.startswith(f"{model.base_model_prefix}."):
                parameter.requires_grad_(name in model.load_report.new)  # a pooler that is not there yet must learn
    return model


def _lessons(
    settings: FinetuneSettings,
    data: Dataset,
    make_windows: WindowMaker,
    ranks: Ranks,
    journal: Journal,
) -> ExampleLessons:
    def encoded(examples: list[Example]) -> list[EncodedExample]:
        return [data.task.encode(example, make_windows) for example in examples]

    train, dev = encoded(data.train), encoded(data.dev)
    if make_windows.remark:
        journal.remark(make_windows.remark)
    return ExampleLessons(
        data.task,
        data.metric,
        train,
        dev,
        ranks,
        seed=settings.seed,
        batch_size=settings.batch_size,
        micro_batch_pieces=settings.micro_batch_pieces,
    )


def hashes_of_data(settings: FinetuneSettings, tokenizer: BertTokenizer) -> dict[str, str]:
    """What rows, model and vocabulary are when the run begins, to notice when they change."""
    assert settings.train is not None
    assert settings.model is not None
    has_share = heldout_share(settings.dev) is not None
    files = {"train": settings.train} | ({} if has_share else {"dev": Path(settings.dev)})
    for path in files.values():
        if str(path) == STANDARD_INPUT or (path.exists() and not path.is_file()):
            remedy = "write them to a file: they are read again when the run is resumed"
            raise UsageError("rows to train with cannot come out of a pipe or a folder", where=path, remedy=remedy)
    # One that is not there is told when it is read.
    hashes = {f"{name}_sha256": sha256_of(path) for name, path in files.items() if path.is_file()}
    return {
        **hashes,
        "dev_share": settings.dev if has_share else "",
        "model_sha256": folder_sha256(find_model(settings.model)),
        "vocabulary_sha256": vocabulary_sha256(tokenizer.wordpiece),
    }


def _provenance(settings: FinetuneSettings, state: State, tuned: dict[str, float]) -> dict[str, Any]:
    return {
        "made_by": f"bertmill {__version__}",
        "seed": settings.seed,
        "steps": state.step,
        "best_step": state.best_step,
        "seconds": round(state.seconds, 1),
        "dev": state.best_figures | tuned,
    }
