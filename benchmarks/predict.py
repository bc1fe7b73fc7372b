"""Prediction on mixed lengths against Hugging Face's pipeline and two inference engines, and whether memory stays flat.

- The texts are the 872 sentences of SST-2's dev set and 128 paragraphs of 300 to 500 pieces from held-out Wikipedia,
  shuffled. The model is MiniLM with a head for two classes.
- The pipeline gets the texts in batches of 32, in their given order.
- onnxruntime and OpenVINO run Hugging Face's model, exported to ONNX, with our tokenizer, our batches by length and our
  number of threads. Each batch is padded to its longest sequence and has a mask.
- The benchmark fails unless all tools give the same predictions.
- Memory is the peak of `bertmill predict` on 1,000 and on 100,000 rows.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from benchmarks.measure import Row, best_seconds_in_processes
from bertmill.batching.by_length import stream_batched
from bertmill.inference.predictor import load
from bertmill.machine import set_threads
from bertmill.model.bert import BertForSequenceClassification
from bertmill.text.files import read_lines
from bertmill.text.tokenizer import BertTokenizer

NUM_PARAGRAPHS = 128
PARAGRAPH_PIECES = (300, 500)
BATCH_SIZE = 32
TARGETS = {"transformers pipeline": 8.0, "onnxruntime": 1.1, "openvino": 1.1}
MEMORY_ROWS = (1_000, 100_000)
TOLERANCE = 1e-4
INPUTS = ("ids", "segments", "mask")
PREDICT_AND_PRINT_MEMORY = """
import sys
from benchmarks.measure import high_water_kilobytes
from bertmill.cli.main import main
code = main(sys.argv[1:])
print(high_water_kilobytes())
sys.exit(code)
"""

Answer = dict[str, Any]
Ids = NDArray[np.int64]
Engine = Callable[[list[Ids]], NDArray[np.float32]]  # INPUTS [batch, pieces] → logits


def measure(data: Path, rounds: int) -> Iterator[Row]:
    """Compare the throughput of all tools in texts per second, then the peak memory of few and many rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        tokenizer = BertTokenizer.from_pretrained("minilm")
        BertForSequenceClassification.from_pretrained("minilm", num_labels=2).save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        _export(folder)
        yield from against_rivals(folder, _texts(data, tokenizer), rounds)
        yield _memory(folder)


def _texts(data: Path, tokenizer: BertTokenizer) -> list[str]:
    sentences = [line.text.split("\t")[0] for line in read_lines([str(data / "glue/SST-2/dev.tsv")])][1:]
    least, most = PARAGRAPH_PIECES
    paragraphs: list[str] = []
    for line in read_lines([str(data / "text/enwiki-heldout.txt.xz")]):
        if len(paragraphs) < NUM_PARAGRAPHS and least <= len(tokenizer.wordpiece.ids(line.text)) <= most:
            paragraphs.append(line.text)
    texts = sentences + paragraphs
    random.Random(0).shuffle(texts)
    return texts


def against_rivals(folder: Path, texts: list[str], rounds: int) -> Iterator[Row]:
    """Compare all tools, each in its own process: idle threads of one tool would slow the others down."""
    makers = {"ours": _ours, "transformers pipeline": _pipeline, "onnxruntime": _onnxruntime, "openvino": _openvino}
    files = {side: folder / f"{side}.json" for side in makers}
    sides = {side: partial(_side, make, folder, texts, files[side]) for side, make in makers.items()}
    seconds = best_seconds_in_processes(sides, rounds)
    answers = {side: json.loads(file.read_text(encoding="utf-8")) for side, file in files.items()}
    ours = len(texts) / seconds["ours"]
    for rival, target in TARGETS.items():
        _require_same(answers["ours"], answers[rival])
        yield Row("predict", "mixed lengths", "text/s", ours, len(texts) / seconds[rival], rival, target)


def _require_same(ours: list[Answer], theirs: list[Answer]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert abs(one["score"] - other["score"]) < TOLERANCE
        assert one["label"] == other["label"] or abs(one["score"] - 0.5) < TOLERANCE


def _side(
    make: Callable[[Path], Callable[[list[str]], list[Answer]]], folder: Path, texts: list[str], file: Path
) -> Callable[[], object]:
    """Return the function to time for one tool; it also writes predictions to `file`, in a thousandth of the time."""
    set_threads(None)
    predict = make(folder)
    return lambda: file.write_text(json.dumps(predict(texts)), encoding="utf-8")


def _ours(folder: Path) -> Callable[[list[str]], list[Answer]]:
    return load(folder / "model").predict


def _pipeline(folder: Path) -> Callable[[list[str]], list[Answer]]:
    import transformers

    transformers.logging.set_verbosity_error()
    return transformers.pipeline(
        "text-classification", model=str(folder / "model"), device="cpu", batch_size=BATCH_SIZE
    )


def _onnxruntime(folder: Path) -> Callable[[list[str]], list[Answer]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return _with_engine(folder, lambda inputs: session.run(None, dict(zip(INPUTS, inputs, strict=True)))[0])


def _openvino(folder: Path) -> Callable[[list[str]], list[Answer]]:
    import openvino

    how = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(folder / "model.onnx", "CPU", how)
    return _with_engine(folder, lambda inputs: compiled(inputs)[0])


def _with_engine(folder: Path, engine: Engine) -> Callable[[list[str]], list[Answer]]:
    """Predict with another engine in place of our model, with our tokenizer and our batches by length."""
    tokenizer = BertTokenizer.from_pretrained(folder / "model")

    def encode(text: str) -> Ids:
        pieces = tokenizer.wordpiece.ids(text, split_special=True)
        return np.array([tokenizer.cls_token_id, *pieces, tokenizer.sep_token_id], np.int64)

    def run(batch: list[Ids]) -> Sequence[Answer]:
        logits = engine(_padded(batch))
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        exponentials /= exponentials.sum(1, keepdims=True)
        return [{"label": f"LABEL_{row.argmax()}", "score": float(row.max())} for row in exponentials]

    return lambda texts: list(stream_batched(map(encode, texts), len, run))


def _padded(batch: list[Ids]) -> list[Ids]:
    """Return INPUTS for a batch, padded to its longest row; all texts of this benchmark fit into one window."""
    rows = list(map(torch.from_numpy, batch))
    ids = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return [ids.numpy(), torch.zeros_like(ids).numpy(), mask.numpy()]


class _Positional(torch.nn.Module):
    """Hugging Face's model with INPUTS as positional arguments, as the export requires."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids, token_type_ids=segments, attention_mask=mask).logits
        return logits


def _export(folder: Path) -> None:
    """Write `model.onnx` for batches of any size and length."""
    import transformers

    transformers.logging.set_verbosity_error()
    model = transformers.BertForSequenceClassification.from_pretrained(folder / "model")
    ids = torch.ones(2, 12, dtype=torch.int64)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("pieces", max=model.config.max_position_embeddings)}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about packages that are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Positional(model).eval(),
            (ids, torch.zeros_like(ids), torch.ones_like(ids)),  # distinct tensors: a repeated one would be one input
            folder / "model.onnx",
            input_names=INPUTS,
            dynamic_shapes=dict.fromkeys(INPUTS, sizes),
            verbose=False,
        )


def _memory(folder: Path) -> Row:
    few, many = (_peak_gigabytes(folder, count) for count in MEMORY_ROWS)
    return Row("predict", "memory, 100 times the rows", "1/GB", 1 / many, 1 / few, "a thousand rows", 0.9)


def _peak_gigabytes(folder: Path, num_rows: int) -> float:
    rows = folder / f"{num_rows}.tsv"
    # Lengths are mixed from the first row on: a batch of one length would need less memory than a mixed one.
    numbers = (number * 7919 % MEMORY_ROWS[-1] for number in range(num_rows))
    rows.write_text("text\n" + "".join(f"number {number}\n" for number in numbers), encoding="utf-8")
    words = ["predict", folder / "model", rows, "--out", rows.with_suffix(".jsonl"), "--quiet"]
    command = [sys.executable, "-c", PREDICT_AND_PRINT_MEMORY, *map(str, words)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) / (1 << 20)
