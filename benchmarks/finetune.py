"""Fine-tuning MiniLM on SST-2 against the Hugging Face Trainer with its defaults and dynamic padding.

Both tools train on the same 3,200 rows for one epoch, in batches of 32, with the dropout of the model, each in its own
process. Each tool reports the time of its training steps; reading and tokenization are not included.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Row
from bertmill.tasks import settings_for
from bertmill.text.files import read_lines
from bertmill.training.finetune import finetune
from bertmill.training.progress import Listener

NUM_ROWS = 3200
NUM_DEV_ROWS = 8  # for the evaluation after training, which is not timed
BATCH_SIZE = 32
TARGET = 2.5


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the training throughput of both tools in rows per second."""
    with (
        tempfile.TemporaryDirectory() as name,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        folder = Path(name)
        _write_rows(data / "glue/SST-2/train.tsv", folder)
        best = {"ours": 0.0, "theirs": 0.0}
        for number in range(rounds):
            for side, run in (("ours", _our_rate), ("theirs", _their_rate)):
                best[side] = max(best[side], pool.apply(run, (folder, number)))
    yield Row("finetune", "SST-2, MiniLM", "row/s", best["ours"], best["theirs"], "transformers Trainer", TARGET)


def _write_rows(source: Path, folder: Path) -> None:
    header, *lines = [line.text for line in read_lines([str(source)])]
    random.Random(0).shuffle(lines)
    (folder / "train.tsv").write_text("\n".join([header, *lines[:NUM_ROWS]]) + "\n", encoding="utf-8")
    (folder / "dev.tsv").write_text("\n".join([header, *lines[-NUM_DEV_ROWS:]]) + "\n", encoding="utf-8")


def _our_rate(folder: Path, number: int) -> float:
    out = folder / f"ours-{number}"
    finetune(
        settings_for("classify")(
            task="classify",
            model="minilm",
            train=folder / "train.tsv",
            dev=str(folder / "dev.tsv"),
            out=out,
            epochs=1,
            batch_size=BATCH_SIZE,
        ),
        Listener(),
    )
    seconds: float = json.loads((out / "model/bertmill.json").read_text(encoding="utf-8"))["seconds"]
    return NUM_ROWS / seconds


def _their_rate(folder: Path, number: int) -> float:
    import torch
    import transformers

    from bertmill.checkpoint.names import find_model

    transformers.logging.set_verbosity_error()
    name = find_model("minilm")
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    lines = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    examples = [{**tokenizer(text, truncation=True), "labels": int(label)} for text, label in rows]
    model = transformers.AutoModelForSequenceClassification.from_pretrained(name, num_labels=2)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / f"theirs-{number}"),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=5e-5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
    )
    trainer = transformers.Trainer(
        model, arguments, train_dataset=examples, data_collator=transformers.DataCollatorWithPadding(tokenizer)
    )
    seconds: float = trainer.train().metrics["train_runtime"]
    return NUM_ROWS / seconds
