"""Run folders: how a run starts, what may change when it is resumed, and what is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bertmill import locks
from bertmill.cli.main import main
from bertmill.config.fields import Precision
from bertmill.corpus.build import build_corpus
from bertmill.corpus.shards import Corpus
from bertmill.model.bert import BertForSequenceClassification
from bertmill.model.config import BertConfig
from bertmill.model.mean_layer import add_mean_layer, has_mean_layer
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training import runs
from bertmill.training.distributed import joined_ranks
from tests.training.pretraining import edit_settings, log_of, pretrain


def test_settings_that_affect_what_is_learned_cannot_change(
    half_a_run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--out", str(half_a_run), "--resume", "--seed", "5", "--steps", "20", "--size", "mini", "--log-every", "3"]
    assert main(["pretrain", *flags]) == 2
    message = capsys.readouterr().err
    assert "seed, size cannot change" in message
    assert pretrain(corpus, half_a_run, "--steps", 20) == 2
    assert "already contains a run; resume it" in capsys.readouterr().err


def test_the_command_that_started_a_run_resumes_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(corpus.parent)
    flags = ("--steps", 2, "--precision", "auto", "--resume", "--keep-checkpoints")
    assert pretrain(Path("corpus"), tmp_path / "run", *flags) == 0
    shutil.rmtree(tmp_path / "run/model")
    assert pretrain(Path("corpus"), tmp_path / "run", *flags) == 0
    assert "resumed from step 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "speedup", "decided"),
    [
        ("auto", None, "fp32"),
        ("auto", 0.5, "fp32"),
        ("auto", 2.0, "bf16"),
        ("bf16", 0.5, "bf16"),
        ("fp32", 2.0, "fp32"),
    ],
)
def test_half_precision_is_chosen_if_it_is_faster(
    asked: Precision, speedup: float | None, decided: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "bf16_speedup", lambda device: speedup)
    with joined_ranks(torch.device("cpu")) as ranks:
        assert runs._usable_precision(asked, ranks, is_new=True) == decided


@pytest.mark.parametrize("is_started", [False, True], ids=["new", "started on another machine"])
def test_half_precision_is_refused_if_it_crashes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_started: bool
) -> None:
    run = tmp_path / "run"
    if is_started:
        assert pretrain(corpus, run, "--steps", 2) == 0
        shutil.rmtree(run / "model")
        edit_settings(run, {'precision = "fp32"': 'precision = "bf16"'})
    monkeypatch.setattr(runs, "bf16_speedup", lambda device: None)
    capsys.readouterr()
    assert pretrain(corpus, run, "--steps", 2, "--precision", "bf16", "--resume") == 2
    message = capsys.readouterr().err
    assert "this machine cannot compute in bf16" in message
    assert ("resume the run on another machine" if is_started else "use fp32") in message
    assert run.exists() == is_started


def test_a_corpus_may_move_but_not_change(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = shutil.copytree(corpus, tmp_path / "corpus")
    assert pretrain(moved, tmp_path / "run", "--steps", 2) == 0
    shutil.rmtree(tmp_path / "run/model")
    moved = moved.rename(tmp_path / "moved")
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume", "--corpus", str(moved)]) == 0
    shutil.rmtree(tmp_path / "run/model")
    tokenizer = BertTokenizer.from_pretrained(Corpus(corpus).vocabulary_folder)
    build_corpus([str(corpus.with_name("heldout.txt"))], tokenizer, tmp_path / "other", workers=1)
    capsys.readouterr()
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume", "--corpus", str(tmp_path / "other")]) == 4
    assert "the corpus data differs from what the run started with" in capsys.readouterr().err
    moved.rename(tmp_path / "gone")
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 2
    assert f"{moved}: does not exist; set --corpus to its new location" in capsys.readouterr().err


def test_a_run_is_resumed_from_another_directory(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    (tmp_path / "heldout.txt").write_bytes(corpus.with_name("heldout.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    flags = ("--steps", 2, "--init", "first/model", "--heldout", "heldout.txt", "--resume", "--keep-checkpoints")
    assert pretrain(corpus, tmp_path / "run", *flags) == 0
    shutil.rmtree("run/model")
    assert pretrain(corpus, tmp_path / "run", *flags) == 0  # the same command
    shutil.rmtree("run/model")
    shutil.rmtree("run/plans/heldout-text")
    monkeypatch.chdir(corpus)
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 0


def test_an_init_model_may_move_but_not_change(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (1, 2):
        assert pretrain(corpus, tmp_path / f"{seed}", "--steps", 1, "--seed", seed) == 0
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 2, "--init", tmp_path / "1/model") == 0
    before = (run / "model/model.safetensors").read_bytes()
    shutil.rmtree(run / "model")
    moved = (tmp_path / "1/model").rename(tmp_path / "moved")
    again = ["pretrain", "--out", str(run), "--resume", "--init"]
    assert main([*again, str(tmp_path / "2/model")]) == 4
    assert "the init data differs from what the run started with" in capsys.readouterr().err
    assert main([*again, str(moved)]) == 0
    assert (run / "model/model.safetensors").read_bytes() == before


def test_pre_training_continues_without_a_mean_layer(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    classifier = BertForSequenceClassification.from_pretrained(tmp_path / "run/model", num_labels=2)
    add_mean_layer(classifier)
    folder = shutil.copytree(tmp_path / "run/model", tmp_path / "classifier")
    (folder / "manifest.json").unlink()
    classifier.save_pretrained(folder)
    assert pretrain(corpus, tmp_path / "again", "--steps", 1, "--init", folder) == 0
    config = BertConfig.from_pretrained(tmp_path / "again/model")
    assert not has_mean_layer(config)
    assert config.num_hidden_layers == 2


def test_a_mistake_in_the_first_command_can_be_corrected_in_the_second(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(tmp_path / "nowhere", tmp_path / "run", "--steps", 1) == 2
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", "minilm") == 4
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0


@pytest.mark.parametrize("words_", [["inspect"], ["check"], ["fill", "a [MASK]"]])
def test_a_run_folder_is_not_a_model_and_the_message_names_the_model(
    words_: list[str], half_a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words_
    run = shutil.copytree(half_a_run, tmp_path / "run")
    assert main([command, str(run), *rest]) == 2
    assert f"bertmill: {run}: is a run that has not finished; resume it to get a model: " in capsys.readouterr().err
    (run / "model").mkdir()
    assert main([command, str(run), *rest]) == 2
    assert capsys.readouterr().err == f"bertmill: {run}: is a run folder, not a model folder; use {run}/model\n"


def test_a_finished_run_is_not_overwritten(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 0
    assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 2
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert "is already finished" in capsys.readouterr().err


def test_a_refused_start_can_be_corrected(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One document. It has two sentences.\n", encoding="utf-8")
    vocabulary, single = str(corpus / "vocabulary"), tmp_path / "single"
    assert main(["corpus", str(tmp_path / "text.txt"), "--vocab", vocabulary, "--out", str(single), "--quiet"]) == 0
    assert pretrain(tmp_path, tmp_path / "run", "--steps", 1) == 2
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", "minilm") == 4
    assert pretrain(single, tmp_path / "run", "--steps", 1, "--objective", "mlm+nsp") == 3
    assert not (tmp_path / "run/config.toml").exists()
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0


def test_a_folder_with_other_files_is_refused(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    assert pretrain(corpus, tmp_path, "--steps", 1) == 2
    assert "is neither empty nor a run folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


def test_a_folder_belongs_to_one_run_at_a_time(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_LOCK_PATIENCE_S", 0.1)
    with locks.locked_folder(tmp_path / "run"):
        assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 6
    assert "is being written by another process" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["corpus", "learning_rate", "steps", "size", "out"])
def test_missing_settings_of_a_run_are_reported(
    key: str, half_a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    lines = (run / "config.toml").read_text().splitlines(keepends=True)
    (run / "config.toml").write_text("".join(line for line in lines if not line.startswith(f"{key} =")))
    assert main(["pretrain", "--out", str(run), "--resume"]) == (0 if key == "out" else 4)
    assert f"is damaged: {key}: field required" in capsys.readouterr().err or key == "out"


def test_a_run_recognizes_its_corpus_without_its_plans(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 1) == 0
    assert not (run / "plans").exists()
    shutil.rmtree(run / "model")
    tokenizer = BertTokenizer.from_pretrained(corpus.parent / "vocab.txt")
    build_corpus([str(corpus.parent / "heldout.txt")], tokenizer, tmp_path / "other", workers=1)
    assert main(["pretrain", "--out", str(run), "--resume", "--corpus", str(tmp_path / "other")]) == 4
    assert "the corpus data differs from what the run started with" in capsys.readouterr().err


def test_a_run_of_another_command_is_reported(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    assert main(["finetune", "--out", str(tmp_path / "run"), "--resume"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"bertmill: {tmp_path}/run: is a run of `bertmill pretrain`; resume it with that command"
    )


def test_the_settings_of_a_run_with_init_start_another_run(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    assert pretrain(corpus, tmp_path / "second", "--steps", 1, "--init", tmp_path / "first/model") == 0
    config = tmp_path / "second/config.toml"
    config.write_text(re.sub(r'length = "32"', "length = 32", config.read_text()))  # as a user would write it
    assert main(["pretrain", "--config", str(config), "--out", str(tmp_path / "third")]) == 0


# Finished runs


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in (run / "model").rglob("*") if path.is_file()}


def test_a_finished_run_keeps_its_results_and_nothing_that_only_training_needs(corpus: Path, tmp_path: Path) -> None:
    run, heldout = tmp_path / "run", corpus.with_name("heldout.txt")
    assert pretrain(corpus, run, "--steps", 4, "--eval-every", 2, "--save-every", 1, "--heldout", heldout) == 0
    assert {path.name for path in run.iterdir()} - {"tensorboard"} == {
        *("config.toml", "log.jsonl", "model", "evaluation.json", "report.html")
    }


@pytest.mark.parametrize("number", range(6))
def test_a_kill_while_a_run_finishes_leaves_a_resumable_or_finished_run(
    number: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    flags = ("--steps", 3, "--save-every", 1, "--resume", "--quiet")
    left = [number]

    def killed_at_the_last(rename: Callable[..., Path]) -> Callable[..., Path]:
        def call(path: Path, target: Path) -> Path:
            if path.name.startswith((".tmp-model", "step-")) and (run / "log.jsonl").exists():
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
            return rename(path, target)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed_at_the_last(Path.rename))
        code = pretrain(corpus, run, *flags)
    assert code in (0, 130)
    is_complete = (run / "model/config.json").exists()
    assert is_complete or list((run / "checkpoints").glob("step-*"))
    before = contents(run)
    assert pretrain(corpus, run, *flags) == 0
    assert contents(run) == before or not is_complete
    assert not (run / "checkpoints").exists()
    assert not (run / "plans").exists()
    assert not list(run.glob(".tmp-*"))


def test_a_finished_run_with_checkpoints_can_be_extended(corpus: Path, tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    keep = ("--save-every", 2, "--keep-checkpoints")
    assert pretrain(corpus, run, "--steps", 6, *keep) == 0
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-000006"]
    shutil.copytree(run, copy)
    before = contents(run)
    assert main(["pretrain", "--out", str(run), "--resume", "--steps", "12"]) == 0
    assert contents(run) != before
    assert [line["step"] for line in log_of(run) if "loss" in line] == [6, 12]
    assert "extended" not in (run / "config.toml").read_text()
    assert "steps = 12" in (run / "config.toml").read_text()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-000012"]
    # Interrupted = uninterrupted, and the model stays until the new one is complete.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertmill.training.runs.Run.finish", lambda *_: None)
        assert main(["pretrain", "--out", str(copy), "--resume", "--steps", "12"]) == 0
    assert contents(copy) == before
    for step in (12, 10):
        shutil.rmtree(copy / f"checkpoints/step-{step:06d}")
    assert main(["pretrain", "--out", str(copy), "--resume"]) == 0
    assert (copy / "model/model.safetensors").read_bytes() == (run / "model/model.safetensors").read_bytes()


def test_a_run_that_is_extended_is_not_finished_until_its_model_is_new(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 2, "--keep-checkpoints") == 0
    extend = ["pretrain", "--out", str(run), "--resume", "--steps", "4"]
    with monkeypatch.context() as patch:
        patch.setattr("bertmill.training.pretrain.evaluate_pretraining", raise_interrupt)
        assert main(extend) == 130
    assert main(["report", str(run)]) == 0
    assert '"is_finished":false' in (run / "report.html").read_text()
    capsys.readouterr()
    assert main([*extend[:-2], "--steps", "6"]) == 2
    assert "steps cannot change when a run is resumed" in capsys.readouterr().err
    assert main(extend) == 0
    assert main(extend) == 0
    assert f"{run} is already finished" in capsys.readouterr().err


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_without_checkpoints_cannot_be_extended(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 4) == 0
    before = contents(run)
    resume = ["pretrain", "--out", str(run), "--resume", "--steps"]
    assert main([*resume, "8"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"bertmill: {run}: has finished and kept no checkpoint, so it cannot be extended; "
        f"start a new run from the model in {run}/model"
    )
    assert main([*resume, "2"]) == 2
    assert "steps cannot change" in capsys.readouterr().err
    assert contents(run) == before


def test_kept_checkpoints_are_removed_on_request(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 2, "--keep-checkpoints") == 0
    assert main(["pretrain", "--out", str(run), "--resume"]) == 0
    assert (run / "checkpoints/step-000002").exists()
    assert main(["pretrain", "--out", str(run), "--resume", "--no-keep-checkpoints"]) == 0
    assert not (run / "checkpoints").exists()
