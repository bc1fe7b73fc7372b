"""A small model folder for each test, and no log output from transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from model_folders import SMALL

from bertmill import BertConfig, BertForPreTraining


@pytest.fixture(autouse=True)
def _quiet() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "model"
    BertForPreTraining(BertConfig(**SMALL)).save_pretrained(path)
    return path
