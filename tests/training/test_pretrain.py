"""`bertmill pretrain` as a user meets it: results, mistakes, broken files, several processes."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill import storage
from bertmill.cli.main import main
from bertmill.config.fields import Precision
from bertmill.corpus.build import build_corpus
from bertmill.corpus.instances import Instances
from bertmill.corpus.shards import Corpus
from bertmill.model.bert import BertForPreTraining
from bertmill.model.config import BertConfig
from bertmill.storage import write_manifest
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training import runs
from bertmill.training.distributed import joined_ranks
from bertmill.training.objective_trainable import ObjectiveTrainable
from bertmill.training.pretrain import LEARNING_RATES


def pretrain(corpus: Path, out: Path, *flags: object) -> int:
    size = () if "--init" in flags else ("--size", "tiny")
    fixed = ("--corpus", corpus, "--out", out, *size, "--length", 32, "--batch-size", 8, "--threads", 1)
    return main(["pretrain", *(str(flag) for flag in (*fixed, *flags))])


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop", "mlm", "clm"])
def test_it_learns_and_writes_a_model_that_fills(
    objective: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    flags = ("--steps", 100, "--log-every", 50, "--heldout", corpus.with_name("heldout.txt"), "--learning-rate", 0.003)
    assert pretrain(corpus, run, "--objective", objective, *flags) == 0
    lines = [line for line in log_of(run) if "loss" in line]
    assert lines[-1]["mlm_loss"] < math.log(126) - 1  # far better than guessing among all pieces
    assert ("nsp_loss" in lines[0]) == ("+" in objective)
    assert log_of(run)[-1]["heldout_perplexity"] < 100
    assert "knowing frequencies alone" in capsys.readouterr().err
    assert main(["fill", str(run / "model"), "Bada [MASK] bebe."]) == 0
    assert "%" in capsys.readouterr().out


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


def test_the_rate_goes_by_the_size_of_the_model(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = BertTokenizer.from_pretrained(Corpus(corpus).vocabulary_folder)
    for size, layers in (
        ("base", 1),
        ("medium", 8),
        ("tiny", 3),
    ):
        folder = tmp_path / f"{size}-{layers}"
        config = BertConfig.of_size(size, num_hidden_layers=layers, vocab_size=len(tokenizer))
        BertForPreTraining(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        assert pretrain(corpus, tmp_path / f"run-{size}", "--steps", 1, "--init", folder) == 0
    # One layer of base has as many weights as two of small, and four of mini fewer than a half of that.
    rates = [(tmp_path / f"run-{size}/config.toml").read_text("utf-8") for size in ("base", "medium", "tiny")]
    wanted = [LEARNING_RATES[size] for size in ("small", "medium", "tiny")]
    assert [tomllib.loads(text)["learning_rate"] for text in rates] == wanted
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", folder, "--size", "tiny") == 2
    assert "--init brings a size of its own" in capsys.readouterr().err


def test_a_head_that_the_first_model_lacks_depends_on_the_seed_alone(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "words", "--steps", 1, "--objective", "mlm") == 0
    heads = []
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        torch.rand(7)  # whatever was drawn before
        flags = ("--steps", 1, "--learning-rate", 1e-9, "--init", tmp_path / "words/model", "--seed", seed)
        assert pretrain(corpus, tmp_path / name, *flags) == 0
        heads.append(load_file(tmp_path / name / "model/model.safetensors")["cls.seq_relationship.weight"])
    assert torch.equal(heads[0], heads[1])
    assert not torch.allclose(heads[0], heads[2], atol=1e-3)


def test_a_budget_ends_on_time_with_the_rate_at_zero(corpus: Path, tmp_path: Path) -> None:
    started = time.monotonic()
    assert pretrain(corpus, tmp_path / "run", "--budget", "4s", "--log-every", 1) == 0
    last = log_of(tmp_path / "run")[-1]
    assert 3 < last["seconds"] <= 4.5  # the last step may be slower than those before
    assert last["rate"] < 0.1 * 0.001
    assert time.monotonic() - started < 20


def test_gradients_do_not_depend_on_micro_batches(corpus: Path, tmp_path: Path) -> None:
    """Weights after one step of AdamW show only the signs of gradients; so the gradients are looked at."""
    gradients = []
    for pieces in (10**6, 8 * 32):  # 1 × 32 and, since some instances are short, 4 parts of 8 or more
        captured: list[torch.Tensor] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "bertmill.training.loop.gradient_norm",
                lambda model, captured=captured: captured.extend(p.grad.clone() for p in model.parameters()) or 1.0,
            )
            counted = SpoiltAt(set(), patch)
            flags = ("--steps", 1, "--dropout", 0, "--batch-size", 32, "--micro-batch-pieces", pieces)
            assert pretrain(corpus, tmp_path / str(pieces), *flags) == 0
        assert (counted.calls == 1) == (pieces == 10**6)
        gradients.append(captured)
    largest = max(float(gradient.abs().max()) for gradient in gradients[0])
    for whole, parts in zip(*gradients, strict=True):
        assert (whole - parts).abs().max() <= 1e-6 * largest


class SpoiltAt:
    """The losses, but not a number at some steps."""

    def __init__(self, steps: set[int], patch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        original = ObjectiveTrainable.loss

        def spoilt(*arguments: Any) -> Any:
            loss, sums = original(*arguments)
            self.calls += 1
            return (loss * float("nan") if self.calls - 1 in steps else loss), sums

        patch.setattr(ObjectiveTrainable, "loss", spoilt)


def test_a_loss_that_is_not_a_number_stops_the_training(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    SpoiltAt({7}, monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 12, "--save-every", 5) == 5
    message = capsys.readouterr().err.splitlines()[-1]
    assert "step 7 is not finite (8 instances" in message
    (checkpoint,) = (tmp_path / "run/checkpoints").iterdir()
    assert checkpoint.name == "step-000005"
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "weights.safetensors").values())


@pytest.mark.parametrize(("wish", "steps_computed"), [("skip", 12), ("reload", 14)])
def test_a_step_that_is_not_finite_can_be_left_out(
    wish: str, steps_computed: int, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt = SpoiltAt({7}, monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 12, "--save-every", 5, "--on-nonfinite", wish) == 0
    assert spoilt.calls == steps_computed  # going back to step 5 means computing 5 and 6 again, and not 7
    state = json.loads((tmp_path / "run/checkpoints/step-000012/state.json").read_text(encoding="utf-8"))
    assert state["left_out"] == [7]


def test_a_training_that_only_fails_stops_in_the_end(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SpoiltAt(set(range(100)), monkeypatch)
    assert pretrain(corpus, tmp_path / "run", "--steps", 40, "--on-nonfinite", "skip") == 5


@pytest.fixture(scope="module")
def half_a_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps that lost its model: checkpoints of 15 and 20 are there."""
    run = tmp_path_factory.mktemp("half") / "run"
    assert pretrain(corpus, run, "--steps", 20, "--save-every", 5, "--log-every", 5) == 0
    shutil.rmtree(run / "model")
    return run


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing file", "missing manifest"])
def test_a_broken_checkpoint_is_passed_over(
    damage: str, half_a_run: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    expected = (run / "checkpoints/step-000020/weights.safetensors").read_bytes()
    broken = run / "checkpoints/step-000020/weights.safetensors"
    if damage == "truncated":
        broken.write_bytes(expected[:-10])
    elif damage == "flipped":
        broken.write_bytes(expected[:-10] + bytes([expected[-10] ^ 1]) + expected[-9:])
    elif damage == "missing file":
        broken.unlink()
    else:
        (broken.parent / "manifest.json").unlink()
    assert main(["pretrain", "--out", str(run), "--resume"]) == 0
    messages = capsys.readouterr().err.splitlines()
    assert len([line for line in messages if line.startswith("not used: ")]) == 1
    assert "resumed from step 15" in messages
    assert broken.read_bytes() == expected


def test_only_broken_checkpoints_are_an_error(
    half_a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(half_a_run, tmp_path / "run")
    for state in run.glob("checkpoints/*/state.json"):
        state.write_text("{}", encoding="utf-8")
        (state.parent / "manifest.json").unlink()
        write_manifest(state.parent)
    assert main(["pretrain", "--out", str(run), "--resume"]) == 4
    assert "state.json" in capsys.readouterr().err


def test_settings_that_decide_what_is_learnt_cannot_change(
    half_a_run: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--out", str(half_a_run), "--resume", "--seed", "5", "--steps", "20", "--size", "mini", "--log-every", "3"]
    assert main(["pretrain", *flags]) == 2
    message = capsys.readouterr().err
    assert "--seed, --size cannot change" in message
    assert pretrain(corpus, half_a_run, "--steps", 20) == 2
    assert "go on with --resume" in capsys.readouterr().err


def test_the_command_that_began_a_run_resumes_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(corpus.parent)
    flags = ("--steps", 2, "--precision", "auto", "--resume")
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
def test_half_precision_is_chosen_where_it_is_faster(
    asked: Precision, speedup: float | None, decided: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "bf16_speedup", lambda device: speedup)
    with joined_ranks(torch.device("cpu")) as ranks:
        assert runs._precision_here(asked, ranks, is_new=True) == decided


@pytest.mark.parametrize("is_begun", [False, True], ids=["new", "begun on another machine"])
def test_half_precision_is_refused_where_nobody_survives_it(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_begun: bool
) -> None:
    run = tmp_path / "run"
    if is_begun:
        assert pretrain(corpus, run, "--steps", 2) == 0
        shutil.rmtree(run / "model")
        settings = (run / "config.toml").read_text()
        assert 'precision = "fp32"' in settings
        (run / "config.toml").write_text(settings.replace('precision = "fp32"', 'precision = "bf16"'))
    monkeypatch.setattr(runs, "bf16_speedup", lambda device: None)
    capsys.readouterr()
    assert pretrain(corpus, run, "--steps", 2, "--precision", "bf16", "--resume") == 2
    message = capsys.readouterr().err
    assert "bf16 cannot be used" in message
    assert ("on another machine" if is_begun else "use --precision fp32") in message
    assert run.exists() == is_begun


def test_a_corpus_may_be_moved_but_not_become_another(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    assert "the corpus data is not what this run began with" in capsys.readouterr().err
    moved.rename(tmp_path / "gone")
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 2
    assert f"{moved}: is not there; say with --corpus where it is now" in capsys.readouterr().err


def test_a_run_is_resumed_from_another_directory(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    (tmp_path / "heldout.txt").write_bytes(corpus.with_name("heldout.txt").read_bytes())
    monkeypatch.chdir(tmp_path)
    flags = ("--steps", 2, "--init", "first/model", "--heldout", "heldout.txt", "--resume")
    assert pretrain(corpus, tmp_path / "run", *flags) == 0
    shutil.rmtree("run/model")
    assert pretrain(corpus, tmp_path / "run", *flags) == 0  # the same command
    shutil.rmtree("run/model")
    shutil.rmtree("run/plans/heldout-text")
    monkeypatch.chdir(corpus)
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 0


def test_held_out_text_that_cannot_be_used_is_named_and_leaves_nothing_behind(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "short.txt"
    cases = (
        ("mlm+nsp", "One document only.\n", "has one document only"),
        ("mlm+sop", "a\n\nb\n", "has not one sentence"),
    )
    for objective, content, message in cases:
        text.write_text(content, encoding="utf-8")
        assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--objective", objective, "--heldout", text) == 3
        assert f"{text}: {message}" in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_a_model_to_go_on_with_may_be_moved_but_not_become_another(
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
    assert "the init data is not what this run began with" in capsys.readouterr().err
    assert main([*again, str(moved)]) == 0
    assert (run / "model/model.safetensors").read_bytes() == before


def test_a_mistake_in_the_first_command_can_be_corrected_in_the_second(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(tmp_path / "nowhere", tmp_path / "run", "--steps", 1) == 2
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", "minilm") == 4
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--length", "128:nan", "shares above 0 that add up to 1"),
        ("--length", "64:0.5,128:nan", "shares above 0 that add up to 1"),
        ("--length", "64:0.5,128:0.4", "shares above 0 that add up to 1"),
        ("--length", "0", "lengths of 1 or more"),
        ("--length", "128:most", "the form 128 or 128:0.9,512:0.1"),
        ("--mask-mix", "nan/50/50", "three shares that add up to 100"),
        ("--mask-mix", "80/20", "the form 80/10/10"),
    ],
)
def test_shares_that_make_no_sense_are_refused(
    flag: str, value: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrain", "--corpus", "corpus", "--out", str(tmp_path / "run"), flag, value]) == 2
    assert capsys.readouterr().err == f"bertmill: {flag}: should have {message} (got {value!r})\n"


@pytest.mark.parametrize("words_", [["inspect"], ["check"], ["fill", "a [MASK]"]])
def test_the_folder_of_a_training_is_not_a_model_and_the_message_says_where_it_is(
    words_: list[str], half_a_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words_
    run = shutil.copytree(half_a_run, tmp_path / "run")
    assert main([command, str(run), *rest]) == 2
    assert capsys.readouterr().err == (
        f"bertmill: {run}: is a training that has not come to its end; go on with `--out {run} --resume`\n"
    )
    (run / "model").mkdir()
    assert main([command, str(run), *rest]) == 2
    assert (
        capsys.readouterr().err == f"bertmill: {run}: is the folder of a training, not of a model; give {run}/model\n"
    )


def test_held_out_text_is_planned_once(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 2, "--heldout", corpus.with_name("heldout.txt")) == 0
    plans = sorted(path.name for path in (run / "plans/rank-0/heldout-32").iterdir())
    assert plans == ["epoch-00000.json", "epoch-00000.records"]


def test_a_share_of_documents_can_be_held_out(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: dict[str, set[int]] = {}
    original = Instances.make_batch

    def noted(self: Instances, epoch: int, numbers: Any) -> Any:
        records = self.planner.load_records(epoch)[numbers]
        used.setdefault(self.settings.part, set()).update(records["a_start"].tolist(), records["b_start"].tolist())
        return original(self, epoch, numbers)

    monkeypatch.setattr(Instances, "make_batch", noted)
    flags = ("--steps", 50, "--eval-every", 25, "--heldout", "0.10", "--save-every", 10)
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
def test_a_share_that_is_none_is_refused(
    share: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", f"--heldout={share}") == 2
    assert "should be a share between 0 and 1" in capsys.readouterr().err


def test_a_share_may_be_a_number_in_a_file(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text("heldout = 0.05\nsteps = 1\n", encoding="utf-8")
    assert pretrain(corpus, tmp_path / "run", "--config", tmp_path / "some.toml") == 0
    assert (tmp_path / "run/plans/rank-0/heldout-32").is_dir()


def test_a_share_without_documents_makes_no_run(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", "--heldout", "0.001") == 3
    assert "0.001 of 120 documents cannot be held out" in capsys.readouterr().err
    assert not (tmp_path / "run/config.toml").exists()


def test_a_finished_run_is_not_overwritten(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 0
    assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 2
    assert main(["pretrain", "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert "finished already" in capsys.readouterr().err


def test_a_start_that_is_refused_can_be_made_good(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("One document. It has two sentences.\n", encoding="utf-8")
    vocabulary, single = str(corpus / "vocabulary"), tmp_path / "single"
    assert main(["corpus", str(tmp_path / "text.txt"), "--vocab", vocabulary, "--out", str(single), "--quiet"]) == 0
    assert pretrain(tmp_path, tmp_path / "run", "--steps", 1) == 2
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--init", "minilm") == 4
    assert pretrain(single, tmp_path / "run", "--steps", 1) == 3
    assert not (tmp_path / "run/config.toml").exists()
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0


def test_a_folder_with_other_things_is_no_run(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    assert pretrain(corpus, tmp_path, "--steps", 1) == 2
    assert "is not a run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


def test_a_folder_belongs_to_one_training_at_a_time(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_LOCK_PATIENCE_S", 0.1)
    with storage.locked_folder(tmp_path / "run"):
        assert pretrain(corpus, tmp_path / "run", "--steps", 2) == 6
    assert "is being written by another process" in capsys.readouterr().err


def test_a_full_disk_leaves_the_last_checkpoint(corpus: Path, tmp_path: Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, 1 << 21));"
    program = f"{limit} import sys; from bertmill.cli.main import main; sys.exit(main(sys.argv[1:]))"
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 4, "--save-every", 2) == 0
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints/step-000004")
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    assert before
    resume = ["pretrain", "--out", str(run), "--resume"]
    done = subprocess.run([sys.executable, "-c", program, *resume], capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "cannot be written" in done.stderr.splitlines()[-1]
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before
    assert main(resume) == 0


def torchrun(
    num_processes: int, corpus: Path, out: Path, *flags: object, program: Sequence[object] = ("-m", "bertmill")
) -> subprocess.CompletedProcess[str]:
    fixed = ("--corpus", corpus, "--out", out, "--size", "tiny", "--length", 32, "--batch-size", 9, "--threads", 1)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    arguments = [str(flag) for flag in (*fixed, "--dropout", 0, "--learning-rate", 1e-4, *flags)]
    words_ = [*command, *map(str, program), "pretrain", *arguments]
    return subprocess.run(words_, capture_output=True, text=True, check=False)


def assert_same_training(one: Path, other: Path) -> None:
    weights = [load_file(run / "model/model.safetensors") for run in (one, other)]
    for name, tensor in weights[0].items():
        assert (tensor - weights[1][name]).abs().max() <= 1e-5, name
    for ours, theirs in zip(log_of(one), log_of(other), strict=True):
        assert ours["pieces"] == theirs["pieces"]
        assert ours["mlm_loss"] == pytest.approx(theirs["mlm_loss"], abs=1e-4)


def test_processes_share_the_work_and_may_change_in_number(corpus: Path, tmp_path: Path) -> None:
    common = ("--steps", 20, "--log-every", 5, "--save-every", 5, "--keep", 9)
    assert torchrun(1, corpus, tmp_path / "one", *common).returncode == 0
    done = torchrun(2, corpus, tmp_path / "two", *common)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model") == 1  # one process speaks
    assert_same_training(tmp_path / "one", tmp_path / "two")
    # Two ranks until step 5, one until 10, two to the end.
    run = shutil.copytree(tmp_path / "two", tmp_path / "changing")
    for num_processes, last_step in ((1, 5), (2, 10)):
        shutil.rmtree(run / "model")
        for step in range(last_step + 5, 21, 5):
            shutil.rmtree(run / f"checkpoints/step-{step:06d}")
        done = torchrun(num_processes, corpus, run, *common, "--resume")
        assert f"resumed from step {last_step}" in done.stderr
    assert_same_training(tmp_path / "one", run)


SPOILT_RANK = """
import os, sys, time
from pathlib import Path
from bertmill import storage
from bertmill.cli.main import main
from bertmill.training.objective_trainable import ObjectiveTrainable

original, calls, rank = ObjectiveTrainable.loss, [], int(os.environ["RANK"])

def spoilt(*arguments):
    loss, sums = original(*arguments)
    calls.append(0)
    return (loss * float("nan") if rank == 1 and len(calls) == 8 else loss), sums

ObjectiveTrainable.loss = spoilt
code = main(sys.argv[1:])
here = Path(__file__).parent
(here / f"code-{rank}").write_text(str(code))
for _ in range(600):  # torchrun ends the other ranks when one has failed: both shall have said how they end
    if len(list(here.glob("code-*"))) == 2:
        break
    time.sleep(0.1)
sys.exit(code)
"""


def test_a_gradient_that_is_not_a_number_on_one_rank_stops_all_of_them(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "spoilt.py").write_text(SPOILT_RANK, encoding="utf-8")
    flags = ("--steps", 12, "--save-every", 5)
    done = torchrun(2, corpus, tmp_path / "run", *flags, program=[tmp_path / "spoilt.py"])
    assert [(tmp_path / f"code-{rank}").read_text() for rank in (0, 1)] == ["5", "5"]
    # Both write to one stream at the same time, so that their lines may run into each other.
    assert len(re.findall(r"step 7 is not finite \([45] instances that begin with the pieces \[", done.stderr)) == 2
    assert done.stderr.count("no update was made") == 2
    assert done.returncode == 1  # torchrun's own, with the rank's in its report
    assert re.search(r"exitcode *: 5", done.stderr)
    (checkpoint,) = (tmp_path / "run/checkpoints").iterdir()
    assert checkpoint.name == "step-000005"
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "weights.safetensors").values())


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", "2>&1 >{out}/printed | head -1"])
def test_a_training_goes_on_where_nobody_reads_what_it_says(redirected: str, corpus: Path, tmp_path: Path) -> None:
    flags = "--size tiny --length 32 --batch-size 8 --threads 1 --steps 4 --log-every 1"
    command = f"{sys.executable} -m bertmill pretrain --corpus {corpus} --out {tmp_path}/run {flags} "
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command + redirected.format(out=tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert [line["step"] for line in log_of(tmp_path / "run")] == [1, 2, 3, 4]
    assert (tmp_path / "run/model/config.json").exists()


@pytest.mark.parametrize("wish", ["stop", "skip", "reload"])
def test_weights_that_are_not_finite_are_never_saved(
    wish: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 8, "--learning-rate", 1e39, "--on-nonfinite", wish) == 5
    assert "lower the learning rate" in capsys.readouterr().err
    assert not (run / "model").exists()
    assert not list(run.glob("checkpoints/*"))


def test_a_model_of_what_is_no_number_answers_nothing(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    weights = load_file(tmp_path / "run/model/model.safetensors")
    weights["bert.embeddings.word_embeddings.weight"][7, 7] = math.nan
    shutil.copytree(tmp_path / "run/model", tmp_path / "model", ignore=shutil.ignore_patterns("manifest.json"))
    save_file(weights, tmp_path / "model/model.safetensors", metadata={"format": "pt"})
    assert main(["fill", str(tmp_path / "model"), "Bada [MASK]."]) == 4
    assert "weights that are not finite" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [b"5\n", b'{"a": 1}\n', b"\xff\xfe\n"])
def test_a_damaged_log_is_cut_where_the_damage_is(damage: bytes, corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 4, "--log-every", 1, "--save-every", 2) == 0
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints/step-000004")
    first = (run / "log.jsonl").read_bytes().splitlines(keepends=True)[0]
    (run / "log.jsonl").write_bytes(first + damage)
    assert main(["pretrain", "--out", str(run), "--resume"]) == 0
    assert [line["step"] for line in log_of(run)] == [1, 3, 4]


@pytest.mark.parametrize("key", ["corpus", "learning_rate", "steps", "size", "out"])
def test_settings_that_are_gone_from_a_run_are_missed(
    key: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 1) == 0
    lines = (run / "config.toml").read_text().splitlines(keepends=True)
    (run / "config.toml").write_text("".join(line for line in lines if not line.startswith(f"{key} =")))
    assert main(["pretrain", "--out", str(run), "--resume"]) == (0 if key == "out" else 4)
    assert f"does not say {key}" in capsys.readouterr().err or key == "out"


def test_a_run_knows_its_corpus_also_without_its_plans(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert pretrain(corpus, run, "--steps", 1) == 0
    for name in ("model", "plans"):
        shutil.rmtree(run / name)
    tokenizer = BertTokenizer.from_pretrained(corpus.parent / "vocab.txt")
    build_corpus([str(corpus.parent / "heldout.txt")], tokenizer, tmp_path / "other", workers=1)
    assert main(["pretrain", "--out", str(run), "--resume", "--corpus", str(tmp_path / "other")]) == 4
    assert "the corpus data is not what this run began with" in capsys.readouterr().err


def test_a_run_of_another_command_is_told(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 0
    assert main(["finetune", "--out", str(tmp_path / "run"), "--resume"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"bertmill: {tmp_path}/run: is a run of `bertmill pretrain`; go on with `bertmill pretrain --resume`"
    )


def test_the_settings_of_a_run_that_went_on_with_a_model_begin_another(corpus: Path, tmp_path: Path) -> None:
    assert pretrain(corpus, tmp_path / "first", "--steps", 1) == 0
    assert pretrain(corpus, tmp_path / "second", "--steps", 1, "--init", tmp_path / "first/model") == 0
    config = tmp_path / "second/config.toml"
    config.write_text(re.sub(r'length = "32"', "length = 32", config.read_text()))  # as a person would write it
    assert main(["pretrain", "--config", str(config), "--out", str(tmp_path / "third")]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epochs", "1e308"], "--epochs"),
        (["--steps", "9" * 320], "--steps"),
        (["--budget", "9" * 320], "--budget"),
        (["--threads", "100000000"], "--threads"),
        (["--workers", "9999999"], "--workers"),
        (["--device", "meta"], "--device meta cannot be used"),
        (["--heldout", ""], "--heldout: should not be empty"),
        (["--out", "folder\udcff"], "--out has a name that is not UTF-8"),
    ],
)
def test_what_no_machine_can_do_is_refused(
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


@pytest.mark.parametrize("size", ["abc", "2"])
def test_an_environment_that_torchrun_did_not_make_is_refused(
    size: str, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    assert pretrain(corpus, tmp_path / "run", "--steps", 1) == 2
    assert "WORLD_SIZE is" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")  # torch warns of itself when it compiles
@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_wish_for_one_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(corpus, tmp_path / "run", "--steps", 1, "--compile") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bertmill: torch.compile does not work here: ")
    assert not (tmp_path / "run/config.toml").exists()
