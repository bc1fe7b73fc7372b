"""Tests for fine-tuning: what is learned, which weights are kept, and what is refused before anything is trained."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from bertmill.cli.main import main
from bertmill.config.commands import FinetuneSettings
from bertmill.model.bert import BertModel
from bertmill.model.config import BertConfig
from bertmill.rows.split import SplitKey, split_rows
from bertmill.tasks.classify import Classify
from bertmill.training.advice import CHECK_ROWS
from bertmill.training.dataset import SPLIT_SEED
from bertmill.training.finetune import finetune
from bertmill.training.progress import Listener
from bertmill.training.trials import finetune_once_or_more
from tests.conftest import RunCommand
from tests.finetuned import RunMain, finetune_words, read_metadata, text_of
from tests.training.test_resume import PROGRAM, outcome


def test_a_run_learns_and_its_model_knows_the_labels(finished: Path) -> None:
    metadata = read_metadata(finished / "model")
    assert (metadata["format"], metadata["task"]) == (1, "classify")
    assert metadata["dev"]["accuracy"] > 0.9
    assert metadata["windows"] == {"max_length": 16, "stride": None, "truncate": False}
    config = transformers.BertConfig.from_pretrained(finished / "model")
    assert config.id2label == {0: "no", 1: "yes"}
    last = json.loads((finished / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert last["dev_accuracy"] <= metadata["dev"]["accuracy"]


def test_settings_without_options_get_the_defaults_of_the_task(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    settings = FinetuneSettings(
        task="classify", model=str(tiny), train=rows_file, out=tmp_path / "run", epochs=0.1, threads=1
    )
    assert finetune(settings, Listener()) == tmp_path / "run/model"
    assert BertConfig.from_pretrained(tmp_path / "run/model").problem_type == "single_label_classification"
    trials = settings.model_copy(update={"out": tmp_path / "trials", "seeds": 2})
    assert finetune_once_or_more(trials, Listener()) == tmp_path / "trials/model"


# Bit-identical after a kill


@pytest.mark.parametrize(
    ("mode", "more"),
    [
        (
            "saving:50",
            {"epochs": 4, "save_every": 9, "log_every": 3, "eval_every": 7, "patience": 4, "learning_rate": 1e-3},
        ),
        ("saving:35", {"epochs": 20, "save_every": 3, "eval_every": 4, "patience": 2, "learning_rate": 1e-9}),
    ],
    ids=["learning", "patience"],
)
def test_a_run_that_is_killed_and_resumed_is_bit_identical(
    mode: str, more: dict[str, Any], tiny: Path, rows_file: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main([*finetune_words(tiny, rows_file, whole, **more), "--quiet"]) == 0
    words = [*finetune_words(tiny, rows_file, killed, **more), "--resume"]
    command = json.dumps([mode, *words])
    done = subprocess.run([sys.executable, PROGRAM], input=command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2  # kills
    assert outcome(killed) == outcome(whole)
    if more["learning_rate"] < 1e-6:  # nothing improves: patience ends the run, kills or not
        metadata = read_metadata(killed / "model")
        assert (metadata["best_step"], metadata["steps"]) == (4, 12)


# Which weights are kept


def test_patience_ends_a_run_that_does_not_improve(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    words = finetune_words(tiny, rows_file, tmp_path / "run", epochs=50, patience=2, learning_rate=1e-9)
    assert main([*words, "--quiet"]) == 0
    metadata = read_metadata(tmp_path / "run/model")
    assert metadata["steps"] == 3 * 14  # one evaluation is the best, two are not; 108 rows in batches of 8
    assert metadata["best_step"] == 14


@pytest.mark.usefixtures("kept")
def test_the_model_has_the_weights_of_the_best_step(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    """At a learning rate that destroys the weights, the first evaluations are the best."""
    more = {"learning_rate": 0.3, "eval_every": 1, "epochs": 2, "seed": 1}
    assert main([*finetune_words(tiny, rows_file, tmp_path / "run", **more), "--quiet"]) == 0
    metadata = read_metadata(tmp_path / "run/model")
    assert metadata["best_step"] < metadata["steps"]
    best = load_file(tmp_path / f"run/checkpoints/step-{metadata['best_step']:06d}/weights.safetensors")
    model = load_file(tmp_path / "run/model/model.safetensors")
    assert best.keys() == model.keys()
    assert all(torch.equal(best[name], model[name]) for name in best)


@pytest.mark.parametrize(
    ("renamed", "num_labels", "keeps_head"), [(0, 2, True), (-1, 2, False), (20, 3, False)], ids=str
)
def test_a_head_is_kept_for_the_same_labels_only(
    renamed: int, num_labels: int, keeps_head: bool,
    classifier: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows = tmp_path / "rows.tsv"
    rows.write_text(rows_file.read_text(encoding="utf-8").replace("\tyes", "\taye", renamed), encoding="utf-8")
    words = finetune_words(classifier, rows, tmp_path / "run", epochs=0.01, dropout=0, learning_rate=1e-12)
    assert main(words) == 0
    old, new = (
        load_file(path / "model.safetensors")["classifier.weight"] for path in (classifier, tmp_path / "run/model")
    )
    assert len(new) == num_labels
    assert (new.shape == old.shape and torch.allclose(new, old, atol=1e-6)) == keeps_head
    assert ("the head starts from the probe" in capsys.readouterr().err) != keeps_head


def test_dropout_applies_to_the_head_too(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    BertModel.from_pretrained(tiny, classifier_dropout=0.5).save_pretrained(model)
    assert main([*finetune_words(model, rows_file, tmp_path / "run", epochs=0.01, dropout=0), "--quiet"]) == 0
    assert BertConfig.from_pretrained(tmp_path / "run/model").classifier_dropout == 0


# Refused


def test_dev_rows_must_include_a_usable_one(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [f"film {number}" for number in range(40)]
    _, (drawn,) = split_rows(texts, 0.025, SPLIT_SEED, SplitKey)
    rows = tmp_path / "rows.conll"
    tags = {text: "0" if text == drawn else f"B-{len(text)}" for text in texts}
    rows.write_text("\n".join(f"film O\n{text.split()[1]} {tag}\n" for text, tag in tags.items()), encoding="utf-8")
    words = finetune_words(tiny, rows, tmp_path / "run", "tag", dev=0.025, on_bad_row="skip")
    assert main([*words, "--quiet"]) == 3
    assert "no usable rows are left for training or for evaluation" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_left_to_right_model_is_refused_for_tasks_that_read_cls(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = shutil.copytree(tiny, tmp_path / "model")
    BertModel.from_pretrained(tiny, causal=True).save_pretrained(model)
    assert main([*finetune_words(model, rows_file, tmp_path / "run"), "--quiet"]) == 2
    assert "its [CLS] cannot see the text, and classify reads [CLS]" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{}, {"seeds": 2}])
def test_rows_from_a_pipe_are_refused(
    flags: dict[str, int], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "-"):
        assert main([*finetune_words(tiny, Path(name), tmp_path / "run", **flags), "--quiet"]) == 2
        assert "training rows must be in a file, not in a pipe; write" in capsys.readouterr().err


def test_a_stride_beyond_the_window_is_refused_before_training(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = BertConfig.from_pretrained(tiny).max_position_embeddings
    assert main(finetune_words(tiny, rows_file, tmp_path / "run", stride=longest + 1)) == 2
    assert f"the stride {longest + 1} must not exceed the window ({longest})" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_folder_without_a_model_is_refused(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "folder")
    (folder / "config.json").unlink()
    assert main(finetune_words(folder, rows_file, tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert f"bertmill: {folder}: " in said
    assert "config.json" in said


def test_a_metric_that_the_task_does_not_have_is_refused(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "pos.tsv"
    rows.write_text("a\tX\nb\tY\n\n" * 20, encoding="utf-8")
    assert main(finetune_words(tiny, rows, tmp_path / "run", "tag", metric="f1")) == 2
    assert "there is no metric called 'f1'; known: accuracy" in capsys.readouterr().err


def test_metrics_that_are_not_finite_stop_a_run(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Classify, "metrics", lambda *_: {"accuracy": float("nan")})
    assert main([*finetune_words(tiny, rows_file, tmp_path / "run", epochs=1), "--quiet"]) == 5
    assert "the metrics after step 14 are not finite" in capsys.readouterr().err


# Several processes


def test_two_processes_learn_the_same_as_one(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    more = {"dropout": 0, "epochs": 2, "log_every": 5, "eval_every": 9, "batch_size": 9, "learning_rate": 1e-3}
    more = {name.replace("_", "-"): value for name, value in more.items()}
    assert main([*finetune_words(tiny, rows_file, tmp_path / "1", **more), "--quiet"]) == 0
    done = torchrun(2, *finetune_words(tiny, rows_file, tmp_path / "2", **more))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model") == 1  # only the first rank prints
    weights = [load_file(tmp_path / f"{number}/model/model.safetensors") for number in (1, 2)]
    assert all((tensor - weights[1][name]).abs().max() <= 1e-5 for name, tensor in weights[0].items())
    logs = [
        [json.loads(line) for line in (tmp_path / f"{number}/log.jsonl").read_text(encoding="utf-8").splitlines()]
        for number in (1, 2)
    ]
    for ours, theirs in zip(*logs, strict=True):
        for line in (ours, theirs):
            line.pop("seconds", None)
        assert ours == pytest.approx(theirs, abs=1e-4)


def torchrun(num_processes: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    return subprocess.run([*command, "-m", "bertmill", *words], capture_output=True, text=True, check=False)


# Every task from the command line


def rows_for(task: str) -> list[dict[str, Any]]:
    """Rows that can be learned by looking for a word."""
    draw = random.Random(5)
    rows: list[dict[str, Any]] = []
    for _ in range(96):
        text = text_of(draw)
        words = text.split()
        if task == "regress":
            rows.append({"text": text, "label": words.count("good") / len(words)})
        elif task == "choose":
            choices = ["a good film", "a dull book"]
            draw.shuffle(choices)
            rows.append({"text": text, "choices": choices, "label": choices.index("a good film")})
        else:
            rows.append({"text": text, "label": [word for word in ("good", "bad") if word in words]})
    return rows


@pytest.mark.parametrize(
    ("task", "flags", "metric", "keys"),
    [
        ("classify", ["--multi-label"], "micro_f1", ["labels", "scores"]),
        ("regress", [], "pearson", ["number"]),
        ("choose", [], "accuracy", ["choice", "answer", "score", "scores"]),
    ],
    ids=["multi-label", "regress", "choose"],
)
def test_a_task_learns_is_evaluated_and_predicts(
    task: str, flags: list[str], metric: str, keys: list[str], tiny: Path, tmp_path: Path, run_main: RunMain
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_for(task)), encoding="utf-8")
    more = {"learning_rate": 2e-3, "epochs": 14, "dropout": 0, "eval_every": 24}
    run_main(*finetune_words(tiny, file, tmp_path / "run", task, **more), *flags, "--quiet")
    model = tmp_path / "run/model"
    assert read_metadata(model)["task"] == task
    figures = json.loads(run_main("evaluate", model, file, "--json", "--quiet"))["metrics"][metric]
    assert figures["low"] <= figures["value"] <= figures["high"]
    assert figures["value"] > 0.75
    answers = [json.loads(line) for line in run_main("predict", model, file, "--quiet").splitlines()]
    assert len(answers) == 96
    assert all(list(answer) == ["id", *keys] for answer in answers)


def test_a_run_warns_that_its_model_is_not_better_than_the_baseline(
    tiny: Path, tmp_path: Path, bertmill: RunCommand
) -> None:
    draw = random.Random(0)
    rows = tmp_path / "rows.tsv"
    lines = [f"{text_of(draw)}\t{draw.choice(['yes', 'no'])}" for _ in range(100)]
    rows.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    words = finetune_words(tiny, rows, tmp_path / "run", learning_rate=1e-9, epochs=0.1, dev=0.4)
    said = bertmill(*words).stderr
    summary = r"^dev: accuracy 0\.\d{4} \(95% CI: 0\.\d{4} … 0\.\d{4}\), baseline 0\.\d{4} \(always (yes|no)\)$"
    assert re.search(summary, said, re.MULTILINE)
    content = json.loads((tmp_path / "run/evaluation.json").read_text(encoding="utf-8"))
    assert content["metric"] == "accuracy"
    assert content["warning"].startswith("the model is not clearly better than the baseline (always ")
    (warning,) = [line for line in said.splitlines() if line.startswith(f"warning: {content['warning']} ")]
    assert warning.endswith(CHECK_ROWS) or "--learning-rate" in warning
    assert warning in bertmill(*words, "--out", tmp_path / "quiet", "--quiet").stderr.splitlines()


def test_thresholds_of_several_labels_are_tuned_on_dev(
    tiny: Path, tmp_path: Path, bertmill: RunCommand, run_main: RunMain
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_for("classify")), encoding="utf-8")
    words = finetune_words(tiny, file, tmp_path / "run", learning_rate=1e-4, epochs=1, dev=file)
    said = bertmill(*words, "--multi-label").stderr
    effect = re.search(
        r"^tuned on dev: thresholds of 2 labels, from 0\.\d{4} to 0\.\d{4}; "
        r"micro f1 ([\d.]+) → ([\d.]+), macro f1 [\d.]+ → [\d.]+, subset accuracy [\d.]+ → [\d.]+$",
        said,
        re.M,
    )
    assert effect
    before, after = map(float, effect.groups())
    assert before < after
    metadata = read_metadata(tmp_path / "run/model")
    assert set(metadata["thresholds"]) == {"good", "bad"}
    evaluation = json.loads(run_main("evaluate", tmp_path / "run/model", file, "--json", "--quiet"))
    assert evaluation["metrics"]["micro_f1"]["value"] == pytest.approx(metadata["dev"]["micro_f1"])
    assert metadata["dev"]["micro_f1"] == pytest.approx(after, abs=1e-4)


def test_a_tagger_learns(tagger: Path, tagged_file: Path, run_main: RunMain) -> None:
    evaluation = json.loads(run_main("evaluate", tagger, tagged_file, "--json", "--quiet"))
    for name in ("accuracy", "precision", "recall", "f1", "strict_f1"):
        metric = evaluation["metrics"][name]
        assert 0.9 < metric["value"] <= 1
        assert metric["low"] <= metric["value"] <= metric["high"]
    assert [each["label"] for each in evaluation["classes"]] == ["LOC"]
    assert read_metadata(tagger)["scheme"] == "IOB1"


def test_an_answerer_learns_and_records_its_threshold(answerer: Path, questions_file: Path, run_main: RunMain) -> None:
    metrics = json.loads(run_main("evaluate", answerer, questions_file, "--json", "--quiet"))["metrics"]
    assert metrics["f1"]["value"] > 0.8
    assert {"exact", "f1", "exact_at_zero", "f1_at_zero", "answerable_f1", "unanswerable_accuracy"} == set(metrics)
    metadata = read_metadata(answerer)
    assert isinstance(metadata["null_threshold"], float)
    assert metadata["max_answer_pieces"] == 30
    assert metadata["dev"]["f1"] == pytest.approx(metrics["f1"]["value"])
    assert metadata["dev"]["f1"] >= metadata["dev"]["f1_at_zero"]
