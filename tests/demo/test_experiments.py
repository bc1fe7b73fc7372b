"""Tests for the encoder with random weights; tests/cli/test_demo.py covers the training runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from bertmill.config.commands import DemoSettings
from bertmill.demo.experiments import is_finished, write_random_encoder
from bertmill.demo.folder import Demo
from bertmill.model.bert import BertForMaskedLM
from bertmill.model.config import BertConfig
from bertmill.storage import verify_manifest


def test_the_random_encoder_has_the_pretrained_shape_and_reproducible_weights(tiny: Path, tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        demo = Demo(DemoSettings(out=tmp_path / name))
        assert not is_finished(demo.pretraining)
        shutil.copytree(tiny, demo.pretraining / "model")
        assert is_finished(demo.pretraining)
        write_random_encoder(demo)
        write_random_encoder(demo)  # does nothing
        verify_manifest(demo.random)
        contents.append((demo.random / "model.safetensors").read_bytes())
        assert BertConfig.from_pretrained(demo.random).hidden_size == BertConfig.from_pretrained(tiny).hidden_size
        report = BertForMaskedLM.from_pretrained(demo.random).load_report
        assert report is not None
        assert not report.new
    assert contents[0] == contents[1]
