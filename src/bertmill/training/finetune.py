"""Fine-tuning: trains a pre-trained model on labeled rows, in a run folder like that of pre-training.

All weights are trained, or only those of the head with `freeze`. The model is evaluated on the dev examples after
every epoch (or every `eval_every` steps); the result has the weights of the best evaluation. A resumed run reads its
data again, which must be unchanged, and takes its earlier decisions from config.toml.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from pydantic import InstanceOf

from bertmill.batching.windows import Windows, make_windows
from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.checkpoint.names import find_model
from bertmill.config.commands import FinetuneSettings
from bertmill.config.fields import heldout_share
from bertmill.config.reading import with_whole_paths
from bertmill.corpus.shards import vocabulary_sha256
from bertmill.errors import UsageError
from bertmill.model.bert import MODEL_CLASSES
from bertmill.model.config import BertConfig
from bertmill.model.pretrained import BertPreTrainedModel
from bertmill.randomness import keyed_seed
from bertmill.rows.source import source_sha256, split_key_off
from bertmill.tasks import has_head, load_task, with_options
from bertmill.text.files import STANDARD_INPUT
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.dataset import Dataset, read_dataset
from bertmill.training.final_evaluation import evaluate_finetuning, write_evaluation
from bertmill.training.loop import ResolvedTraining, Trainer, computing_in
from bertmill.training.progress import Beginning, Journal, Listener
from bertmill.training.runs import open_run, prepare_model
from bertmill.training.schedule import Schedule, steps_of_epochs
from bertmill.training.task_trainable import TaskTrainable
from bertmill.training.trainable import Phase
from bertmill.version import __version__

COMMAND = "finetune"
_ADVICE = "Train longer or on more rows, or check the columns and labels."
WARMUP_SHARE = 0.1
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


class ResolvedFinetuning(ResolvedTraining):
    """The resolved settings of a fine-tuning run, with its data."""

    model: str
    freeze: bool
    dropout: dict[str, float]  # replaces values of config.json, by name
    windows: InstanceOf[Windows]
    data: InstanceOf[Dataset]  # includes the metric
    schedule: Schedule


def finetune(settings: FinetuneSettings, listener: Listener) -> Path | None:
    """Fine-tune according to `settings`. Returns the model folder on the first rank, None on the others."""
    with open_run(with_options(settings), COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        sources = hash_sources(run.settings)
        run.require_sources(sources)
        resolved = _resolve(run.settings, run.journal)
        for line in resolved.data.remarks:
            run.journal.remark(line)
        model = _make_model(resolved, run.journal)
        trainable = TaskTrainable(resolved.data, resolved, run.ranks)
        prepare_model(model, resolved, run.ranks)
        decisions = {"metric": resolved.data.metric, "eval_every": resolved.eval_every, **resolved.windows.metadata()}
        run.start(decisions, sources)
        trainer = Trainer(model, resolved.schedule, resolved, run.folder, run.ranks, run.journal)
        trainer.resume()
        run.journal.begin(Beginning(resolved.schedule.steps, dict(trainer.state.sums)))
        trainer.train([Phase(trainable, 1.0)])
        trainer.take_best()
        model.eval()
        with computing_in(resolved.precision, run.ranks.device):
            task, tuning, tuned = trainable.tuned(model)
        if tuning:
            run.journal.remark(f"tuned on dev: {tuning}")
        if run.ranks.is_first:
            tokenizer = resolved.windows.tokenizer
            with computing_in(resolved.precision, run.ranks.device):
                evaluation, content = evaluate_finetuning(task, model, resolved.data, tokenizer, run.ranks.device)
            write_evaluation(run.folder.evaluation, content)
            run.journal.remark(f"dev: {evaluation.summary}")
            if evaluation.warning:
                run.journal.warning(f"{evaluation.warning} {_ADVICE}")
        metadata = {
            "task": task.name,
            **task.folder_entries().metadata,
            "metric": resolved.data.metric,
            "rows": resolved.data.rows,
            "windows": resolved.windows.metadata(),
            "model": with_whole_paths(run.settings).model,  # as a resumed run would record it
            **sources,
            "made_by": f"bertmill {__version__}",
            "seed": resolved.seed,
            "steps": trainer.state.step,
            "best_step": trainer.state.best_step,
            "seconds": round(trainer.state.seconds, 1),
            "dev": trainer.state.best_figures | tuned,
        }
        return run.finish(model, resolved.windows.tokenizer, metadata)


def _resolve(settings: FinetuneSettings, journal: Journal) -> ResolvedFinetuning:
    """Read the data and resolve the settings left open; `settings` of a resumed run include its decisions."""
    kind = load_task(settings.task)
    tokenizer = BertTokenizer.from_pretrained(settings.model)
    num_positions = BertConfig.from_pretrained(settings.model).max_position_embeddings
    windows = make_windows(settings, tokenizer, num_positions, *kind.Options.window)
    data = read_dataset(settings, kind, windows, journal.remark)
    steps_per_epoch = len(data.train) / settings.batch_size
    steps = steps_of_epochs(settings.epochs, [steps_per_epoch], [1.0])
    values = {
        "dropout": {} if settings.dropout is None else dict.fromkeys(DROPOUTS, settings.dropout),
        "windows": windows,
        "data": data,
        "schedule": Schedule(settings.learning_rate, steps, warmup_share=WARMUP_SHARE),
        "eval_every": settings.eval_every or math.ceil(steps_per_epoch),
        "patience": settings.patience or math.inf,
    }
    return ResolvedFinetuning.model_validate({**dict(settings), **values})


def _make_model(resolved: ResolvedFinetuning, journal: Journal) -> BertPreTrainedModel:
    """The pre-trained model with a head for the task: its own head if it has the same labels, else a new one."""
    task, before = resolved.data.task, BertConfig.from_pretrained(resolved.model)
    if before.causal and task.reads_cls:
        raise UsageError(
            f"is a left-to-right model: its [CLS] cannot see the text, and {task.name} reads [CLS]",
            where=resolved.model,
            remedy="use a model that was pre-trained with a masked objective such as mlm",
        )
    config = before.with_settings(**{**task.folder_entries().config, **resolved.dropout})
    keeps_head = (
        has_head(before, type(task))
        and before.id2label == config.id2label
        and before.problem_type in (None, config.problem_type)
    )
    torch.manual_seed(keyed_seed(resolved.seed, "first weights"))  # for a new head
    kind: type[BertPreTrainedModel] = MODEL_CLASSES[task.head]
    model = kind.from_pretrained(resolved.model, config=config, new_classifier=not keeps_head)
    assert model.load_report is not None
    if any(name.startswith("classifier.") for name in model.load_report.new):
        task.start_head(model, resolved.data.train)
    journal.remark(str(model.load_report).replace("\n", "; "))
    if resolved.freeze:
        for name, parameter in model.named_parameters():
            if name.startswith(f"{model.base_model_prefix}."):
                parameter.requires_grad_(name in model.load_report.new)  # a new pooler must be trained
    return model


def hash_sources(settings: FinetuneSettings) -> dict[str, str]:
    """Hashes of rows, model and vocabulary, so that a resumed run detects changes."""
    tokenizer = BertTokenizer.from_pretrained(settings.model)
    has_fraction = heldout_share(settings.dev) is not None
    given = {"train": settings.train, "tags": settings.tags, "dev_tags": settings.dev_tags}
    given |= {} if has_fraction else {"dev": Path(settings.dev)}
    hashes = {}
    for name, source in {name: str(source) for name, source in given.items() if source is not None}.items():
        path = Path(split_key_off(source)[0])
        if path.is_file() or path.is_dir():
            hashes[f"{name}_sha256"] = source_sha256(source)
        elif source == STANDARD_INPUT or path.exists():
            remedy = "write them to a file, since a resumed run reads them again"
            raise UsageError("training rows must be in a file, not in a pipe", where=path, remedy=remedy)
        # A missing file is reported when it is read.
    return {
        **hashes,
        "dev_share": settings.dev if has_fraction else "",
        "model_sha256": folder_sha256(find_model(settings.model)),
        "vocabulary_sha256": vocabulary_sha256(tokenizer.wordpiece),
    }
