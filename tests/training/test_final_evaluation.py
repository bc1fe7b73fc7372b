"""Tests for evaluation.json: bounded, and right for every objective and task."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertmill.cli.main import main
from bertmill.text.tokenizer import BertTokenizer
from bertmill.training.final_evaluation import MAX_CLASSES, write_evaluation
from tests.finetuned import finetune_words
from tests.training.pretraining import pretrain


def test_the_file_is_bounded_for_long_texts_and_many_classes(tmp_path: Path) -> None:
    error = {
        "place": "f:1",
        "text": "x" * 1_000_000,
        "expected": ["y" * 9000],
        "answer": {"scores": [0.5] * 100_000},
        "shown": "z",
    }
    classes = [
        {"label": str(number), "precision": 0.1, "recall": 0.1, "f1": 0.1, "rows": number} for number in range(50_000)
    ]
    write_evaluation(tmp_path / "evaluation.json", {"worst": [error] * 20, "classes": classes})
    assert (tmp_path / "evaluation.json").stat().st_size < 500_000
    content = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))
    assert "answer" not in content["worst"][0]
    assert (len(content["classes"]), content["classes"][0]["rows"]) == (MAX_CLASSES, 49_999)


@pytest.mark.parametrize("objective", ["mlm", "mlm+nsp", "mlm+sop", "clm"])
@pytest.mark.parametrize("has_heldout", [True, False], ids=["held-out text", "no held-out text"])
def test_predictions_are_at_the_place_of_the_expected_piece(
    objective: str, has_heldout: bool, corpus: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    heldout = ("--heldout", corpus.with_name("heldout.txt")) if has_heldout else ()
    assert pretrain(corpus, run, "--steps", 2, "--objective", objective, *heldout) == 0
    content = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    assert content["on"] == ("heldout" if has_heldout else "train")
    tokenizer = BertTokenizer.from_pretrained(run / "model")
    for instance in content["predictions"]:
        for position in instance["positions"]:
            shown = instance["pieces"][position["place"]]
            if objective == "clm":  # nothing is masked: the expected piece is the one in its place
                assert shown == position["expected"]
            assert position["expected"] in tokenizer.vocab
            assert sum(guess["probability"] for guess in position["guesses"]) <= 1 + 1e-6
    assert 0 < content["baseline"]["metrics"][f"{'clm' if objective == 'clm' else 'mlm'}_accuracy"] < 1
    assert ("metrics" in content) == has_heldout
    if has_heldout:
        last = json.loads((run / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        assert len(content["metrics"]) == len([name for name in last if name.startswith("heldout_")])
        for name, metric in content["metrics"].items():
            assert metric["value"] == pytest.approx(last[f"heldout_{name}"], rel=1e-4)
            assert metric["low"] <= metric["value"] <= metric["high"]


def test_a_regression_has_an_evaluation_without_classes(tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text(
        "text\tlabel\n" + "".join(f"good {'film ' * number}\t{number}\n" for number in range(1, 12)), "utf-8"
    )
    assert main([*finetune_words(tiny, rows, tmp_path / "run", "regress", epochs=1, dev=rows), "--quiet"]) == 0
    content = json.loads((tmp_path / "run/evaluation.json").read_text(encoding="utf-8"))
    assert (content["classes"], content["reliability"]) == ([], [])
    assert content["baseline"]["answer"] == "always the mean, 6"
    assert (tmp_path / "run/report.html").exists()


def test_choices_have_their_texts_in_the_errors(tiny: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    content = [{"text": "good", "choices": ["film", "book"], "label": number % 2} for number in range(12)]
    rows.write_text("".join(json.dumps(row) + "\n" for row in content), "utf-8")
    assert main([*finetune_words(tiny, rows, tmp_path / "run", "choose", epochs=1, dev=rows), "--quiet"]) == 0
    evaluation = json.loads((tmp_path / "run/evaluation.json").read_text(encoding="utf-8"))
    assert evaluation["worst"][0]["choices"] == ["film", "book"]
