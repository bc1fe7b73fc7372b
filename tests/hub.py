"""Fixtures: a hub on the loopback interface with one small model, used instead of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http

from bertmill.model.bert import BertModel
from bertmill.model.config import BertConfig
from bertmill.text.tokenizer import BertTokenizer
from bertmill.text.vocabulary import SPECIAL_TOKENS
from tests.hub_server import Hub, running_hub

NAME = "someone/small-bert"


@pytest.fixture(scope="session")
def hub_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small model."""
    folder = tmp_path_factory.mktemp("model") / "small-bert"
    tokenizer = BertTokenizer({piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "good", "film"])})
    BertModel(BertConfig.of_size("tiny", vocab_size=len(tokenizer), num_hidden_layers=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hub(hub_files: dict[str, bytes], hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one model, used instead of the real one. Failed requests are repeated without waiting."""
    with running_hub() as server:
        server.repositories[NAME] = {**hub_files, "pytorch_model.bin": b"x" * 20_000, "README.md": b"..."}
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(_http.time, "sleep", lambda _seconds: None)
        yield server
