"""Tests for runners: predictions do not depend on the batch, windows are those of training, threads may share it."""

from __future__ import annotations

import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill.batching.by_length import PIECES_PER_BATCH
from bertmill.config.commands import EvaluateSettings, WindowSettings
from bertmill.errors import DataError, IntegrityError, UsageError
from bertmill.inference.runner import Runner, run_batch, stream_outputs
from bertmill.rows.bad_rows import BadRowError
from bertmill.rows.source import RowFile
from bertmill.tasks.answer.task import AnswerQuestions
from bertmill.tasks.base import AnyTask
from bertmill.tasks.classify import Classify
from bertmill.tasks.tag.task import Tag
from tests.finetuned import MakeModel, text_of


@pytest.fixture(scope="module")
def runner(classifier: Path) -> Runner:
    return Runner(classifier, "cpu")


@pytest.fixture(scope="module")
def texts() -> list[dict[str, str]]:
    draw = random.Random(2)
    return [{"text": text_of(draw, 300 if number % 10 == 0 else 12)} for number in range(60)]


def test_predictions_do_not_depend_on_the_batch(runner: Runner, texts: list[dict[str, str]]) -> None:
    together = runner.answer(texts)
    shuffled = random.Random(3).sample(range(len(texts)), len(texts))
    again = dict(zip(shuffled, runner.answer([texts[number] for number in shuffled]), strict=True))
    for number, (text, answer) in enumerate(zip(texts, together, strict=True)):
        for other in (runner.answer([text])[0], again[number]):
            assert other["scores"] == pytest.approx(answer["scores"], abs=1e-5)
            assert other["label"] == answer["label"] or abs(answer["score"] - 0.5) < 1e-4


def test_threads_can_share_a_runner(runner: Runner, texts: list[dict[str, str]]) -> None:
    expected = runner.answer(texts)
    num_threads = 4
    barrier = threading.Barrier(num_threads)

    def answer(_: int) -> list[dict[str, object]]:
        barrier.wait()
        return runner.answer(texts)

    with ThreadPoolExecutor(num_threads) as pool:
        for answers in pool.map(answer, range(num_threads)):
            assert [each["label"] for each in answers] == [each["label"] for each in expected]
            for ours, theirs in zip(answers, expected, strict=True):
                assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-6)


def test_a_stream_and_a_batch_of_requests_give_the_same_predictions(
    runner: Runner, texts: list[dict[str, str]]
) -> None:
    rows = [runner.task.request(fields, f"row {number}") for number, fields in enumerate(texts)]
    answers = list(runner.answers(runner.task.encode(row, runner.windows) for row in rows))
    assert [row for row, _ in answers] == rows
    for (_, ours), theirs in zip(answers, runner.answer(texts), strict=True):
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=1e-6)


def test_an_invalid_request_is_reported_with_its_number(runner: Runner) -> None:
    with pytest.raises(BadRowError, match="input 1: the field 'text' is empty"):
        runner.answer([{"text": "a film"}, {"text": " "}])


def test_a_document_of_ten_thousand_words_is_read_completely(runner: Runner) -> None:
    dull = "dull " * 10_000
    without, within = runner.answer([{"text": dull}, {"text": dull + "good " * 5_000}])
    assert without["label"] == "no"
    assert without["scores"]["yes"] < within["scores"]["yes"]


def test_a_long_document_runs_in_batches(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    runner = Runner(classifier, "cpu")
    runner.model.register_forward_pre_hook(lambda _, given: sizes.append(given[0].num_pieces))
    example = runner.task.encode(runner.task.request({"text": "dull film " * 5_000}), runner.windows)
    ((_, batched),) = stream_outputs(runner.task, runner.model, [example], runner.device)
    assert max(sizes) <= PIECES_PER_BATCH < sum(sizes)
    monkeypatch.setattr("bertmill.tasks.base.PIECES_PER_BATCH", 10**9)
    (whole,) = run_batch(runner.task, runner.model, [example], torch.device("cpu"))
    assert batched == pytest.approx(whole, abs=1e-5)


def test_windows_are_those_of_training_unless_settings_override_them(classifier: Path) -> None:
    assert Runner(classifier).windows.max_length == 16
    given = WindowSettings(max_length=32, stride=4, truncate=True)
    assert Runner(classifier, windows=given).windows.metadata() == {"max_length": 32, "stride": 4, "truncate": True}


def test_a_model_without_a_head_is_rejected(tiny: Path) -> None:
    with pytest.raises(
        UsageError, match="the model is not fine-tuned for a task; fine-tune it with `bertmill finetune`"
    ):
        Runner(tiny)


def test_missing_or_non_finite_weights_are_rejected(classifier: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(classifier, tmp_path / "model", ignore=shutil.ignore_patterns("manifest.json"))
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"classifier.bias": torch.full_like(weights["classifier.bias"], torch.nan)},
              folder / "model.safetensors", {"format": "pt"})  # fmt: skip
    with pytest.raises(IntegrityError, match="some weights are not finite"):
        Runner(folder)
    save_file(
        {name: weights[name] for name in weights if not name.startswith("classifier.")},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(UsageError, match="the model has no head for its task"):
        Runner(folder)


def test_rows_are_read_with_the_options_of_training(untrained: MakeModel, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na film\t\n", encoding="utf-8")
    several = Runner(untrained(Classify(("a", "b"), multi_label=True)), "cpu")
    (row,) = several.read(RowFile(str(rows)), labeled=True)
    assert several.task.encode(row, several.windows).target == (0.0, 0.0)
    with pytest.raises(DataError, match="the label is empty"):
        list(Runner(untrained(Classify(("a", "b"))), "cpu").read(RowFile(str(rows)), labeled=True))


@pytest.mark.parametrize(
    ("task", "settings", "what"),
    [
        (Classify(("a", "b")), {"tags": "seq.out"}, "`tags` does"),
        (Tag(("a", "b"), has_spans=False), {"preset": "sst2"}, "`preset` does"),
        (AnswerQuestions(), {"columns": "text=1", "separator": ";"}, "`columns`, `separator` do"),
    ],
)
def test_settings_that_do_not_apply_to_the_task_are_refused(
    task: AnyTask, settings: dict[str, Any], what: str, untrained: MakeModel
) -> None:
    file = RowFile("rows.tsv", EvaluateSettings(model="m", file="rows.tsv", **settings))
    with pytest.raises(UsageError, match=f"rows.tsv: {what} not apply to this task"):
        list(Runner(untrained(task), "cpu").read(file, labeled=True))
