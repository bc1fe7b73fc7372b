"""Finished runs for the tests of reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertmill.cli.main import main
from tests.finetuned import finetune_words

HOSTILE = '<script>document.title="run"</script> & "quoted"'


@pytest.fixture(scope="session")
def pretrained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short pre-training run with held-out text."""
    folder = tmp_path_factory.mktemp("pretraining")
    sentences = [
        f"The {one} film has a {other} plot. It is {one}." for one in ("good", "bad") for other in ("warm", "cold")
    ]
    (folder / "text.txt").write_text("\n\n".join(sentences * 30), encoding="utf-8")
    (folder / "heldout.txt").write_text("\n\n".join(sentences * 3), encoding="utf-8")
    commands = [
        ["vocab", folder / "text.txt", "--out", folder / "vocabulary", "--size", 60],
        ["corpus", folder / "text.txt", "--vocab", folder / "vocabulary", "--out", folder / "corpus"],
        ["pretrain", "--corpus", folder / "corpus", "--out", folder / "run", "--size", "tiny", "--steps", 12],
    ]
    commands[-1] += ["--length", 32, "--heldout", folder / "heldout.txt", "--log-every", 2, "--eval-every", 4]
    for words in commands:
        assert main([*map(str, words), "--quiet"]) == 0
    return folder / "run"


@pytest.fixture(scope="session")
def hostile_run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning run on pairs whose texts and labels contain HTML."""
    folder = tmp_path_factory.mktemp("hostile")
    rows = [
        {"text": f"good film {HOSTILE}", "pair": "<b>bold</b>", "label": ("<i>x</i>", "y", "z")[number % 3]}
        for number in range(24)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = finetune_words(tiny, folder / "rows.jsonl", folder / "run", epochs=1, dev=folder / "rows.jsonl")
    assert main([*words, "--quiet"]) == 0
    return folder / "run"
