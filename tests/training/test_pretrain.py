"""`bertmill pretrain`: what it learns, on which text, and the settings it refuses."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill.cli.main import main
from bertmill.corpus.instances import Instances
from bertmill.corpus.loader import Loader
from bertmill.corpus.objectives import OBJECTIVES
from bertmill.corpus.parts import DocumentPart
from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.training.initial_weights import PieceStatistics, compute_statistics
from bertmill.training.loop import Trainer
from bertmill.training.recipe import LEARNING_RATES
from tests.training.pretraining import log_of, pretrain


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_learns_and_writes_a_model_that_fills_masks(
    objective: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    flags = ("--steps", 100, "--log-every", 50, "--heldout", corpus.with_name("heldout.txt"), "--learning-rate", 0.003)
    assert pretrain(corpus, run, "--objective", objective, *flags) == 0
    lines = [line for line in log_of(run) if "loss" in line]
    head = "clm" if objective == "clm" else "mlm"
    assert lines[-1][f"{head}_loss"] < math.log(126) - 1  # far better than guessing among all pieces
    assert ("nsp_loss" in lines[0]) == ("+" in objective)
    assert log_of(run)[-1]["heldout_perplexity"] < 100
    assert "piece frequencies alone" in capsys.readouterr().err
    assert main(["fill", str(run / "model"), "Bada [MASK] bebe."]) == 0
    assert "%" in capsys.readouterr().out


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weights_from_the_corpus_start_with_a_lower_loss_than_random_ones(
    objective: str, corpus: Path, tmp_path: Path
) -> None:
    losses = {}
    for weights in ("corpus", "random"):
        flags = ("--steps", 1, "--objective", objective, "--initial-weights", weights, "--learning-rate", 1e-9)
        assert pretrain(corpus, tmp_path / weights, *flags) == 0
        losses[weights] = log_of(tmp_path / weights)[0]["loss"]
        metadata = json.loads((tmp_path / weights / "model/bertmill.json").read_text("utf-8"))
        assert metadata["initial_weights"] == weights
        has_checkpoint = (tmp_path / weights / "checkpoints/step-000000").exists()
        assert has_checkpoint == (weights == "corpus")
    assert losses["corpus"] < losses["random"] - 0.3


@pytest.mark.usefixtures("kept")
def test_initial_weights_are_bit_identical_and_computed_once(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--steps", 3, "--objective", "mlm", "--save-every", 1, "--keep", 9)
    assert pretrain(corpus, tmp_path / "whole", *flags) == 0

    def killed(*_given: object, **_named: object) -> None:
        raise KeyboardInterrupt

    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("bertmill.training.pretrain.set_corpus_weights", killed)
        assert pretrain(corpus, run, *flags) == 130
    assert not (run / "checkpoints").exists()
    with monkeypatch.context() as patch:
        patch.setattr("bertmill.training.loop.Trainer.train", killed)
        assert pretrain(corpus, run, *flags, "--resume") == 130
    capsys.readouterr()
    assert pretrain(corpus, run, *flags, "--resume") == 0
    messages = capsys.readouterr().err
    assert "resumed from step 0" in messages
    assert "initial weights" not in messages
    for step in ("step-000000", "step-000003"):
        expected, weights = (
            load_file(folder / "checkpoints" / step / "weights.safetensors") for folder in (tmp_path / "whole", run)
        )
        assert all(torch.equal(expected[name], weights[name]) for name in expected)


@pytest.mark.usefixtures("kept")
def test_the_time_for_initial_weights_counts(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    state = json.loads((tmp_path / "run/checkpoints/step-000000/state.json").read_text("utf-8"))
    assert 0 < state["seconds"] == state["start_seconds"] <= log_of(tmp_path / "run")[0]["seconds"]


def test_initial_weights_that_use_up_the_budget_are_reported(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Trainer.save_initial_weights
    monkeypatch.setattr(Trainer, "save_initial_weights", lambda self, seconds: original(self, seconds + 60))
    assert pretrain(corpus, tmp_path / "run", "--budget", "60s") == 0
    message = "computing the initial weights used up the budget, so no steps were trained; use a longer budget"
    assert message in capsys.readouterr().err.splitlines()
    assert json.loads((tmp_path / "run/model/bertmill.json").read_text("utf-8"))["steps"] == 0


def test_held_out_documents_are_not_counted_for_initial_weights(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def noted(config: BertConfig, part: DocumentPart, seed: int, **named: Any) -> PieceStatistics:
        counted.append(part.num_documents)
        return compute_statistics(config, part, seed, **named)

    monkeypatch.setattr("bertmill.training.pretrain.compute_statistics", noted)
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--heldout", "0.1") == 0
    assert counted == [108]  # of 120


def test_a_run_reports_its_decisions_in_at_most_six_lines(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trainer, "train", lambda *_given: None)
    for name, flags in {"default": [], "budget": ["--budget", "5"], "init": ["--init", "default/model"]}.items():
        monkeypatch.chdir(tmp_path)
        assert main(["pretrain", "--corpus", str(corpus), "--out", name, "--threads", "1", *flags]) == 0
        *lines, last = capsys.readouterr().err.splitlines()
        assert last.startswith("run folder: ")
        assert 4 <= len(lines) <= 6, lines
        assert lines[-1].startswith("reference losses in nats per predicted piece: random guessing 4.84, piece freq")


def test_continuing_a_model_keeps_its_weights(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    flags = ("--steps", 1, "--learning-rate", 1e-12, "--init", tmp_path / "first/model", "--initial-weights", "corpus")
    assert pretrain(corpus, tmp_path / "run", *flags) == 0
    before, after = (load_file(tmp_path / name / "model/model.safetensors") for name in ("first", "run"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert json.loads((tmp_path / "run/model/bertmill.json").read_text("utf-8"))["initial_weights"] == "init"


def test_the_model_opens_in_transformers(corpus: Path, tmp_path: Path) -> None:
    import transformers

    assert pretrain(corpus, tmp_path / "run", "--steps", 3) == 0
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "run/model")
    ours = BertForPreTraining.from_pretrained(tmp_path / "run/model")
    ids = torch.arange(5, 25)[None]
    expected = theirs(input_ids=ids).prediction_logits
    torch.testing.assert_close(ours(input_ids=ids).prediction_logits, expected, atol=1e-5, rtol=1e-5)


def test_a_model_can_be_trained_further(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "one", "--steps", 3) == 0
    assert pretrain(corpus, tmp_path / "two", "--steps", 3, "--init", tmp_path / "one/model", "--seed", 1) == 0
    before, after = (load_file(tmp_path / name / "model/model.safetensors") for name in ("one", "two"))
    assert all(torch.allclose(before[name], after[name], atol=0.02) for name in before)
    assert pretrain(corpus, tmp_path / "three", "--steps", 3, "--init", "minilm") == 4


def test_a_run_that_continues_a_model_records_its_learning_rate_and_no_size(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", tmp_path / "first/model") == 0
    settings = tomllib.loads((tmp_path / "run/config.toml").read_text("utf-8"))["settings"]
    assert settings["learning_rate"] == LEARNING_RATES["tiny"]
    assert "size" not in settings


def test_init_and_size_are_mutually_exclusive(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", "minilm", "--size", "tiny") == 2
    assert "--init and --size are mutually exclusive" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_head_that_the_init_model_lacks_depends_only_on_the_seed(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "words", "--steps", 1, "--objective", "mlm") == 0
    heads = []
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        torch.rand(7)  # advance the global generator
        flags = ("--steps", 1, "--learning-rate", 1e-9, "--init", tmp_path / "words/model", "--seed", seed)
        assert pretrain(corpus, tmp_path / name, *flags, "--objective", "mlm+nsp") == 0
        heads.append(load_file(tmp_path / name / "model/model.safetensors")["cls.seq_relationship.weight"])
    assert torch.equal(heads[0], heads[1])
    assert not torch.allclose(heads[0], heads[2], atol=1e-3)


def test_unusable_held_out_text_is_named_and_leaves_nothing_behind(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "short.txt"
    cases = (
        ("mlm+nsp", "Only one document.\n", "has only one document"),
        ("mlm+sop", "a\n\nb\n", "has no sentences"),
    )
    for objective, content, message in cases:
        text.write_text(content, encoding="utf-8")
        assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--objective", objective, "--heldout", text) == 3
        assert f"{text}: {message}" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--length", "128:nan", "fractions must be positive and add up to 1"),
        ("--length", "64:0.5,128:nan", "fractions must be positive and add up to 1"),
        ("--length", "64:0.5,128:0.4", "fractions must be positive and add up to 1"),
        ("--length", "0", "lengths must be from 1 to 8,192"),
        ("--length", "128:most", "must have the form 128 or 128:0.9,512:0.1"),
        ("--mask-mix", "nan/50/50", "must be three percentages that add up to 100"),
        ("--mask-mix", "80/20", "must have the form 80/10/10"),
    ],
)
def test_invalid_fractions_are_refused(
    flag: str, value: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrain", "--corpus", "corpus", "--out", str(tmp_path / "run"), flag, value]) == 2
    assert capsys.readouterr().err == f"bertmill: {flag}: {message} (got {value!r})\n"


@pytest.mark.usefixtures("kept")
def test_held_out_text_is_planned_once(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 2, "--heldout", corpus.with_name("heldout.txt")) == 0
    plans = sorted(path.name for path in (run / "plans/rank-0/heldout-32").iterdir())
    assert plans == ["epoch-00000.json", "epoch-00000.records"]


@pytest.mark.parametrize("kind", ["shard-00000.pieces", "shard-00000.words", "epoch-00000.records"])
def test_a_file_that_is_truncated_during_training_gives_one_line(
    kind: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Loader.load

    def load(self: Loader, step: int) -> Any:
        if step == 5:
            for path in tmp_path.rglob(kind):
                os.truncate(path, 10)
        return original(self, step)

    monkeypatch.setattr(Loader, "load", load)
    folder = shutil.copytree(corpus, tmp_path / "corpus")
    flags = ("--steps", 20, "--save-every", 2, "--whole-words", "--objective", "mlm")
    assert pretrain(folder, tmp_path / "run", *flags) == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"{kind}: was truncated while it was in use" in error
    assert list(tmp_path.glob("run/checkpoints/step-*"))


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_that_is_moved_stops_and_resumes_at_its_new_place(
    is_replaced: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, moved, whole = tmp_path / "run", tmp_path / "moved", tmp_path / "whole"
    original = Trainer._learn

    def learn(self: Trainer, *arguments: Any) -> bool:
        if self.state.step == 3 and self.run.path == run:
            run.rename(moved)
            if is_replaced:
                run.mkdir()
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "_learn", learn)
    flags = ("--steps", 6, "--save-every", 2, "--initial-weights", "random")
    assert pretrain(corpus, run, *flags) == 2
    assert f"{run}: was moved or replaced" in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.glob("run/*")) == []
    assert main(["pretrain", "--out", str(moved), "--resume"]) == 0
    assert pretrain(corpus, whole, *flags) == 0
    resumed, expected = ((path / "model/model.safetensors").read_bytes() for path in (moved, whole))
    assert resumed == expected


def test_a_fraction_of_documents_can_be_held_out(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[str, set[int]] = {}
    original = Instances.make_batch

    def noted(self: Instances, epoch: int, numbers: Any) -> Any:
        records = self.planner.open_records(epoch).take(numbers)
        used.setdefault(self.settings.part, set()).update(records["a_start"].tolist(), records["b_start"].tolist())
        return original(self, epoch, numbers)

    monkeypatch.setattr(Instances, "make_batch", noted)
    flags = ("--objective", "mlm+nsp", "--steps", 50, "--eval-every", 25, "--heldout", "0.10", "--save-every", 10)
    assert pretrain(corpus, tmp_path / "run", *flags) == 0
    assert used["train"]
    assert used["heldout"]
    assert not used["train"] & used["heldout"]
    assert len([line for line in log_of(tmp_path / "run") if "heldout_loss" in line]) == 2
    assert not (tmp_path / "run/plans/heldout-text").exists()
    assert 'heldout = "0.1"' in (tmp_path / "run/config.toml").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "run/model")
    assert pretrain(corpus, tmp_path / "run", *flags, "--resume") == 0
    assert not used["train"] & used["heldout"]


@pytest.mark.parametrize("share", ["0", "1", "5", "nan", "-0.1"])
def test_a_fraction_outside_0_to_1_is_refused(
    share: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", f"--heldout={share}") == 2
    assert "must be a fraction between 0 and 1" in capsys.readouterr().err


@pytest.mark.usefixtures("kept")
def test_a_fraction_may_be_a_number_in_a_file(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text("heldout = 0.05\nsteps = 1\n", encoding="utf-8")
    assert pretrain(corpus, tmp_path / "run", "--config", tmp_path / "some.toml") == 0
    assert (tmp_path / "run/plans/rank-0/heldout-32").is_dir()


def test_a_fraction_that_holds_out_no_document_is_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", "--heldout", "0.001") == 3
    assert "0.001 of 120 documents cannot be held out" in capsys.readouterr().err
    assert not (tmp_path / "run/config.toml").exists()


@pytest.mark.parametrize("redirected", ["2>&-", "2>&1 >{out}/printed | head -1"])
def test_a_run_continues_if_its_output_is_not_read(redirected: str, corpus: Path, tmp_path: Path) -> None:
    flags = "--size tiny --length 32 --batch-size 8 --threads 1 --steps 4 --log-every 1"
    command = f"{sys.executable} -m bertmill pretrain --corpus {corpus} --out {tmp_path}/run {flags} "
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command + redirected.format(out=tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert [line["step"] for line in log_of(tmp_path / "run")] == [1, 2, 3, 4]
    assert (tmp_path / "run/model/config.json").exists()


def test_a_model_with_nan_weights_is_refused(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    weights = load_file(tmp_path / "run/model/model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][7, 7] = math.nan
    shutil.copytree(tmp_path / "run/model", tmp_path / "model", ignore=shutil.ignore_patterns("manifest.json"))
    save_file(weights, tmp_path / "model/model.safetensors", metadata={"format": "pt"})
    assert main(["fill", str(tmp_path / "model"), "Bada [MASK]."]) == 4
    assert "some weights are not finite" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epochs", "1e308"], "--epochs"),
        (["--steps", "9" * 320], "--steps"),
        (["--budget", "9" * 320], "--budget"),
        (["--threads", "100000000"], "--threads"),
        (["--workers", "9999999"], "--workers"),
        (["--device", "meta"], "device meta cannot be used"),
        (["--heldout", ""], "--heldout: must not be empty"),
        (["--out", "folder\udcff"], "out is not valid UTF-8"),
    ],
)
def test_impossible_settings_are_refused(
    flags: list[str],
    message: str,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pretrain(corpus, Path("run"), *flags) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("config.toml"))


@pytest.mark.filterwarnings("ignore")  # torch emits warnings when it compiles
@pytest.mark.usefixtures("no_compiler")
def test_compile_without_a_compiler_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--compile") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bertmill: torch.compile does not work here: ")
    assert not (tmp_path / "run/config.toml").exists()
