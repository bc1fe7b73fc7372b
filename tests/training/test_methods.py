"""The choice of a method: the probe, training of all weights, or the better of the two; and what resuming repeats."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertmill.checkpoint.huggingface import folder_sha256
from bertmill.cli.main import main
from bertmill.model.bert import BertModel
from bertmill.training import methods, probe, runs
from bertmill.training.advice import advice_from_losses
from bertmill.training.distributed import Ranks
from tests.finetuned import RunMain, finetune_words, read_metadata, text_of
from tests.training.test_finetune import PROGRAM, outcome

AUTO = {"method": "auto", "epochs": 1, "learning_rate": 1e-3}


def words_without_dev(*arguments: Any, **more: Any) -> list[str]:
    """The command line of a run that leaves the dev rows open."""
    words = finetune_words(*arguments, **{**AUTO, **more})
    place = words.index("--dev")
    return words[:place] + words[place + 2 :]


def few_rows(folder: Path, count: int) -> Path:
    draw = random.Random(3)
    texts = [text_of(draw) for _ in range(count)]
    path = folder / "few.tsv"
    lines = [f"{text}\t{'yes' if 'good' in text.split() else 'no'}" for text in texts]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n", encoding="utf-8")
    return path


def test_few_rows_get_a_probe_that_leaves_the_encoder_unchanged(tiny: Path, tmp_path: Path, run_main: RunMain) -> None:
    rows = few_rows(tmp_path, 40)
    run_main(*words_without_dev(tiny, rows, tmp_path / "run"), "--quiet")
    metadata = read_metadata(tmp_path / "run/model")
    assert metadata["method"]["name"] == "probe"
    assert json.loads((tmp_path / "run/method.json").read_text())["reason"] == "only 40 rows"
    before = BertModel.from_pretrained(tiny, add_pooling_layer=False).state_dict()
    after = BertModel.from_pretrained(tmp_path / "run/model", add_pooling_layer=False).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    evaluation = json.loads((tmp_path / "run/evaluation.json").read_text(encoding="utf-8"))
    assert (evaluation["on"], evaluation["rows"]) == ("cross-validation", 40)
    shown = json.loads(run_main("evaluate", tmp_path / "run/model", rows, "--json", "--quiet"))
    assert shown["method"]["name"] == "probe"
    assert not (tmp_path / "run/features").exists()


@pytest.mark.parametrize("feature", ["mean", "layers"])
def test_the_saved_probe_predicts_what_was_fitted(
    feature: str, tiny: Path, tmp_path: Path, run_main: RunMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outputs for the training rows are those of the linear model, though it reads texts instead of features."""
    monkeypatch.setattr(probe, "_is_clearly_smaller", lambda *_: feature == "layers")
    monkeypatch.setattr(probe.FittedFeature, "loss", property(lambda each: float(each.is_portable)))
    fitted = []
    fit_probe = probe.fit_probe

    def remembered(*arguments: Any, **more: Any) -> Any:
        fitted.append(fit_probe(*arguments, **more))
        return fitted[-1]

    monkeypatch.setattr(methods, "fit_probe", remembered)
    rows = few_rows(tmp_path, 40)
    run_main(*words_without_dev(tiny, rows, tmp_path / "run", max_length=8), "--quiet")  # some texts have two windows
    (found,) = fitted
    assert found.best.name == feature
    outputs = torch.tensor(found.best.model.outputs(found.features.of(feature).numpy()))
    lines = run_main("predict", tmp_path / "run/model", rows, "--quiet").splitlines()
    scores = [list(json.loads(line)["scores"].values()) for line in lines]
    assert torch.tensor(scores) == pytest.approx(outputs.softmax(1).numpy(), abs=5e-3)


def test_with_more_rows_both_methods_are_compared_on_the_same_rows(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, epochs, rate in (("trained", 8, 2e-3), ("spoiled", 1, 0.5)):
        words = words_without_dev(tiny, rows_file, tmp_path / name, epochs=epochs, learning_rate=rate)
        assert main(words) == 0
        said = capsys.readouterr().err
        metadata = read_metadata(tmp_path / name / "model")
        expected = "full" if name == "trained" else "probe"
        assert metadata["method"]["name"] == expected
        kept = {"full": "kept the model with all weights trained", "probe": "kept the probe"}[expected]
        (line,) = [line for line in said.splitlines() if line.startswith("accuracy on the same ")]
        assert line.endswith(kept)
        assert metadata["best_step"] is None
        assert (metadata["steps"] > 0) == (name == "trained")
        assert main(["inspect", str(tmp_path / name / "model")]) == 0
        assert "method:" in capsys.readouterr().out


def test_a_choice_that_is_killed_and_resumed_is_bit_identical(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    more = {"epochs": 8, "learning_rate": 2e-3, "save_every": 9}
    assert main([*words_without_dev(tiny, rows_file, whole, **more), "--quiet"]) == 0
    for mode in ("saving:40", "random:12:5:2"):
        words = [*words_without_dev(tiny, rows_file, killed / mode, **more), "--resume"]
        done = subprocess.run(
            [sys.executable, PROGRAM], input=json.dumps([mode, *words]), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 2  # kills
        assert outcome(killed / mode) == outcome(whole)
        assert (killed / mode / "evaluation.json").read_bytes() == (whole / "evaluation.json").read_bytes()


def test_features_of_an_interrupted_run_are_not_computed_again(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = few_rows(tmp_path, 30)
    words = [*words_without_dev(tiny, rows, tmp_path / "run"), "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(methods, "fit_probe", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(words) == 130
    assert list((tmp_path / "run/features").glob("train-*.safetensors"))
    monkeypatch.setattr("bertmill.training.features._encode", lambda *_: pytest.fail("encoded again"))
    assert main([*words, "--resume"]) == 0


def test_a_budget_that_is_too_short_keeps_the_probe_and_is_recorded(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_without_dev(tiny, rows_file, tmp_path / "run", budget=1, epochs=10_000)
    assert main(words) == 0
    assert "kept the probe without training all weights: that may take" in capsys.readouterr().err
    plan = json.loads((tmp_path / "run/method.json").read_text())
    assert not plan["trains"]
    words = finetune_words(tiny, rows_file, tmp_path / "full", budget=2, epochs=10_000)
    assert main([*words, "--quiet"]) == 0
    assert 1 <= read_metadata(tmp_path / "full/model")["steps"] < 10_000 * 14  # as many as fit


def test_a_portable_probe_is_a_plain_hugging_face_folder(
    tiny: Path, tmp_path: Path, run_main: RunMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    monkeypatch.setattr(probe, "_is_clearly_smaller", lambda *_: True)
    rows = few_rows(tmp_path, 40)
    run_main(*words_without_dev(tiny, rows, tmp_path / "run"), "--portable", "--quiet")
    theirs = transformers.pipeline("text-classification", str(tmp_path / "run/model"), top_k=None)
    ours = json.loads(run_main("predict", tmp_path / "run/model", "--text", "a good film", "--quiet"))
    assert {each["label"]: each["score"] for each in theirs(["a good film"])[0]} == pytest.approx(
        ours["scores"], abs=1e-4
    )


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        ("classify", [{"text": f"word {n}", "label": str(n)} for n in range(6)]),  # one row per class
        ("classify", [{"text": "the same", "label": "ab"[n % 2]} for n in range(6)]),  # identical texts
        ("classify", [{"text": f"film {n}", "label": "a" if n else "b"} for n in range(9)]),  # one row of a class
        ("regress", [{"text": f"film {n}", "label": n} for n in range(5)]),
        ("tag", [{"words": ["in", f"film{n}"], "tags": ["O", "B-X"]} for n in range(4)]),
    ],
)
def test_very_few_and_odd_rows_give_a_model(
    task: str, rows: list[dict[str, Any]], tiny: Path, tmp_path: Path, run_main: RunMain
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run_main(*words_without_dev(tiny, file, tmp_path / "run", task), "--quiet")
    assert len(run_main("predict", tmp_path / "run/model", file, "--quiet").splitlines()) == len(rows)


def test_a_probe_that_cannot_be_used_is_refused(
    tiny: Path, classifier: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = tmp_path / "choices.jsonl"
    rows = [{"text": text, "choices": ["b", "c"], "label": number} for number, text in enumerate("ad")]
    choices.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = finetune_words(tiny, choices, tmp_path / "run", "choose", dev=choices, method="probe")
    assert main([*words, "--quiet"]) == 2
    assert "--method probe cannot be used: the task choose has no probe" in capsys.readouterr().err
    words = finetune_words(classifier, rows_file, tmp_path / "run", method="probe")
    assert main([*words, "--quiet"]) == 2
    assert "the model already has a head for these labels" in capsys.readouterr().err


def test_vectors_that_are_not_finite_are_an_error(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = BertModel.from_pretrained(tiny)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[5:] = float("nan")
    broken = shutil.copytree(tiny, tmp_path / "broken")
    model.save_pretrained(broken)
    assert main([*words_without_dev(broken, few_rows(tmp_path, 30), tmp_path / "run"), "--quiet"]) == 4
    assert "not finite" in capsys.readouterr().err


def test_advice_depends_on_the_losses(tmp_path: Path) -> None:
    def advice(losses: list[float], is_stalled: bool = False) -> str:
        log = tmp_path / "log.jsonl"
        log.write_text("".join(json.dumps({"step": n, "loss": loss}) + "\n" for n, loss in enumerate(losses)))
        return advice_from_losses(log, 0.7, is_stalled=is_stalled)

    assert "near that of guessing" in advice([0.7] * 10)
    falling = [0.7, 0.7, 0.6, 0.6, 0.6, 0.6, 0.5, 0.5, 0.3, 0.3]
    assert "still falling" in advice(falling)
    assert advice(falling, is_stalled=True) == ""  # more training would not help
    assert advice([0.7, 0.6, 0.5, 0.4, 0.35, 0.34, 0.33, 0.33, 0.32, 0.32]) == ""
    assert advice([0.1]) == ""


def test_the_model_of_a_run_is_the_same_for_the_same_seed(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main([*words_without_dev(tiny, rows_file, tmp_path / name, epochs=2), "--quiet"]) == 0
    assert folder_sha256(tmp_path / "one/model") == folder_sha256(tmp_path / "two/model")


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_single_row_is_refused(task: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"words": ["in", "film"], "tags": ["O", "B-X"]} if task == "tag" else {"text": "film", "label": ["a", "b"]}
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    flags = ["--multi-label"] if task == "classify" else []
    assert main([*words_without_dev(tiny, file, tmp_path / "run", task), *flags, "--quiet"]) == 3
    assert "there is only one row" in capsys.readouterr().err


def test_an_extended_run_compares_the_longer_training(tiny: Path, rows_file: Path, tmp_path: Path) -> None:
    def results(name: str, *flags: str, **more: Any) -> Any:
        words = words_without_dev(tiny, rows_file, tmp_path / name, method="full", **more)
        assert main([*words, "--keep-checkpoints", "--quiet", *flags]) == 0
        return read_metadata(tmp_path / name / "model")["dev"]

    shorter = results("run", epochs=1)
    assert results("run", "--resume", epochs=3) == results("new", epochs=3) != shorter


def test_a_comparison_is_not_resumed_by_several_processes(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = finetune_words(tiny, rows_file, tmp_path / "run", dev=rows_file, method="auto", epochs=1)
    with monkeypatch.context() as patch:
        patch.setattr(methods.Finetuning, "best", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*words, "--quiet"]) == 130
    monkeypatch.setattr(runs, "joined_ranks", lambda device: nullcontext(Ranks(device, 0, 2)))
    monkeypatch.setattr(Ranks, "wait", lambda _: None)
    monkeypatch.setattr(Ranks, "largest", lambda _, numbers: numbers)
    assert main([*words, "--resume", "--quiet"]) == 2
    assert "it needs a single process" in capsys.readouterr().err


def test_seeds_and_a_probe_exclude_each_other(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words_without_dev(tiny, rows_file, tmp_path / "run", method="probe"), "--seeds", "2"]) == 2
    assert "a probe does not depend on them" in capsys.readouterr().err


def test_a_probe_takes_no_settings_of_training(
    tiny: Path, rows_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = words_without_dev(tiny, rows_file, tmp_path / "run", method="probe")
    assert main([*words, "--epochs", "3", "--patience", "2"]) == 2
    assert "--epochs, --patience and --method probe are mutually exclusive" in capsys.readouterr().err


@pytest.mark.parametrize("names", [None, [], "mean", ["unknown"], [["mean"]], ["mean", "mean"]])
def test_a_damaged_probe_is_an_error(
    names: Any, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main([*words_without_dev(tiny, few_rows(tmp_path, 40), run, method="probe"), "--quiet"]) == 0
    path = run / "model/config.json"
    config = {**json.loads(path.read_text()), "architectures": ["BertForSequenceProbe"], "probe_features": names}
    path.write_text(json.dumps(config))
    (run / "model/manifest.json").unlink(missing_ok=True)
    assert main(["predict", str(run / "model"), "--text", "a film"]) == 4
    assert "probe_features" in capsys.readouterr().err


def test_many_classes_are_chosen_on_one_fold_and_judged_on_all(
    tiny: Path, tmp_path: Path, run_main: RunMain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "ONE_FOLD_PRODUCT", 0)
    run_main(*words_without_dev(tiny, few_rows(tmp_path, 40), tmp_path / "run"), "--quiet")
    assert json.loads((tmp_path / "run/evaluation.json").read_text())["rows"] == 40


def test_damaged_files_of_a_run_are_named(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = [*words_without_dev(tiny, rows_file, run), "--quiet", "--resume"]
    with monkeypatch.context() as patch:  # ends the run after its folds
        patch.setattr(methods.Finetuning, "_compare", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(words) == 130
    features, fold = run / "features/train-000000.safetensors", run / "folds/1/outputs.safetensors"
    stored, outputs = load_file(features), load_file(fold)
    contents: list[tuple[Path, Any]] = [
        (features, {"rows": stored["rows"]}),
        (features, {**stored, "rows": stored["rows"][1:]}),
        (features, {**stored, "rows": stored["rows"].double()}),
        (fold, {name: tensor for name, tensor in outputs.items() if name != "3"}),
        (fold, {**outputs, "3": outputs["3"] * float("nan")}),
        (run / "method.json", {"trains": True, "max_steps": -3, "reason": ""}),
    ]
    for path, content in contents:
        before = path.read_bytes()
        path.write_text(json.dumps(content)) if path.suffix == ".json" else save_file(content, path)
        assert main(words) == 4
        assert f"{path}: is damaged; remove it, and resume the run" in capsys.readouterr().err
        path.write_bytes(before)


def test_a_run_with_a_relative_path_is_resumed_with_the_same_report(
    tiny: Path, rows_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(rows_file.parent)
    given = Path(rows_file.name)
    assert main([*words_without_dev(tiny, given, tmp_path / "whole", method="probe"), "--quiet"]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(methods, "fit_probe", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([*words_without_dev(tiny, given, tmp_path / "run", method="probe"), "--quiet"]) == 130
    assert main(["finetune", "--resume", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    reports = [(tmp_path / name / "evaluation.json").read_bytes() for name in ("whole", "run")]
    assert reports[0] == reports[1]
