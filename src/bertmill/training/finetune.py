"""Fine-tuning: makes a model for labeled rows from a pre-trained model, in a run folder like that of pre-training.

methods.py decides whether that takes only a linear model on top of the encoder, or training of all weights. A resumed
run reads its data again, which must be unchanged, and takes its earlier decisions from config.toml and method.json.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from bertmill.batching.windows import make_windows
from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.checkpoint.names import find_model
from bertmill.config.commands import FinetuneSettings
from bertmill.config.fields import heldout_share
from bertmill.config.notation import setting
from bertmill.config.reading import read_run_sources, with_whole_paths
from bertmill.corpus.loader import require_share_for_each
from bertmill.corpus.shards import vocabulary_sha256
from bertmill.errors import UsageError
from bertmill.model.config import BertConfig
from bertmill.model.probe import ONLY_OURS, Probe
from bertmill.rows.source import source_sha256, split_key_off
from bertmill.tasks import load_task, with_options
from bertmill.tasks.base import AnyTask
from bertmill.text.files import STANDARD_INPUT
from bertmill.text.printable import counted
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.dataset import CROSS_VALIDATION, DEV_SHARE, read_dataset
from bertmill.training.distributed import Ranks
from bertmill.training.final_evaluation import evaluate_finetuning, write_evaluation
from bertmill.training.methods import Finetuning
from bertmill.training.models import has_own_head
from bertmill.training.probe import fits, num_outputs
from bertmill.training.progress import Listener
from bertmill.training.runs import Run, open_run
from bertmill.training.state import State
from bertmill.training.tuning_recipe import ResolvedFinetuning, epochs, learning_rate, patience, steps_between
from bertmill.version import __version__

COMMAND = "finetune"
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


def finetune(settings: FinetuneSettings, listener: Listener) -> Path | None:
    """Fine-tune according to `settings`. Returns the model folder on the first rank, None on the others."""
    started = time.monotonic()
    with open_run(with_options(settings), COMMAND, listener) as run:
        if run.is_finished:
            return run.model
        sources = hash_sources(run.settings)
        run.require_sources(sources)
        resolved = _resolve(run)
        data = resolved.data
        if run.settings.dev is None:
            sources["dev_share"] = str(DEV_SHARE) if data.dev else data.judged_on
            run.require_sources(sources)
        for line in data.remarks:
            run.journal.remark(line)
        for line in data.warnings:
            run.journal.warning(line)
        run.start(_decisions(resolved), sources)
        finetuning = Finetuning(run, resolved, started)
        best = finetuning.best()
        result = best.result
        if result.tuning:
            before, after = data.task.metrics(result.scores), result.metrics
            changes = (f"{name.replace('_', ' ')} {before[name]:.4f} → {after[name]:.4f}" for name in before)
            run.journal.remark(f"tuned on {data.judged_on}: {result.tuning}; {', '.join(changes)}")
        model = best.make_model().eval()
        if run.ranks.is_first:
            evaluation, content = evaluate_finetuning(
                result.task, model, data, result.judged, resolved.windows.tokenizer
            )
            write_evaluation(run.folder.evaluation, content)
            num_judged, num_rows = len(result.judged), len(data.dev or data.train)
            part = "" if num_judged == num_rows else f" on {num_judged:,} of {counted(num_rows, 'row')}"
            run.journal.remark(f"{data.judged_on}{part}: {evaluation.summary}")
            for line in finetuning.signals(best, evaluation):
                run.journal.warning(line)
            if isinstance(model, Probe):
                run.journal.remark(f"features: {best.facts['features']}; {ONLY_OURS}; `portable=True` avoids this")
        state = State() if finetuning.trainer is None else finetuning.trainer.state  # also if the probe was kept
        metadata = {
            "task": result.task.name,
            **result.task.folder_entries().metadata,
            "metric": data.metric,
            "method": {"name": best.method, **best.facts},
            "rows": data.rows,
            "windows": resolved.windows.metadata(),
            "model": with_whole_paths(run.settings).model,  # as a resumed run would record it
            **sources,
            "made_by": f"bertmill {__version__}",
            "seed": resolved.seed,
            "steps": state.step,
            "best_step": state.best_step,
            "seconds": round(state.seconds, 1),
            "dev": result.metrics,
        }
        return run.finish(model, resolved.windows.tokenizer, metadata)


def _resolve(run: Run[FinetuneSettings]) -> ResolvedFinetuning:
    """Read the data and resolve the settings left open; the settings of a resumed run include its decisions."""
    settings, ranks = run.settings, run.ranks
    require_share_for_each(settings.batch_size, ranks.count)
    kind = load_task(settings.task)
    tokenizer = BertTokenizer.from_pretrained(settings.model)
    config = BertConfig.from_pretrained(settings.model)
    windows = make_windows(settings, tokenizer, config.max_position_embeddings, *kind.Options.window)
    recorded = {} if run.is_new else read_run_sources(run.folder.path)
    if recorded.get("dev_share") == CROSS_VALIDATION and ranks.count > 1:
        raise UsageError("was started by a single process", where=run.folder.path, remedy="resume it without torchrun")
    data = read_dataset(
        settings,
        kind,
        windows,
        run.journal.remark,
        may_cross_validate=lambda task, rows: (
            ranks.count == 1
            and recorded.get("dev_share", CROSS_VALIDATION) == CROSS_VALIDATION
            and not has_own_head(settings.model, task)
            and fits(task, rows, settings.model)
        ),
    )
    if config.causal and data.task.reads_cls:
        raise UsageError(
            f"is a left-to-right model: its [CLS] cannot see the text, and {data.task.name} reads [CLS]",
            where=settings.model,
            remedy="use a model that was pre-trained with a masked objective such as mlm",
        )
    if settings.budget is not None and ranks.count > 1:
        raise UsageError("`budget` needs a single process", remedy="set `epochs`")
    has_probe = bool(data.task.probe) and not has_own_head(settings.model, data.task)
    method = _method(run, data.task, has_probe=has_probe)
    is_fitted = data.task.starts_from_probe and has_probe
    num_epochs = epochs(settings, config, len(data.train), num_outputs(data.task), is_fitted=is_fitted)
    values = {
        "method": method,
        "budget": settings.budget or math.inf,
        "dropout": {} if settings.dropout is None else dict.fromkeys(DROPOUTS, settings.dropout),
        "windows": windows,
        "data": data,
        "has_probe": has_probe,
        "is_fitted": is_fitted,
        "learning_rate": learning_rate(settings, config, is_fitted=is_fitted),
        "epochs": num_epochs,
        **steps_between(settings, len(data.train), num_epochs),
        "patience": patience(settings) or math.inf,
    }
    return ResolvedFinetuning.model_validate({**dict(settings), **values})


def _method(run: Run[FinetuneSettings], task: AnyTask, *, has_probe: bool) -> str:
    """The given method, or `full` if there is no other."""
    settings, method = run.settings, run.settings.method
    if not has_probe or run.ranks.count > 1:
        if method == "probe" or (method == "auto" and has_probe and not run.is_new):
            raise UsageError(f"`method={method!r}` cannot be used: {_why_no_probe(task, run.ranks)}")
        return "full"
    of_training = [name for name in ("epochs", "learning_rate", "patience") if getattr(settings, name) is not None]
    if method == "probe" and run.is_new and of_training:
        listed = ", ".join(map(setting, of_training))
        raise UsageError(f"{listed} and `method='probe'` are mutually exclusive: a probe is not trained")
    return method


def _why_no_probe(task: AnyTask, ranks: Ranks) -> str:
    if ranks.count > 1:
        return "it needs a single process"
    return "the model already has a head for these labels" if task.probe else f"the task {task.name} has no probe"


def _decisions(resolved: ResolvedFinetuning) -> dict[str, Any]:
    """The values that config.toml records for settings left open."""
    return {
        "method": resolved.method,
        "metric": resolved.data.metric,
        "learning_rate": resolved.learning_rate,
        "epochs": resolved.epochs,
        "eval_every": resolved.eval_every,
        "patience": int(resolved.patience) if math.isfinite(resolved.patience) else None,
        **resolved.windows.metadata(),
    }


def hash_sources(settings: FinetuneSettings) -> dict[str, str]:
    """Hashes of rows, model and vocabulary, so that a resumed run detects changes."""
    tokenizer = BertTokenizer.from_pretrained(settings.model)
    has_fraction = settings.dev is None or heldout_share(settings.dev) is not None
    given = {"train": settings.train, "tags": settings.tags, "dev_tags": settings.dev_tags}
    given |= {} if has_fraction else {"dev": Path(str(settings.dev))}
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
        # Decided after the rows are read if `dev` is not set.
        **({} if settings.dev is None else {"dev_share": settings.dev if has_fraction else ""}),
        "model_sha256": folder_sha256(find_model(settings.model)),
        "vocabulary_sha256": vocabulary_sha256(tokenizer.wordpiece),
    }
