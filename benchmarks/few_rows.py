"""Fine-tune on samples of labeled rows with the default flags and with each method, as a user would.

    python -m benchmarks.few_rows --data DIR --out DIR [--cells NAME,…] [--methods NAME,…] [--samples 0,1,2]
        [--model MODEL] [--flags "…"]

A cell is a dataset and a number of training rows; `k10` means 10 rows per class. Samples differ in their training rows.
The methods are those of `bertmill finetune`, and `linear`: scikit-learn's logistic regression on frozen vectors (the
mean of the last layer and the means of all layers; for words, their first pieces), with C chosen from 1, 10, 100 and
1,000 by 3-fold cross-validated loss. Every method uses one thread and reads the same files, which are in DIR/samples
for other tools (benchmarks/few_rows_with_other_tools.py). Test rows are read after training only.

Prints one JSON line per run: the result on the test rows in percent, and CPU seconds, of the whole command including
start-up for `finetune`, and of encoding and fitting for `linear` (`cpu_of_one_fit`: with one C, without choosing).
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SAMPLES = "0,1,2"
CHOICES_OF_C = (1.0, 10.0, 100.0, 1000.0)
FOLDS = 3
MAX_LENGTH = 128
NUM_SMS_TEST_ROWS = 500
NUM_LABELS = 48  # of the cell `labels`, whose rows are two requests in one

Row = dict[str, Any]  # the columns of a row; a sentence has `words` and `tags`


class Cell(NamedTuple):
    """A dataset, the number of training rows, the task and the metric."""

    dataset: str
    rows: str  # a number, or kN: N rows per class
    task: str
    metric: str

    @property
    def name(self) -> str:
        """The name on the command line."""
        return f"{self.dataset}-{self.rows}"


CELLS = [
    *(Cell("sst2", rows, "classify", "accuracy") for rows in ("k8", "k16", "k64", "500", "2000")),
    *(Cell("sms", rows, "classify", "macro_f1") for rows in ("k8", "k64")),
    Cell("clinc", "k10", "classify", "accuracy"),
    Cell("conll", "500", "tag", "f1"),
    Cell("ewt", "300", "tag", "accuracy"),
    Cell("labels", "414", "labels", "micro_f1"),
]


def main() -> None:
    """Read the command line and print one JSON line per run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--cells", type=_names, default=[cell.name for cell in CELLS])
    parser.add_argument("--methods", type=_names, default=["linear", "probe", "full", "auto"])
    parser.add_argument("--samples", type=_names, default=_names(SAMPLES))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--flags", type=shlex.split, default=[], help="further flags of finetune")
    given = parser.parse_args()
    for cell in (cell for cell in CELLS if cell.name in given.cells):
        for sample in map(int, given.samples):
            train, test = write_sample(cell, sample, given.data, given.out / "samples")
            for method in given.methods:
                run = given.out / "runs" / f"{cell.name}-{sample}-{method}-{Path(given.model).name}"
                result = (
                    linear(cell, train, test, given.model)
                    if method == "linear"
                    else finetune(cell, train, test, given.model, ["--method", method, *given.flags], run)
                )
                print(json.dumps({"cell": cell.name, "sample": sample, "method": method, **result}), flush=True)


def _names(text: str) -> list[str]:
    return text.split(",")


# Samples


def write_sample(cell: Cell, sample: int, data: Path, folder: Path) -> tuple[Path, Path]:
    """Write the training rows of a sample and the test rows, and return the paths."""
    pool, test = READERS[cell.dataset](data)
    rows = list(pool)
    random.Random(f"{cell.dataset} {sample}").shuffle(rows)
    rows = _first_of_each_class(rows, int(cell.rows[1:])) if cell.rows[0] == "k" else rows[: int(cell.rows)]
    suffix = "tsv" if cell.task == "tag" else "jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"{cell.name}-{sample}.{suffix}", folder / f"{cell.dataset}-test.{suffix}"
    for path, part in zip(paths, (rows, test), strict=True):
        path.write_text("".join(map(_as_lines, part)), encoding="utf-8")
    return paths


def _first_of_each_class(rows: list[Row], count: int) -> list[Row]:
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        seen[row["label"]] += 1
        if seen[row["label"]] <= count:
            kept.append(row)
    return kept


def _as_lines(row: Row) -> str:
    if "words" in row:
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(row["words"], row["tags"], strict=True)) + "\n"
    return json.dumps(row, ensure_ascii=False) + "\n"


@cache
def _sst2(data: Path) -> tuple[list[Row], list[Row]]:
    names = {"0": "negative", "1": "positive"}

    def read(part: str) -> list[Row]:
        _, *lines = (data / f"glue/SST-2/{part}.tsv").read_text(encoding="utf-8").splitlines()
        return [{"text": text.strip(), "label": names[label]} for text, label in (line.split("\t") for line in lines)]

    return read("train"), read("dev")


@cache
def _sms(data: Path) -> tuple[list[Row], list[Row]]:
    _, *lines = (data / "sms_spam/SMSSpamCollection").read_text(encoding="utf-8").splitlines()
    rows = [{"text": text, "label": label} for label, text in sorted({tuple(line.split("\t")[:2]) for line in lines})]
    random.Random(7).shuffle(rows)
    return rows[NUM_SMS_TEST_ROWS:], rows[:NUM_SMS_TEST_ROWS]


@cache
def _clinc(data: Path) -> tuple[list[Row], list[Row]]:
    parts = json.loads((data / "clinc150/data_full.json").read_text(encoding="utf-8"))
    train, test = ([{"text": text, "label": label} for text, label in parts[part]] for part in ("train", "test"))
    return train, test


@cache
def _labels(data: Path) -> tuple[list[Row], list[Row]]:
    """Pairs of requests of different intents, as in MixSNIPS (Qin et al., 2020), with both intents as labels."""

    def joined(rows: list[Row], count: int) -> list[Row]:
        draw = random.Random(count)
        pairs = (draw.sample(rows, 2) for _ in range(count))
        return [{"text": f"{a['text']} and {b['text']}", "labels": sorted({a["label"], b["label"]})} for a, b in pairs]

    train, test = _clinc(data)
    names = sorted({row["label"] for row in train})[:NUM_LABELS]
    kept = [[row for row in part if row["label"] in names] for part in (train, test)]
    return joined(kept[0], 2000), joined(kept[1], 1000)


def _tagged(path: Path, word: int, tag: int) -> list[Row]:
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    sentences = [[line.split() for line in block.splitlines()] for block in blocks if block.strip()]
    return [
        {"words": [each[word] for each in lines], "tags": [each[tag] for each in lines]}
        for lines in sentences
        if lines[0][0] != "-DOCSTART-"
    ]


@cache
def _conll(data: Path) -> tuple[list[Row], list[Row]]:
    train, test = (_tagged(data / f"conll2003/eng.{part}", 0, -1) for part in ("train", "testb"))
    return train, test


@cache
def _ewt(data: Path) -> tuple[list[Row], list[Row]]:
    train, test = (_tagged(data / f"ud_english_ewt/{part}.tsv", 0, 1) for part in ("train", "test"))
    return train, test


READERS: dict[str, Callable[[Path], tuple[list[Row], list[Row]]]] = {
    "sst2": _sst2,
    "sms": _sms,
    "clinc": _clinc,
    "conll": _conll,
    "ewt": _ewt,
    "labels": _labels,
}


# bertmill


def finetune(cell: Cell, train: Path, test: Path, model: str, flags: Sequence[str], run: Path) -> Row:
    """Run `bertmill finetune`, evaluate the model on the test rows, and return the results."""
    task = ["classify", "--multi-label"] if cell.task == "labels" else [cell.task]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _bertmill("finetune", *task, "--model", model, "--train", train, "--out", run, "--threads", 1, "--quiet", *flags)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    evaluation = json.loads(_bertmill("evaluate", run / "model", test, "--threads", 1, "--json"))
    metadata = json.loads((run / "model/bertmill.json").read_text(encoding="utf-8"))
    return {
        "kept": metadata["method"]["name"],
        "features": metadata["method"].get("features"),
        cell.metric: round(100 * _value(evaluation, cell.metric), 2),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
    }


def _bertmill(*arguments: object) -> str:
    command = [sys.executable, "-m", "bertmill", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def _value(evaluation: dict[str, Any], metric: str) -> float:
    if metric not in evaluation["metrics"]:  # macro F1 of classes
        return float(np.mean([each["f1"] for each in evaluation["classes"]]))
    return float(evaluation["metrics"][metric]["value"])


# scikit-learn


def linear(cell: Cell, train: Path, test: Path, model: str) -> Row:
    """Fit logistic regressions to frozen vectors, and return the results of both kinds of vectors."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    result: Row = {}
    with threadpool_limits(1):
        started = time.process_time()
        vectors, targets, lengths = _read_vectors(cell, train, model)
        encoding = time.process_time() - started
        test_vectors, expected, test_lengths = _read_vectors(cell, test, model)
        for name, layers in (("last", slice(-1, None)), ("layers", slice(None))):
            started = time.process_time()
            rows = vectors[:, layers].reshape(len(vectors), -1)
            strength = _choose_c(rows, targets, lengths)
            chosen = time.process_time()
            predict = _fit(rows, targets, strength)
            fitted = time.process_time()
            predicted = predict(test_vectors[:, layers].reshape(len(test_vectors), -1))
            result[f"{cell.metric}_{name}"] = round(100 * _score(cell, expected, predicted, test_lengths), 2)
            result[f"cpu_seconds_{name}"] = round(encoding + fitted - started, 1)
            result[f"cpu_of_one_fit_{name}"] = round(encoding + fitted - chosen, 1)
    return result


def _read_vectors(cell: Cell, path: Path, source: str) -> tuple[Any, Any, list[int]]:
    """Return the vectors [n, layers, H] of norm 1, the targets [n], and the number of vectors of each row."""
    import torch

    from bertmill import BertModel, BertTokenizer, PackedBatch

    tokenizer: Any = BertTokenizer.from_pretrained(source)
    model = BertModel.from_pretrained(source, add_pooling_layer=False).eval()
    if cell.task == "tag":
        blocks = [block.splitlines() for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]
        sentences = [[line.split("\t") for line in block] for block in blocks]
        targets = [tag for sentence in sentences for _, tag in sentence]
        rows = [tokenizer([word for word, _ in each], is_split_into_words=True) for each in sentences]
    else:
        read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        targets = [row["labels"] if cell.task == "labels" else row["label"] for row in read]
        rows = [tokenizer(row["text"], truncation=True, max_length=MAX_LENGTH) for row in read]
    parts: dict[int, Any] = {}
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]["input_ids"]))
    for start in range(0, len(order), 64):
        batch = order[start : start + 64]
        ids = [rows[number]["input_ids"] for number in batch]
        with torch.inference_mode():
            packed = PackedBatch(torch.tensor([each for row in ids for each in row]), list(map(len, ids)))
            states = torch.stack(model(packed, output_hidden_states=True).hidden_states)
        for number, of_row in zip(batch, states.split(packed.lengths, 1), strict=True):
            if cell.task == "tag":
                words = rows[number].word_ids()
                firsts = [place for place, word in enumerate(words) if word is not None and word not in words[:place]]
                parts[number] = of_row[:, firsts].transpose(0, 1)
            else:
                parts[number] = of_row.mean(1)[None]
    vectors = torch.cat([parts[number] for number in range(len(rows))])
    normalized = torch.nn.functional.normalize(vectors, dim=2).numpy()
    return normalized, targets, [len(parts[number]) for number in range(len(rows))]


def _fit(rows: Any, targets: Any, strength: float) -> Callable[[Any], Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import MultiLabelBinarizer

    model: Any = LogisticRegression(C=strength, max_iter=200)
    if not isinstance(targets[0], list):
        return model.fit(rows, targets).predict  # type: ignore[no-any-return]
    binarizer = MultiLabelBinarizer()
    several = OneVsRestClassifier(model).fit(rows, binarizer.fit_transform(targets))
    return lambda test: binarizer.inverse_transform(several.predict(test))


def _choose_c(rows: Any, targets: Any, lengths: Sequence[int]) -> float:
    """The C with the best cross-validated loss; for several labels, the best micro F1."""
    from sklearn.linear_model import LogisticRegression

    folds = np.repeat(np.arange(len(lengths)) % FOLDS, lengths)  # sentences stay whole; rows are in random order
    losses = dict.fromkeys(CHOICES_OF_C, 0.0)
    for fold, strength in ((fold, strength) for fold in range(FOLDS) for strength in CHOICES_OF_C):
        inside = folds != fold
        kept, judged = (
            [each for each, is_inside in zip(targets, inside == side, strict=True) if is_inside]
            for side in (True, False)
        )
        if isinstance(targets[0], list):
            losses[strength] -= _micro_f1(judged, _fit(rows[inside], kept, strength)(rows[~inside]))
            continue
        if len(set(kept)) < 2:
            continue
        model = LogisticRegression(C=strength, max_iter=200).fit(rows[inside], kept)
        likely = model.predict_log_proba(rows[~inside])
        columns = {name: number for number, name in enumerate(model.classes_)}
        losses[strength] -= sum(
            float(of_row[columns[each]]) for of_row, each in zip(likely, judged, strict=True) if each in columns
        )
    return min(losses, key=lambda strength: losses[strength])


def _score(cell: Cell, expected: Any, predicted: Any, lengths: Sequence[int]) -> float:
    from sklearn.metrics import accuracy_score, f1_score

    if cell.task == "labels":
        return _micro_f1(expected, predicted)
    if cell.metric == "macro_f1":
        return float(f1_score(expected, predicted, average="macro"))
    if cell.metric == "f1":
        from seqeval.metrics import f1_score as entity_f1

        ends = np.cumsum(lengths)[:-1]
        return float(
            entity_f1(
                *([list(map(str, each)) for each in np.split(np.array(side), ends)] for side in (expected, predicted))
            )
        )
    return float(accuracy_score(expected, predicted))


def _micro_f1(expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    right = sum(len(set(a) & set(b)) for a, b in zip(expected, predicted, strict=True))
    return 2 * right / max(1, sum(map(len, expected)) + sum(map(len, predicted)))


if __name__ == "__main__":
    main()
