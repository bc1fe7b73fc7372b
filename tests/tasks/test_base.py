"""Tests for the code that all tasks share: bad rows, batches of windows, and probabilities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertmill.batching.by_length import PIECES_PER_BATCH
from bertmill.batching.windows import Windows
from bertmill.config.commands import RowSettings
from bertmill.errors import DataError
from bertmill.model.packing import PackedBatch
from bertmill.rows.source import RowFile
from bertmill.tasks.base import encode_rows, probabilities, run_windows
from bertmill.tasks.classify import Classify, ClassRow
from bertmill.text.tokenizer import BertTokenizer

WINDOWS = Windows(BertTokenizer.from_pretrained("minilm"), 16)
TASK = Classify(("a", "b"))


def rows(*labels: str) -> list[ClassRow]:
    return [ClassRow(f"f.tsv:{number}", ("text",), label) for number, label in enumerate(labels, start=1)]


def test_a_row_that_the_task_cannot_use_stops_encoding() -> None:
    with pytest.raises(DataError, match=r"f.tsv:2: the label 'c' is not one of a, b; .* `on_bad_row='skip'`"):
        list(encode_rows(TASK, rows("a", "c"), WINDOWS, RowFile("f.tsv")))


def test_all_unknown_labels_are_reported_after_the_last_row() -> None:
    encoding = encode_rows(TASK, rows("a", "c", "b", "d", "c"), WINDOWS, RowFile("f.tsv"))
    assert [next(encoding).target, next(encoding).target] == [0, 1]
    what = r"f.tsv:2: 2 labels are not among a, b: 'c' \(2 rows\), 'd' \(1 row\); .* `on_bad_row='skip'`"
    with pytest.raises(DataError, match=what):
        next(encoding)


def test_skipped_bad_rows_are_counted() -> None:
    file = RowFile("f.tsv", RowSettings(on_bad_row="skip"))
    file.counts.num_rows = 40
    examples = list(encode_rows(TASK, rows(*"ab" * 19, "c"), WINDOWS, file))
    assert [example.target for example in examples] == [0, 1] * 19
    assert file.counts.skipped == {"unknown label": 1}
    assert file.counts.unknown == {"c": 1}


def test_too_many_bad_rows_stop_encoding_at_the_end() -> None:
    file = RowFile("f.tsv", RowSettings(on_bad_row="skip"))
    file.counts.num_rows = 10
    with pytest.raises(DataError, match="more than 5% of the rows are bad"):
        list(encode_rows(TASK, rows(*"abababa", "c"), WINDOWS, file))


def test_windows_run_in_batches_unless_gradients_are_needed() -> None:
    class Recorder(torch.nn.Module):
        def forward(self, batch: PackedBatch) -> int:
            return batch.num_pieces

    example = TASK.encode(ClassRow("f:1", ("word " * 4000,)), WINDOWS)
    device = torch.device("cpu")
    with torch.inference_mode():
        batch_sizes = list(run_windows(Recorder(), [example], device))
    assert max(batch_sizes) <= PIECES_PER_BATCH < sum(batch_sizes)
    assert list(run_windows(Recorder(), [example], device)) == [sum(batch_sizes)] == [example.num_pieces]


def test_probabilities_are_a_softmax_in_double_precision() -> None:
    logits = np.array([[0.0, 1000.0], [0.0, 0.0]], np.float32)
    assert probabilities(logits).tolist() == [[0.0, 1.0], [0.5, 0.5]]
    assert probabilities(logits).dtype == np.float64
