"""Tests for `bertmill fill`: predictions as a table or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bertmill
from bertmill.cli.main import main
from bertmill.model.bert import BertForMaskedLM
from bertmill.text.tokenizer import BertTokenizer
from tests.finetuned import RunMain


@pytest.fixture(scope="module")
def model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fill") / "model"
    torch.manual_seed(0)
    BertForMaskedLM.from_pretrained(tiny).save_pretrained(folder)
    BertTokenizer.from_pretrained(tiny).save_pretrained(folder)
    return folder


def test_a_table_has_the_predictions_for_each_mask(model: Path, run_main: RunMain) -> None:
    lines = run_main("fill", model, "a good [MASK]", "[MASK] and [MASK]", "--top-k", 2).splitlines()
    assert lines[0] == "a good [MASK]"
    assert len(lines) == 1 + 2 + 1 + 2 * (1 + 2)
    best = bertmill.load(model).fill("a good [MASK]", top_k=1)[0]
    assert isinstance(best, dict)
    assert lines[1] == f"  {best['score']:7.2%}  {best['token_str']}"
    assert [line for line in lines if line.startswith("  [MASK]")] == ["  [MASK] 1", "  [MASK] 2"]


def test_json_has_one_object_per_text(model: Path, run_main: RunMain) -> None:
    (content,) = map(json.loads, run_main("fill", model, "a good [MASK]", "--json").splitlines())
    assert content == {"text": "a good [MASK]", "masks": [bertmill.load(model).fill("a good [MASK]")]}


def test_a_text_without_a_mask_gives_one_line(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(model), "a good film"]) == 3
    assert capsys.readouterr().err == "bertmill: the text has no [MASK]; replace a word with it\n"


def test_the_text_is_printed_without_control_characters(model: Path, run_main: RunMain) -> None:
    assert run_main("fill", model, "a \x1b[2J [MASK]").splitlines()[0] == "a \\x1b[2J [MASK]"
